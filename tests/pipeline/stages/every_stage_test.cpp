// What holds for every stage that comes with halotap.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <ostream>
#include <tuple>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/stages/run_stage.hpp"
#include "random_stack.hpp"

namespace halotap::pipeline {

// Its bytes, which would be shown otherwise, hold addresses that differ from run to run.
static std::ostream& operator<<(std::ostream& out, const StageEntry& entry) { return out << entry.name; }

namespace {

using test::run_stage;

struct EveryStage : testing::TestWithParam<StageEntry> {
  static constexpr std::int64_t kChannels = 5;
  static constexpr std::int64_t kFrames = 200;

  static StageFormat input(std::int64_t streams) {
    return {.streams = streams, .channels = kChannels, .rate_hz = 1000};
  }
  // [frames, streams, channels], of which stream 1 has a NaN and an Inf early on.
  static std::vector<float> signal(std::int64_t streams, bool spoilt) {
    test::Random random(3);
    std::vector<float> samples = test::draw_signal(random, kFrames * streams * kChannels);
    if (spoilt) {
      for (std::int64_t channel = 0; channel < kChannels; ++channel) {
        samples[static_cast<std::size_t>((20 * streams + 1) * kChannels + channel)] = NAN;
        samples[static_cast<std::size_t>((21 * streams + 1) * kChannels + channel)] =
            channel % 2 ? INFINITY : -INFINITY;
      }
    }
    return samples;
  }
  // One of `streams` in a frame's samples, by frames of `channels`.
  static std::vector<float> stream_of(const std::vector<float>& samples, std::int64_t stream, std::int64_t streams,
                                      std::int64_t channels) {
    std::vector<float> own;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      if (static_cast<std::int64_t>(i) / channels % streams == stream) own.push_back(samples[i]);
    }
    return own;
  }
  static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
};

TEST_P(EveryStage, GivesAStreamTheSameBitsAloneAndBesideASpoiltOne) {
  constexpr std::int64_t kStreams = 3;
  const std::vector<float> samples = signal(kStreams, true);
  const test::StageRun together = run_stage(GetParam().make, input(kStreams), samples);
  for (std::int64_t stream = 0; stream < kStreams; ++stream) {
    const test::StageRun alone = run_stage(GetParam().make, input(1), stream_of(samples, stream, kStreams, kChannels));
    EXPECT_TRUE(same_bits(stream_of(together.results, stream, kStreams, together.output.channels), alone.results))
        << stream;
    std::vector<std::tuple<std::string_view, std::int64_t, std::int64_t>> events[2];
    for (const StageEvent& event : alone.events) events[0].emplace_back(event.name, event.channel, event.frame);
    for (const StageEvent& event : together.events) {
      if (event.stream == stream) events[1].emplace_back(event.name, event.channel, event.frame);
    }
    EXPECT_EQ(events[0], events[1]);
  }
}

TEST_P(EveryStage, IsCleanAgainAfterNaNAndInf) {
  const test::StageRun run = run_stage(GetParam().make, input(2), signal(2, true));
  // Frame 22 is the first clean one; a window that holds it and those before it ends 20 frames later at most.
  const auto first = static_cast<std::size_t>(40 / run.output.frames_merged * 2 * run.output.channels);
  ASSERT_LT(first, run.results.size());
  for (std::size_t i = first; i < run.results.size(); ++i) ASSERT_TRUE(std::isfinite(run.results[i])) << i;
}

TEST_P(EveryStage, IsAsNewAfterAReset) {
  const auto stage = GetParam().make();
  test::StageRun runs[2];
  runs[0].output = runs[1].output = stage->prepare(input(2));
  EventList events(1000);
  std::vector<float> result(static_cast<std::size_t>(2 * kChannels));
  for (test::StageRun& run : runs) {
    test::feed(*stage, input(2), signal(2, false), run);
    // So that the reset comes in the middle of something.
    const std::vector<float> more(static_cast<std::size_t>(2 * kChannels), 3.0f);
    for (int i = 0; i < 7; ++i) stage->process(more.data(), result.data(), events);
    stage->reset();
  }
  EXPECT_TRUE(same_bits(runs[0].results, runs[1].results));
  ASSERT_EQ(runs[0].events.size(), runs[1].events.size());
  for (std::size_t i = 0; i < runs[0].events.size(); ++i) EXPECT_EQ(runs[0].events[i].frame, runs[1].events[i].frame);
  EXPECT_FALSE(stage->flush(result.data(), events));
}

TEST_P(EveryStage, GivesAFrameForEveryFullOrLastWindowAndAnnouncesItsEvents) {
  const test::StageRun run = run_stage(GetParam().make, input(2), signal(2, false));
  const std::int64_t merged = run.output.frames_merged;
  EXPECT_EQ(std::ssize(run.results), (kFrames + merged - 1) / merged * 2 * run.output.channels);
  EXPECT_LE(std::ssize(run.events), kFrames * run.output.events_a_frame);
}

std::vector<StageEntry> every_stage() {
  return {{"select", select_stage({.channels = {"4", "1"}})},
          {"affine", affine_stage({.gain = 0.3, .offset = 0.7})},
          {"smooth", smooth_stage({.attack_ms = 3, .release_ms = 9})},
          {"threshold", threshold_stage({.on = 0.8, .off = 0.1, .min_on_ms = 2, .min_off_ms = 3})},
          {"argmax", argmax_stage()},
          {"decimate_mean", decimate_stage({.factor = 7})},
          {"decimate_max", decimate_stage({.factor = 7, .keep = Keep::kMax})},
          {"decimate_last", decimate_stage({.factor = 7, .keep = Keep::kLast})},
          {"rms", rms_stage({.window_ms = 20})},
          {"log", log_stage({})}};
}

INSTANTIATE_TEST_SUITE_P(BuiltIn, EveryStage, testing::ValuesIn(every_stage()),
                         [](const auto& stage) { return stage.param.name; });

}  // namespace
}  // namespace halotap::pipeline
