// Stages behind an engine, seen through the pipeline.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "halotap/pipeline/built_in_stages.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "pipeline/stages/run_stage.hpp"
#include "pipeline/test_model.hpp"

namespace halotap::pipeline {
namespace {

using test::config_error;
using test::draw;
using test::draw_signal;
using test::lookahead_model;
using test::Random;

// Holds back its last `held` frames, as a filter that looks ahead does, and doubles them.
class HoldBack final : public Stage {
 public:
  explicit HoldBack(std::int64_t held) : held_(held) {}
  StageOutput prepare(const StageFormat& input) override {
    samples_ = static_cast<std::size_t>(input.frame_samples());
    frames_.resize(samples_ * static_cast<std::size_t>(held_));
    return {.channels = input.channels, .channel_names = input.channel_names, .latency_frames = held_};
  }
  bool process(const float* frame, float* result, EventList&) noexcept HALOTAP_NONBLOCKING override {
    const bool full = received_ >= held_;
    float* const slot = frames_.data() + static_cast<std::size_t>(received_ % held_) * samples_;
    for (std::size_t i = 0; i < samples_; ++i) {
      result[i] = slot[i];
      slot[i] = 2 * frame[i];
    }
    ++received_;
    return full;
  }
  bool flush(float* result, EventList& events) noexcept HALOTAP_NONBLOCKING override {
    if (flushed_ == std::min(held_, received_)) return false;
    const std::int64_t oldest = std::max(received_ - held_, std::int64_t{0});
    const auto slot = static_cast<std::size_t>((oldest + flushed_++) % held_);
    for (std::size_t i = 0; i < samples_; ++i) result[i] = frames_[slot * samples_ + i];
    events.add("flushed", 0, 0, oldest + flushed_ - 1);
    return true;
  }
  void reset() noexcept HALOTAP_NONBLOCKING override { received_ = flushed_ = 0; }

 private:
  std::int64_t held_;
  std::size_t samples_ = 0;
  std::vector<float> frames_;
  std::int64_t received_ = 0;
  std::int64_t flushed_ = 0;
};

StageEntry hold_back(std::int64_t held) {
  return {"hold_back", [held] { return std::make_unique<HoldBack>(held); }};
}

// Announces no event, and has one at every frame.
class Chatter final : public Stage {
 public:
  StageOutput prepare(const StageFormat& input) override { return {.channels = input.channels}; }
  bool process(const float*, float*, EventList& events) noexcept HALOTAP_NONBLOCKING override {
    events.add("again", 0, 0, 0);
    return true;
  }
  void reset() noexcept HALOTAP_NONBLOCKING override {}
};

struct Heard {
  std::vector<float> results;
  // What an event says, and how many frames came out before it.
  std::vector<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t, std::int64_t, double, std::int64_t>>
      events;

