#include <gtest/gtest.h>

#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

using test::config_error;
using test::run_stage;

TEST(AffineStage, ScalesThenShiftsEveryChannel) {
  const StageFormat input{.channels = 2, .rate_hz = 10, .channel_names = {"a", "b"}};
  const test::StageRun run = run_stage(affine_stage({.gain = 2, .offset = -0.5}), input, {1, 2, -3, 0.25});
  EXPECT_EQ(run.results, (std::vector<float>{1.5, 3.5, -6.5, 0}));
  EXPECT_EQ(run.output.channel_names, input.channel_names);
  EXPECT_EQ(run.output.latency_frames, 0);
}

TEST(AffineStage, ChangesTheChannelChosenInEveryStream) {
  const StageFormat input{.streams = 2, .channels = 2, .rate_hz = 10, .channel_names = {"a", "b"}};
  const std::vector<float> expected = {1, 20, 3, 40};
  EXPECT_EQ(run_stage(affine_stage({.gain = 10, .channel = "b"}), input, {1, 2, 3, 4}).results, expected);
  EXPECT_EQ(run_stage(affine_stage({.gain = 10, .channel = "1"}), input, {1, 2, 3, 4}).results, expected);
}

TEST(AffineStage, RoundsOnce) {
  // In float32 the product is rounded before 1 is taken away.
  const float third = 1.0f / 3.0f;
  EXPECT_EQ(run_stage(affine_stage({.gain = 3, .offset = -1}), 1, {third})[0],
            static_cast<float>(3.0 * static_cast<double>(third) - 1));
}

TEST(AffineStage, RefusesFiguresThatAreNotFinite) {
  EXPECT_EQ(config_error([] { affine_stage({.gain = NAN}); }), "gain: expected a finite float32 number, got nan");
  EXPECT_EQ(config_error([] { affine_stage({.offset = -1e39}); }),
            "offset: expected a finite float32 number, got -1e+39");
  EXPECT_EQ(config_error([] { affine_stage({.channel = "x"})()->prepare({.channels = 1, .rate_hz = 1}); }),
            "channel: expected a number from 0 to 0, got 'x'");
}

}  // namespace
}  // namespace halotap::pipeline
