#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

using test::config_error;
using test::run_stage;

// "on 3" for every event.
std::vector<std::string> told(const test::StageRun& run) {
  std::vector<std::string> texts;
  for (const StageEvent& event : run.events)
    texts.push_back(std::string(event.name) + " " + std::to_string(event.frame));
  return texts;
}

test::StageRun run_threshold(const ThresholdSpec& spec, const std::vector<float>& samples, double rate_hz = 1000) {
  return run_stage(threshold_stage(spec), {.channels = 1, .rate_hz = rate_hz}, samples);
}

TEST(ThresholdStage, SwitchesOnAtOneLevelAndOffBelowAnother) {
  const test::StageRun run = run_threshold({.on = 0.6, .off = 0.4}, {0.5f, 0.7f, 0.5f, 0.4f, 0.39f, 0.5f, 0.7f});
  EXPECT_EQ(run.results, (std::vector<float>{0, 1, 1, 1, 0, 0, 1}));
  EXPECT_EQ(told(run), (std::vector<std::string>{"on 1", "off 4", "on 6"}));
}

TEST(ThresholdStage, TakesOneLevelForBoth) {
  EXPECT_EQ(run_threshold({.on = 1}, {0, 1, 0.9f, 2}).results, (std::vector<float>{0, 1, 0, 1}));
}

TEST(ThresholdStage, WaitsUntilAChangeHasLasted) {
  const std::vector<float> samples = {1, 1, 0, 1, 1, 1, 1, 0, 1, 0, 0, 0};
  const test::StageRun run = run_threshold({.on = 1, .min_on_ms = 3, .min_off_ms = 2}, samples);
  EXPECT_EQ(run.results, (std::vector<float>{0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0}));
  // They bear the frame at which the change began.
  EXPECT_EQ(told(run), (std::vector<std::string>{"on 3", "off 9"}));
  EXPECT_EQ(run.output.latency_frames, 2);
}

TEST(ThresholdStage, CountsTheTimeBetweenTheLevelsWithTheStateThatLasts) {
  EXPECT_EQ(told(run_threshold({.on = 1, .off = 0, .min_on_ms = 3}, {1, 0.5f, 0.5f, 0.5f})),
            std::vector<std::string>{"on 0"});
}

TEST(ThresholdStage, SaysWhichTimesGiveALatency) {
  const auto key_of = [](double min_on_ms, double min_off_ms) {
    return threshold_stage({.on = 1, .min_on_ms = min_on_ms, .min_off_ms = min_off_ms})()
        ->prepare({.channels = 1, .rate_hz = 48000})
        .latency_key;
  };
  EXPECT_EQ(key_of(0, 0).name, "");
  EXPECT_EQ(key_of(20, 0).name, "min_on_ms");
  EXPECT_EQ(key_of(0, 20).name, "min_off_ms");
  EXPECT_EQ(key_of(20, 10).name, "min_on_ms and min_off_ms");
  for (const std::int64_t frames : {0, 1, 100}) {
    EXPECT_EQ(test::latency_for(
                  key_of(20, 10), frames,
                  [](double value) { return threshold_stage({.on = 1, .min_on_ms = value, .min_off_ms = value}); }),
              frames);
  }
}

TEST(ThresholdStage, RoundsTimesUpToWholeFrames) {
  const auto frames_until_on = [](double min_on_ms, double rate_hz) {
    const auto results =
        run_threshold({.on = 1, .min_on_ms = min_on_ms}, std::vector<float>(300, 1.0f), rate_hz).results;
    return std::find(results.begin(), results.end(), 1.0f) - results.begin() + 1;
  };
  EXPECT_EQ(frames_until_on(0, 1000), 1);
  EXPECT_EQ(frames_until_on(2.1, 1000), 3);
  EXPECT_EQ(frames_until_on(55, 48000.0 / 11), 240);  // a product that is 240 but for rounding
  EXPECT_EQ(frames_until_on(10, 8000), 80);
}

// 0.7 as a float32 lies below 0.7 as a double, 0.6 above it.
TEST(ThresholdStage, TakesLevelsAsSamplesAreStored) {
  const test::StageRun run = run_threshold({.on = 0.7, .off = 0.6}, {0.7f, 0.6f, std::nextafter(0.6f, 0.0f), 0.7f});
  EXPECT_EQ(run.results, (std::vector<float>{1, 1, 0, 1}));
}

TEST(ThresholdStage, StaysAsItIsAtANaN) {
  const test::StageRun run = run_threshold({.on = 0.6, .off = 0.4}, {NAN, 1, NAN, 0, NAN, INFINITY, -INFINITY});
  EXPECT_EQ(run.results, (std::vector<float>{0, 1, 1, 0, 0, 1, 0}));
}

TEST(ThresholdStage, TellsStreamAndChannelOfAnEvent) {
  const StageFormat input{.streams = 2, .channels = 3, .rate_hz = 1000, .channel_names = {"a", "b", "c"}};
  const test::StageRun run =
      run_stage(threshold_stage({.on = 1, .channel = "b"}), input, {5, 0, 5, 5, 1, 5, 5, 1, 5, 5, 1, 5});
  ASSERT_EQ(run.events.size(), 2u);
  EXPECT_EQ(run.events[0].stream, 1);
  EXPECT_EQ(run.events[0].channel, 1);
  EXPECT_EQ(run.events[0].frame, 0);
  EXPECT_EQ(run.events[1].stream, 0);
  EXPECT_EQ(run.events[1].frame, 1);
  EXPECT_EQ(run.results, (std::vector<float>{5, 0, 5, 5, 1, 5, 5, 1, 5, 5, 1, 5}));
}

TEST(ThresholdStage, RefusesLevelsAndTimesThatMakeNoSense) {
  EXPECT_EQ(config_error([] { threshold_stage({}); }), "on: expected a finite float32 number, got nan");
  EXPECT_EQ(config_error([] { threshold_stage({.on = 0.4, .off = 0.6}); }), "off: expected at most on, 0.4, got 0.6");
  EXPECT_EQ(config_error([] { threshold_stage({.on = 1, .min_off_ms = NAN}); }),
            "min_off_ms: expected milliseconds from 0 to 3600000, got nan");
}

}  // namespace
}  // namespace halotap::pipeline
