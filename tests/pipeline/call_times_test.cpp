#include "call_times.hpp"

#include <gtest/gtest.h>

#include <cstdint>

namespace halotap::pipeline {
namespace {

using std::chrono::nanoseconds;

TEST(CallTimes, ExpectsNothingBeforeItHasMeasured) {
  const CallTimes times;
  EXPECT_EQ(times.estimate(1), nanoseconds(0));
  EXPECT_EQ(times.estimate(std::size_t{1} << 20), nanoseconds(0));
  EXPECT_EQ(times.fitting(nanoseconds(0), 7), 7u);
}

TEST(CallTimes, FollowsALongerCallAtOnceAndAShorterOneSlowly) {
  CallTimes times;
  times.record(10, nanoseconds(6'400));
  times.record(10, nanoseconds(64'000));
  EXPECT_EQ(times.estimate(10), nanoseconds(64'000));
  times.record(10, nanoseconds(0));
  EXPECT_EQ(times.estimate(10), nanoseconds(63'000));
  for (int i = 0; i < 44; ++i) times.record(10, nanoseconds(0));
  EXPECT_LT(times.estimate(10), nanoseconds(32'000));
  EXPECT_GT(times.estimate(10), nanoseconds(31'000));
}

TEST(CallTimes, TakesALargerCallForOneThatWasNeverMeasured) {
  CallTimes times;
  times.record(1000, nanoseconds(500));
  EXPECT_EQ(times.estimate(3), nanoseconds(500));
  times.record(100, nanoseconds(200));
  EXPECT_EQ(times.estimate(3), nanoseconds(200));
  EXPECT_EQ(times.estimate(500), nanoseconds(500));
}

TEST(CallTimes, ScalesUpWhereNoLargerCallWasMeasured) {
  CallTimes times;
  times.record(1, nanoseconds(100));
  EXPECT_EQ(times.estimate(64), nanoseconds(6'400));
  times.record(4, nanoseconds(120));
  EXPECT_EQ(times.estimate(64), nanoseconds(1'920)) << "the least that is known to be enough";
}

TEST(CallTimes, NeverExpectsLessOfMoreStreamsThanAnAffineCostAllows) {
  const auto cost = [](std::size_t streams) { return nanoseconds(5'000 + 7 * static_cast<std::int64_t>(streams)); };
  for (const std::size_t known : {1, 3, 4, 37, 1000, 65'536}) {
    CallTimes times;
    times.record(known, cost(known));
    for (std::size_t streams = 1; streams <= std::size_t{1} << 20; streams += 1 + streams / 3) {
      // A step's figure may come from its other end: a quarter of the way to the next power of two.
      EXPECT_GE(times.estimate(streams) * 5 / 4, cost(streams)) << streams << " from " << known;
    }
  }
}

TEST(CallTimes, FindsHowManyFit) {
  CallTimes times;
  times.record(1, nanoseconds(100));
  times.record(8, nanoseconds(150));
  times.record(64, nanoseconds(400));
  EXPECT_EQ(times.fitting(nanoseconds(400), 64), 64u);
  EXPECT_EQ(times.fitting(nanoseconds(399), 64), 20u) << "scaled from 8 to 20: 375; to 24: 450";
  EXPECT_EQ(times.fitting(nanoseconds(150), 64), 9u) << "the step of 8 is 8 and 9";
  EXPECT_EQ(times.fitting(nanoseconds(99), 64), 0u);
  EXPECT_EQ(times.fitting(nanoseconds(-1), 64), 0u);
}

}  // namespace
}  // namespace halotap::pipeline
