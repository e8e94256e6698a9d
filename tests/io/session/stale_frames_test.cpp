#include "session/stale_frames.hpp"

#include <gtest/gtest.h>

namespace halotap::io {
namespace {

using namespace std::chrono_literals;

constexpr pipeline::Instant kNow{1h};

// 1000 frames a second: a frame is a millisecond old for each behind it.
std::int64_t stale(std::int64_t frames, std::chrono::nanoseconds last_age, std::int64_t chunk_frames,
                   std::chrono::nanoseconds most_age) {
  return stale_frames(frames, kNow - last_age, 1000, chunk_frames, kNow, most_age);
}

TEST(StaleFrames, AreThoseInFrontOfTheOldestChunkThatCanBeOnTime) {
  // The chunk's last frame may be 20 ms old: 20 frames are behind it.
  EXPECT_EQ(stale(100, 0ms, 1, 20ms), 79);
  EXPECT_EQ(stale(100, 0ms, 10, 20ms), 70);
  EXPECT_EQ(stale(100, 5ms, 10, 20ms), 75);
}

TEST(StaleFrames, AreNoneOrAll) {
  EXPECT_EQ(stale(100, 0ms, 10, 90ms), 0);
  EXPECT_EQ(stale(100, 0ms, 1, 1h), 0);
  EXPECT_EQ(stale(100, 21ms, 1, 20ms), 100);
  EXPECT_EQ(stale(100, 10min, 10, 20ms), 100);
  EXPECT_EQ(stale(0, 0ms, 10, 20ms), 0);
}

}  // namespace
}  // namespace halotap::io
