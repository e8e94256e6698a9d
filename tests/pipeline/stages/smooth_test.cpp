#include <gtest/gtest.h>

#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

using test::config_error;
using test::run_stage;

TEST(SmoothStage, RisesByTheAttackTimeAndFallsByTheReleaseTime) {
  // At 1 kHz: 20 frames up, 50 frames down.
  std::vector<float> samples(20, 1.0f);
  samples.insert(samples.end(), 50, 0.0f);
  const std::vector<float> results = run_stage(smooth_stage({.attack_ms = 20, .release_ms = 50}), 1000, samples);
  EXPECT_NEAR(results[0], 1 - std::exp(-1.0 / 20), 1e-7);
  EXPECT_NEAR(results[19], 1 - std::exp(-1.0), 1e-7);
  EXPECT_NEAR(results[69], results[19] * std::exp(-1.0), 1e-7);
}

TEST(SmoothStage, FollowsAtOnceWithoutATime) {
  const std::vector<float> samples = {1, -2, 0.1f, 0.3f, 1e17f, 0.5f, -3e38f, 0.5f};
  EXPECT_EQ(run_stage(smooth_stage({.attack_ms = 0}), 1000, samples), samples);
}

TEST(SmoothStage, PassesWhatIsNotFiniteAndGoesOnAsIfItHadNotBeen) {
  const StageMaker smooth = smooth_stage({.attack_ms = 3});
  const std::vector<float> clean = run_stage(smooth, 1000, {1, 2, 3, 4});
  const std::vector<float> results = run_stage(smooth, 1000, {1, NAN, 2, INFINITY, 3, -INFINITY, 4});
  EXPECT_TRUE(std::isnan(results[1]));
  EXPECT_EQ(results[3], INFINITY);
  EXPECT_EQ(results[5], -INFINITY);
  EXPECT_EQ((std::vector<float>{results[0], results[2], results[4], results[6]}), clean);
}

TEST(SmoothStage, LeavesOtherChannelsAlone) {
  const StageFormat input{.streams = 2, .channels = 2, .rate_hz = 1000};
  const std::vector<float> results =
      run_stage(smooth_stage({.attack_ms = 5, .channel = "1"}), input, {1, 1, 7, 2}).results;
  EXPECT_EQ(results[0], 1);
  EXPECT_EQ(results[2], 7);
  EXPECT_LT(results[1], 0.5f);
  EXPECT_FLOAT_EQ(results[3], 2 * results[1]);
}

TEST(SmoothStage, DiesAwayToZeroAndNotToDenormals) {
  std::vector<float> samples(2000, 0.0f);
  samples[0] = 1;
  const std::vector<float> results = run_stage(smooth_stage({.attack_ms = 10}), 1000, samples);
  EXPECT_GT(results[500], 0);
  EXPECT_EQ(results[900], 0);  // 90 times the time: e^-90 < 1e-30
}

TEST(SmoothStage, RefusesTimesOutOfRange) {
  EXPECT_EQ(config_error([] { smooth_stage({.attack_ms = -1}); }),
            "attack_ms: expected milliseconds from 0 to 3600000, got -1");
  EXPECT_EQ(config_error([] { smooth_stage({.attack_ms = 1, .release_ms = 3.7e6}); }),
            "release_ms: expected milliseconds from 0 to 3600000, got 3700000");
}

}  // namespace
}  // namespace halotap::pipeline
