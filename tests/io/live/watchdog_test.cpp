#include "live/watchdog.hpp"

#include <gtest/gtest.h>

namespace halotap::io {
namespace {

using namespace std::chrono_literals;

TEST(Watchdog, TellsADeviceLostThatStopsCallingBack) {
  Watchdog watchdog(250ms, 2s);
  std::chrono::nanoseconds now = 5s;
  for (std::uint64_t blocks = 1; blocks < 100; ++blocks, now += 20ms) ASSERT_FALSE(watchdog.is_lost(now, blocks));
  const std::chrono::nanoseconds quiet_since = now - 20ms;
  while (!watchdog.is_lost(now, 99)) now += 20ms;
  EXPECT_GE(now - quiet_since, 250ms);
  EXPECT_LE(now - quiet_since, 290ms);
}

TEST(Watchdog, WaitsLongerForTheFirstBlock) {
  Watchdog watchdog(250ms, 2s);
  std::chrono::nanoseconds now = 0s;
  while (!watchdog.is_lost(now, 7)) now += 20ms;  // blocks of an earlier time do not count
  EXPECT_GE(now, 2s);
  EXPECT_LE(now, 2100ms);
}

TEST(Watchdog, CountsNoTimeInWhichNobodyLooked) {
  Watchdog watchdog(250ms, 2s);
  EXPECT_FALSE(watchdog.is_lost(0s, 1));
  EXPECT_FALSE(watchdog.is_lost(20ms, 2));
  EXPECT_FALSE(watchdog.is_lost(60s, 2));  // the program was suspended
  EXPECT_FALSE(watchdog.is_lost(60s + 20ms, 3));
}

TEST(Backoff, DoublesItsPausesUpToTheLongest) {
  Backoff backoff(100ms, 5s);
  for (const std::chrono::nanoseconds pause : {100ms, 200ms, 400ms, 800ms, 1600ms, 3200ms, 5000ms, 5000ms}) {
    EXPECT_EQ(backoff.next(), pause);
  }
}

}  // namespace
}  // namespace halotap::io