  void take(const Pipeline& pipeline, const Pipeline::Step& step) {
    const std::int64_t frame_samples = pipeline.output().frame_samples();
    const std::int64_t before = std::ssize(results) / frame_samples;
    for (const StageEvent& event : step.events) {
      events.emplace_back(std::string(event.name) + " " + std::string(event.channel_name), event.stage, event.stream,
                          event.channel, event.frame, event.time_s, before + event.frames_before);
    }
    results.insert(results.end(), step.samples, step.samples + step.frames_out * frame_samples);
  }
};

// `input` through the pipeline in blocks drawn from `random`, to its end.
Heard heard(Pipeline& pipeline, const std::vector<float>& input, std::int64_t frames, Random& random) {
  Heard heard;
  const std::int64_t frame_samples = std::ssize(input) / std::max<std::int64_t>(frames, 1);
  for (std::int64_t given = 0; given < frames;) {
    const std::int64_t block = std::min({frames - given, draw(random, 1, 100), pipeline.writable_frames()});
    EXPECT_EQ(pipeline.push(input.data() + given * frame_samples, block), block);
    given += block;
    for (auto step = pipeline.step(); step.frames_in > 0; step = pipeline.step()) heard.take(pipeline, step);
  }
  for (;;) {
    const Pipeline::Step step = pipeline.drain();
    heard.take(pipeline, step);
    if (step.frames_in == 0 && step.frames_out == 0) return heard;
  }
}

std::vector<StageEntry> long_chain() {
  return {{"select", select_stage({.channels = {"1", "0", "1"}})},
          {"smooth", smooth_stage({.attack_ms = 2, .release_ms = 5})},
          {"threshold", threshold_stage({.on = 0.4, .off = 0.2, .min_on_ms = 2, .channel = "2"})},
          {"decimate", decimate_stage({.factor = 3})},
          hold_back(4),
          {"threshold", threshold_stage({.on = 0.3, .channel = "1"})},
          {"rms", rms_stage({.window_ms = 6})},
          {"log", log_stage({.channel = "0"})},
          {"affine", affine_stage({.gain = 3, .offset = 1})}};
}

TEST(StageChain, GivesTheSameBitsAndEventsForEveryPartition) {
  Random random(8);
  Model model = lookahead_model(1);
  model.output_channels = {"quiet", "loud"};
  constexpr std::int64_t kStreams = 2;
  constexpr std::int64_t kFrames = 400;
  const std::vector<float> input = draw_signal(random, kFrames * kStreams * 3);
  Heard expected;
  for (int i = 0; i < 40; ++i) {
    PipelineSpec spec{.streams = kStreams, .ring_capacity_frames = draw(random, 1, 200), .stages = long_chain()};
    spec.chunks.max_frames = i == 1 ? 1 : draw(random, 1, 90);
    if (test::toss(random)) spec.chunks.seed = static_cast<std::uint64_t>(i);
    Pipeline pipeline(model, spec);
    const Heard got = heard(pipeline, input, kFrames, random);
    if (i == 0) {
      expected = got;
      ASSERT_EQ(std::ssize(expected.results), pipeline.output_frames(kFrames) * kStreams * 3);
      ASSERT_GT(expected.events.size(), 20u);
    }
    ASSERT_EQ(got.results.size(), expected.results.size());
    ASSERT_EQ(std::memcmp(got.results.data(), expected.results.data(), got.results.size() * sizeof(float)), 0) << i;
    ASSERT_EQ(got.events, expected.events) << i;
  }
}

TEST(StageChain, FeedsEachStageWithTheOneBefore) {
  Random random(9);
  const std::vector<float> input = draw_signal(random, 50 * 3);
  Pipeline bare(lookahead_model(1), {});
  const std::vector<float> results = heard(bare, input, 50, random).results;
  Pipeline staged(lookahead_model(1), {.stages = {{"affine", affine_stage({.gain = 2})},
                                                  {"affine", affine_stage({.offset = 1, .channel = "0"})}}});
  std::vector<float> expected;
  for (std::size_t i = 0; i < results.size(); ++i) expected.push_back(2 * results[i] + (i % 2 == 0 ? 1.0f : 0.0f));
  EXPECT_EQ(heard(staged, input, 50, random).results, expected);
}

std::vector<std::int64_t> frames_of(const std::vector<LatencyTerm>& terms) {
  std::vector<std::int64_t> frames;
  for (const LatencyTerm& term : terms) frames.push_back(term.frames);
  return frames;
}

TEST(StageChain, SaysWhatComesOutOfTheLastStage) {
  Model model = lookahead_model(1);
  model.output_channels = {"a", "b"};
  const Pipeline bare(model, {.streams = 2});
  EXPECT_EQ(bare.output().streams, 2);
  EXPECT_EQ(bare.output().channels, 2);
  EXPECT_EQ(bare.output().rate_hz, 1000);
  EXPECT_EQ(bare.output().channel_names, model.output_channels);
  EXPECT_EQ(frames_of(bare.latency()), (std::vector<std::int64_t>{63, 3}));
  EXPECT_EQ(bare.output_frames(7), 7);
  EXPECT_FALSE(bare.has_events());

  const Pipeline staged(model, {.stages = {{"decimate", decimate_stage({.factor = 10})},
                                           {"threshold", threshold_stage({.on = 1, .min_on_ms = 50})},
                                           {"decimate", decimate_stage({.factor = 4})},
                                           {"argmax", argmax_stage()}}});
  EXPECT_EQ(staged.output().channels, 1);
  EXPECT_EQ(staged.output().rate_hz, 25);
  EXPECT_EQ(staged.output().channel_names, std::vector<std::string>{"argmax"});
  // Lookahead 3, a window of 10, 4 frames of 10, a window of 4 frames of 10.
  EXPECT_EQ(frames_of(staged.latency()), (std::vector<std::int64_t>{63, 3, 9, 40, 30, 0}));
  const LatencyKey& merged_key = staged.latency()[4].key;
  EXPECT_EQ(merged_key.name, "stages.2.factor");
  EXPECT_EQ(merged_key.step_frames, 10);
  EXPECT_TRUE(staged.latency()[4].sets_rate);
  EXPECT_FALSE(staged.latency()[3].sets_rate);
  EXPECT_EQ(staged.latency()[5].place, "stage 3 (argmax)");
  EXPECT_EQ(staged.output_frames(80), 2);
  EXPECT_EQ(staged.output_frames(81), 3);
  EXPECT_TRUE(staged.has_events());
  EXPECT_EQ(staged.stages(), 4u);
}

TEST(StageChain, AccountsForEveryFrameOfEveryStageAtEveryStep) {
  const Model model = lookahead_model(1);
  Pipeline pipeline(model, {.chunks = {.max_frames = 7}, .stages = long_chain()});
  const auto expect_balance = [&] {
    for (std::size_t i = 0; i < pipeline.stages(); ++i) {
      const StageCounters counters = pipeline.stage_counters(i);
      ASSERT_EQ(counters.frames_in,
                counters.frames_out + counters.frames_merged + counters.frames_discarded + counters.frames_in_flight)
          << i;
      if (i > 0) {
        ASSERT_EQ(counters.frames_in, pipeline.stage_counters(i - 1).frames_out) << i;
      }
    }
  };
  const std::vector<float> input(3 * 1000, 0.5f);
  for (const std::int64_t frames : {100, 0, 1, 333}) {
    ASSERT_EQ(pipeline.push(input.data(), frames), frames);
    const std::uint64_t before = pipeline.stage_counters(8).frames_out;
    for (auto step = pipeline.step(); step.frames_in > 0; step = pipeline.step()) expect_balance();
    for (auto step = pipeline.drain(); step.frames_in + step.frames_out > 0; step = pipeline.drain()) expect_balance();
    expect_balance();
    EXPECT_EQ(pipeline.stage_counters(8).frames_out - before,
              static_cast<std::uint64_t>(pipeline.output_frames(frames)));
  }
  const StageCounters decimate = pipeline.stage_counters(3);
  EXPECT_EQ(decimate.frames_in, 434u);
  EXPECT_EQ(decimate.frames_out, 34u + 1 + 111);
  EXPECT_EQ(decimate.frames_merged, 434u - 146);
  EXPECT_EQ(decimate.frames_discarded, 0u);
  EXPECT_EQ(decimate.frames_in_flight, 0u);
}

// A stage that loses frames does not do so in silence.
class Swallow final : public Stage {
 public:
  StageOutput prepare(const StageFormat& input) override { return {.channels = input.channels}; }
  bool process(const float*, float*, EventList&) noexcept HALOTAP_NONBLOCKING override { return ++frames_ > 5; }
  void reset() noexcept HALOTAP_NONBLOCKING override { frames_ = 0; }

