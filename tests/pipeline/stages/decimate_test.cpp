#include <gtest/gtest.h>

#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

using test::config_error;
using test::run_stage;

TEST(DecimateStage, KeepsMeanGreatestOrLastOfEveryWindow) {
  const std::vector<float> samples = {1, 5, 3, -4, -1, -4};
  EXPECT_EQ(run_stage(decimate_stage({.factor = 3}), 1, samples), (std::vector<float>{3, -3}));
  EXPECT_EQ(run_stage(decimate_stage({.factor = 3, .keep = Keep::kMax}), 1, samples), (std::vector<float>{5, -1}));
  EXPECT_EQ(run_stage(decimate_stage({.factor = 3, .keep = Keep::kLast}), 1, samples), (std::vector<float>{3, -4}));
  EXPECT_EQ(run_stage(decimate_stage({.factor = 1}), 1, samples), samples);
}

TEST(DecimateStage, EndsWithAWindowOfWhatIsLeft) {
  EXPECT_EQ(run_stage(decimate_stage({.factor = 4}), 1, {1, 1, 1, 1, 2, 4}), (std::vector<float>{1, 3}));
  EXPECT_EQ(run_stage(decimate_stage({.factor = 4, .keep = Keep::kLast}), 1, {1}), std::vector<float>{1});
}

TEST(DecimateStage, TakesEverySampleOfAFrameByItself) {
  const StageFormat input{.streams = 2, .channels = 2, .rate_hz = 1, .channel_names = {"a", "b"}};
  const test::StageRun run = run_stage(decimate_stage({.factor = 2}), input, {1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(run.results, (std::vector<float>{3, 4, 5, 6}));
  EXPECT_EQ(run.output.channel_names, input.channel_names);
  EXPECT_EQ(run.output.frames_merged, 2);
  EXPECT_EQ(run.output.latency_frames, 1);
}

TEST(DecimateStage, KeepsANaNInItsWindow) {
  for (const Keep keep : {Keep::kMean, Keep::kMax}) {
    for (const std::vector<float>& window : {std::vector<float>{NAN, 1}, {1, NAN}}) {
      const std::vector<float> results =
          run_stage(decimate_stage({.factor = 2, .keep = keep}), 1, {window[0], window[1], 2, 2});
      EXPECT_TRUE(std::isnan(results[0])) << to_string(keep);
      EXPECT_EQ(results[1], 2) << to_string(keep);
    }
  }
}

TEST(DecimateStage, SaysWhichFactorGivesALatency) {
  const LatencyKey key = decimate_stage({.factor = 7})()->prepare({.channels = 1, .rate_hz = 48000}).latency_key;
  EXPECT_EQ(key.name, "factor");
  for (const std::int64_t frames : {0, 1, 100}) {
    EXPECT_EQ(
        test::latency_for(key, frames,
                          [](double value) { return decimate_stage({.factor = static_cast<std::int64_t>(value)}); }),
        frames);
  }
}

TEST(DecimateStage, RefusesFactorsOutOfRange) {
  EXPECT_EQ(config_error([] { decimate_stage({}); }), "factor: expected an integer from 1 to 1073741824, got 0");
}

}  // namespace
}  // namespace halotap::pipeline
