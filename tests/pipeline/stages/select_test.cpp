#include <gtest/gtest.h>

#include <utility>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

using test::config_error;
using test::run_stage;

TEST(SelectStage, TakesChannelsByNameAndNumberInTheOrderGiven) {
  const StageFormat input{
      .streams = 2, .channels = 3, .rate_hz = 10, .channel_names = {"left", "right", "0"}};  // the third is named "0"
  const test::StageRun run = run_stage(select_stage({.channels = {"2", "right", "0", "right"}}), input,
                                       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  EXPECT_EQ(run.results, (std::vector<float>{3, 2, 3, 2, 6, 5, 6, 5, 9, 8, 9, 8, 12, 11, 12, 11}));
  EXPECT_EQ(run.output.channel_names, (std::vector<std::string>{"0", "right", "0", "right"}));
  EXPECT_EQ(run.output.channels, 4);
  EXPECT_EQ(run.output.latency_frames, 0);
}

TEST(SelectStage, GivesNoNamesWhereThereAreNone) {
  EXPECT_TRUE(
      run_stage(select_stage({.channels = {"1"}}), {.channels = 2, .rate_hz = 1}, {}).output.channel_names.empty());
}

TEST(SelectStage, RefusesChannelsThatAreNotThere) {
  const auto refused = [](const std::string& channel, std::vector<std::string> names) {
    return config_error([&] {
      select_stage({.channels = {channel}})()->prepare(
          {.channels = 2, .rate_hz = 1, .channel_names = std::move(names)});
    });
  };
  EXPECT_EQ(refused("lft", {"left", "right"}),
            "channels: expected one of 'left', 'right' or a number from 0 to 1, got 'lft'");
  EXPECT_EQ(refused("2", {}), "channels: expected a number from 0 to 1, got '2'");
  EXPECT_EQ(refused("-1", {}), "channels: expected a number from 0 to 1, got '-1'");
  EXPECT_EQ(refused("1x", {}), "channels: expected a number from 0 to 1, got '1x'");
  EXPECT_EQ(config_error([] { select_stage({}); }), "channels: expected 1 to 65536 channels, got 0");
}

}  // namespace
}  // namespace halotap::pipeline
