#include <gtest/gtest.h>

#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

TEST(ArgmaxStage, GivesTheNumberOfTheGreatestChannelOfEveryStream) {
  const StageFormat input{.streams = 2, .channels = 3, .rate_hz = 1, .channel_names = {"a", "b", "c"}};
  const test::StageRun run = test::run_stage(argmax_stage(), input, {1, 3, 2, -1, -3, -2, 0, 5, 5, 7, 0, 7});
  EXPECT_EQ(run.results, (std::vector<float>{1, 0, 1, 0}));  // the first of equals
  EXPECT_EQ(run.output.channels, 1);
  EXPECT_EQ(run.output.channel_names, std::vector<std::string>{"argmax"});
}

TEST(ArgmaxStage, PassesOverNaN) {
  const StageFormat input{.channels = 3, .rate_hz = 1};
  const std::vector<float> results =
      test::run_stage(argmax_stage(), input, {NAN, 3, 4, NAN, NAN, NAN, 2, -INFINITY, 1, 1, INFINITY, NAN}).results;
  EXPECT_EQ(results[0], 2);
  EXPECT_TRUE(std::isnan(results[1]));
  EXPECT_EQ(results[2], 0);
  EXPECT_EQ(results[3], 1);
}

}  // namespace
}  // namespace halotap::pipeline