 private:
  int frames_ = 0;
};

TEST(StageChain, CountsFramesThatAStageNeverGivesBack) {
  Random random(1);
  Pipeline pipeline(lookahead_model(1), {.stages = {{"swallow", [] { return std::make_unique<Swallow>(); }}}});
  heard(pipeline, std::vector<float>(3 * 20), 20, random);
  EXPECT_EQ(pipeline.stage_counters(0).frames_out, 15u);
  EXPECT_EQ(pipeline.stage_counters(0).frames_discarded, 5u);
  EXPECT_EQ(pipeline.stage_counters(0).frames_in_flight, 0u);
}

TEST(StageChain, EndsExactlyHoweverMuchAStageHoldsBack) {
  Random random(10);
  for (const std::int64_t frames : {0, 1, 3, 99, 100, 101, 250}) {
    const std::vector<float> input = draw_signal(random, frames * 3);
    Pipeline bare(lookahead_model(1), {.chunks = {.max_frames = 4}});
    std::vector<float> expected = heard(bare, input, frames, random).results;
    for (float& sample : expected) sample *= 4;
    // What they hold is more than a step has room for.
    Pipeline staged(lookahead_model(1), {.chunks = {.max_frames = 4}, .stages = {hold_back(100), hold_back(30)}});
    for (int recording = 0; recording < 2; ++recording) {
      const Heard got = heard(staged, input, frames, random);
      EXPECT_EQ(got.results, expected) << frames;
    }
  }
}

TEST(StageChain, TakesThePlaceOfAnEventFromTheFramesAroundIt) {
  Random random(1);
  // 3 channels in, none of them changed: the model is the identity but for its lookahead.
  Pipeline pipeline(lookahead_model(1),
                    {.chunks = {.max_frames = 50},
                     .stages = {{"affine", affine_stage({.gain = 0, .offset = 1})},
                                {"decimate", decimate_stage({.factor = 4})},
                                {"threshold", threshold_stage({.on = 1, .min_on_ms = 9, .channel = "1"})}}});
  const Heard got = heard(pipeline, std::vector<float>(3 * 50), 50, random);
  ASSERT_EQ(got.events.size(), 1u);
  // 9 ms are 3 frames at 250 Hz: two come out as 0, and before the third there is the event.
  EXPECT_EQ(got.events[0], std::tuple("on ", 2, 0, 1, 0, 0.0, 2));
  EXPECT_EQ(got.results[3], 0);
  EXPECT_EQ(got.results[5], 1);
}

// As behind a gap of a live source: results go on, and so do the numbers of the frames that events bear.
TEST(StageChain, CountsFramesOfEventsOnBehindAnEnd) {
  Random random(2);
  Pipeline pipeline(lookahead_model(1), {.chunks = {.max_frames = 50},
                                         .stages = {{"affine", affine_stage({.gain = 0, .offset = 1})},
                                                    {"decimate", decimate_stage({.factor = 4})},
                                                    {"threshold", threshold_stage({.on = 1, .channel = "1"})}}});
  for (const std::int64_t frame : {0, 13, 26}) {
    const Heard got = heard(pipeline, std::vector<float>(3 * 50), 50, random);
    ASSERT_EQ(got.events.size(), 1u);
    EXPECT_EQ(std::get<4>(got.events[0]), frame);
    EXPECT_EQ(std::get<5>(got.events[0]), static_cast<double>(frame) / 250);
    EXPECT_EQ(std::ssize(got.results), 2 * 13);
  }
}

TEST(StageChain, DropsAndCountsEventsThatNoStageAnnounced) {
  Random random(1);
  Pipeline pipeline(lookahead_model(1), {.stages = {{"chatter", [] { return std::make_unique<Chatter>(); }}}});
  EXPECT_TRUE(heard(pipeline, std::vector<float>(3 * 20), 20, random).events.empty());
  EXPECT_EQ(pipeline.stage_counters(0).events, 0u);
  EXPECT_EQ(pipeline.stage_counters(0).events_dropped, 20u);
}

TEST(StageChain, KeepsANaNOutOfWhatFollows) {
  Random random(11);
  const Model model = lookahead_model(1);
  const std::int64_t frames = 600;
  std::vector<float> input = draw_signal(random, frames * 3);
  const auto chain = long_chain();
  Pipeline pipeline(model, {.stages = chain});
  const std::vector<float> clean = heard(pipeline, input, frames, random).results;
  input[3 * 20] = NAN;
  const std::vector<float> spoilt = heard(pipeline, input, frames, random).results;
  ASSERT_EQ(clean.size(), spoilt.size());
  const auto bad = std::count_if(spoilt.begin(), spoilt.end(), [](float sample) { return std::isnan(sample); });
  EXPECT_GT(bad, 0);
  // Receptive field of 7 frames, then windows of 3 and of 2: 4 frames at most, 3 channels each.
  EXPECT_LE(bad, 12);
  for (std::size_t i = spoilt.size() / 2; i < spoilt.size(); ++i) EXPECT_NEAR(spoilt[i], clean[i], 1e-4);
}

TEST(StageChain, NamesTheStageThatRefuses) {
  const auto refused = [](StageEntry entry) {
    return config_error([&] { Pipeline(lookahead_model(1), {.stages = {{"argmax", argmax_stage()}, entry}}); });
  };
  EXPECT_EQ(refused({"affine", affine_stage({.gain = 2, .channel = "speech"})}),
            "stage 1 (affine): channel: expected one of 'argmax' or a number from 0 to 0, got 'speech'");
  EXPECT_EQ(refused({"affine", affine_stage({.gain = 2, .channel = "1"}), "p.yaml:5:3: key 'stages.1'"}),
            "p.yaml:5:3: key 'stages.1': channel: expected one of 'argmax' or a number from 0 to 0, got '1'");
  EXPECT_EQ(refused({"mine", []() -> std::unique_ptr<Stage> { throw ConfigError("not today"); }}),
            "stage 1 (mine): not today");
}

class Wrong final : public Stage {
 public:
  explicit Wrong(StageOutput output) : output_(std::move(output)) {}
  StageOutput prepare(const StageFormat&) override { return output_; }
  bool process(const float*, float*, EventList&) noexcept HALOTAP_NONBLOCKING override { return true; }
  void reset() noexcept HALOTAP_NONBLOCKING override {}

