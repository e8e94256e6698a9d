#include <gtest/gtest.h>

#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

using test::config_error;
using test::run_stage;

TEST(RmsStage, GivesTheRootOfTheMeanSquareOfEveryWindow) {
  const std::vector<float> results = run_stage(rms_stage({.window_ms = 2}), 1000, {3, -4, 1, 1, 2});
  ASSERT_EQ(results.size(), 3u);
  EXPECT_FLOAT_EQ(results[0], std::sqrt(12.5f));
  EXPECT_EQ(results[1], 1);
  EXPECT_EQ(results[2], 2);  // a window of one frame
}

TEST(RmsStage, RoundsItsWindowToWholeFrames) {
  const auto merged = [](double window_ms, double rate_hz) {
    return rms_stage({.window_ms = window_ms})()->prepare({.channels = 1, .rate_hz = rate_hz}).frames_merged;
  };
  EXPECT_EQ(merged(10, 48000), 480);
  EXPECT_EQ(merged(10, 22050), 221);  // 220.5
  EXPECT_EQ(merged(0.01, 1000), 1);
  EXPECT_EQ(rms_stage({.window_ms = 10})()->prepare({.channels = 1, .rate_hz = 1000}).latency_frames, 9);
}

TEST(RmsStage, SaysWhichWindowGivesALatency) {
  const LatencyKey key = rms_stage({.window_ms = 10})()->prepare({.channels = 1, .rate_hz = 48000}).latency_key;
  EXPECT_EQ(key.name, "window_ms");
  for (const std::int64_t frames : {0, 1, 100}) {
    EXPECT_EQ(test::latency_for(key, frames, [](double value) { return rms_stage({.window_ms = value}); }), frames);
  }
}

TEST(RmsStage, KeepsWhatIsNotFiniteInItsWindow) {
  const std::vector<float> results = run_stage(rms_stage({.window_ms = 2}), 1000, {NAN, 1, 2, 2, 1, -INFINITY, 3, 3});
  EXPECT_TRUE(std::isnan(results[0]));
  EXPECT_EQ(results[1], 2);
  EXPECT_EQ(results[2], INFINITY);
  EXPECT_EQ(results[3], 3);
}

TEST(RmsStage, HoldsTheLargestSamples) {
  EXPECT_FLOAT_EQ(run_stage(rms_stage({.window_ms = 2}), 1000, {3e38f, 3e38f})[0], 3e38f);
}

TEST(RmsStage, RefusesWindowsOutOfRange) {
  EXPECT_EQ(config_error([] { rms_stage({}); }), "window_ms: expected milliseconds above 0, got 0");
  EXPECT_EQ(config_error([] { rms_stage({.window_ms = -1}); }),
            "window_ms: expected milliseconds from 0 to 3600000, got -1");
}

}  // namespace
}  // namespace halotap::pipeline
