#include <gtest/gtest.h>

#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

using test::config_error;
using test::run_stage;

TEST(LogStage, GivesDecibelsNaturalOrDecimalLogarithms) {
  const std::vector<float> samples = {1, 10, -100};
  EXPECT_EQ(run_stage(log_stage({}), 1, samples), (std::vector<float>{0, 20, 40}));
  EXPECT_EQ(run_stage(log_stage({.unit = LogUnit::kDecade}), 1, samples), (std::vector<float>{0, 1, 2}));
  EXPECT_FLOAT_EQ(run_stage(log_stage({.unit = LogUnit::kNatural}), 1, {std::exp(2.0f)})[0], 2);
}

TEST(LogStage, HoldsSmallSamplesAtItsFloor) {
  EXPECT_EQ(run_stage(log_stage({}), 1, {0, 1e-7f}), (std::vector<float>{-120, -120}));
  EXPECT_EQ(run_stage(log_stage({.unit = LogUnit::kDecade, .floor = 0.01}), 1, {0, -0.001f, 0.1f}),
            (std::vector<float>{-2, -2, -1}));
}

TEST(LogStage, KeepsNaNWhereItIs) {
  const std::vector<float> results = run_stage(log_stage({}), 1, {NAN, INFINITY, 1});
  EXPECT_TRUE(std::isnan(results[0]));
  EXPECT_EQ(results[1], INFINITY);
  EXPECT_EQ(results[2], 0);
}

TEST(LogStage, ChangesTheChannelChosen) {
  EXPECT_EQ(run_stage(log_stage({.channel = "1"}), {.channels = 2, .rate_hz = 1}, {10, 10}).results,
            (std::vector<float>{10, 20}));
}

TEST(LogStage, RefusesAFloorOutOfRange) {
  EXPECT_EQ(config_error([] { log_stage({.floor = 0}); }), "floor: expected a number above 0 and at most 1e+30, got 0");
  EXPECT_EQ(config_error([] { log_stage({.floor = NAN}); }),
            "floor: expected a number above 0 and at most 1e+30, got nan");
}

}  // namespace
}  // namespace halotap::pipeline