 private:
  StageOutput output_;
};

TEST(StageChain, RefusesAStageThatAnnouncesNonsense) {
  const auto refused = [](const StageOutput& output) {
    return config_error([&] {
      Pipeline(lookahead_model(1), {.stages = {{"", [&] { return std::make_unique<Wrong>(output); }}}});
    });
  };
  EXPECT_EQ(refused({.channels = 0}), "stage 0: expected to give 1 to 65536 channels, got 0");
  EXPECT_EQ(refused({.channels = 2, .channel_names = {"a"}}),
            "stage 0: expected no channel names or one for each of 2 channels, got 1");
  EXPECT_EQ(refused({.channels = 2, .frames_merged = 0}),
            "stage 0: expected to merge 1 to 1099511627776 frames, got 0");
  EXPECT_EQ(refused({.channels = 2, .latency_key = {"x", 0, 1, 0}}),
            "stage 0: expected a latency key with steps of 1 to 4503599627370496 frames, got 0");
  EXPECT_EQ(refused({.channels = 2, .latency_frames = -1}),
            "stage 0: expected a latency from 0 to 4503599627370496 frames and 0 events a frame or more, got -1 and 0");
}

TEST(StageChain, RefusesMoreThanCanBeCounted) {
  const StageEntry decimate{"decimate", decimate_stage({.factor = kMaxDecimation})};
  EXPECT_EQ(config_error([&] {
              Pipeline(lookahead_model(1), {.stages = {decimate, decimate}});
            }),
            "stage 1 (decimate): expected to merge 1 to 1024 frames, got 1073741824");
  const StageOutput chatty{.channels = 2, .events_a_frame = std::int64_t{1} << 40};
  EXPECT_EQ(config_error([&] {
              Pipeline(lookahead_model(1), {.stages = {{"", [&] { return std::make_unique<Wrong>(chatty); }}}});
            }),
            "the stages' results and events for 64 frames do not fit in memory");
}

TEST(StageChain, RefusesAMakerThatGivesNoStage) {
  for (const StageMaker& make : {StageMaker(), StageMaker([] { return std::unique_ptr<Stage>(); })}) {
    EXPECT_EQ(config_error([&] {
                Pipeline(lookahead_model(1), {.stages = {{"mine", make}}});
              }),
              "stage 0 (mine): expected a maker that gives a stage, got none");
  }
}

TEST(StageChain, RefusesStagesBehindAModelWithoutARate) {
  Model model = lookahead_model(1);
  model.frame_rate_hz = 0;
  EXPECT_EQ(config_error([&] {
              Pipeline(model, {.stages = {{"argmax", argmax_stage()}}});
            }),
            "the model: expected a frame rate, which its stages need, got none");
  Pipeline(model, {});
}

}  // namespace
}  // namespace halotap::pipeline
