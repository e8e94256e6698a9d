#include "halotap/pipeline/pipeline.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "chunker.hpp"
#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/test_model.hpp"
#include "wound_clock.hpp"

namespace halotap::pipeline {
namespace {

using test::draw;
using test::draw_signal;
using test::lookahead_model;
using test::Random;

void append(std::vector<float>& output, const Pipeline::Step& step, std::int64_t frame_samples) {
  output.insert(output.end(), step.samples, step.samples + step.frames_out * frame_samples);
}

void drain(Pipeline& pipeline, std::vector<float>& output, std::int64_t frame_samples) {
  for (;;) {
    const Pipeline::Step step = pipeline.drain();
    if (step.frames_in == 0 && step.frames_out == 0) return;
    append(output, step, frame_samples);
  }
}

TEST(Chunker, RepeatsItsFixedLength) {
  Chunker chunker({.max_frames = 7});
  for (int i = 0; i < 5; ++i, chunker.take()) EXPECT_EQ(chunker.next_frames(), 7);
}

TEST(Chunker, DrawsEveryLengthUpToItsLongestFromTheSeed) {
  Chunker chunker({.max_frames = 5, .seed = 3});
  Chunker same({.max_frames = 5, .seed = 3});
  std::vector<int> seen(6);
  for (int i = 0; i < 200; ++i, chunker.take(), same.take()) {
    ASSERT_EQ(chunker.next_frames(), same.next_frames());
    ASSERT_GE(chunker.next_frames(), 1);
    ASSERT_LE(chunker.next_frames(), 5);
    ++seen[static_cast<std::size_t>(chunker.next_frames())];
  }
  for (int length = 1; length <= 5; ++length) EXPECT_GT(seen[static_cast<std::size_t>(length)], 0);
}

TEST(Pipeline, DatesEveryStep) {
  const test::WoundClock clock(std::chrono::nanoseconds(1));
  const std::vector<float> input(3 * 8, 0.5f);
  for (const bool staged : {false, true}) {
    PipelineSpec spec{.chunks = {.max_frames = 8}, .clock = &clock};
    if (staged) spec.stages = {{"affine", affine_stage({.gain = 2})}};
    Pipeline pipeline(lookahead_model(1), spec);
    pipeline.push(input.data(), 8);
    const Instant before = clock.now();
    const Pipeline::Step step = pipeline.step();
    EXPECT_EQ((step.begun - before).count(), 1);
    EXPECT_EQ((step.computed - step.begun).count(), 1);
    EXPECT_EQ((step.staged - step.computed).count(), staged ? 1 : 0);
  }
}

TEST(Pipeline, SaysHowManyFramesItsNextChunkLacks) {
  Pipeline pipeline(lookahead_model(1), {.chunks = {.max_frames = 8}});
  const std::vector<float> input(3 * 20, 0.5f);
  EXPECT_EQ(pipeline.missing_frames(), 8);
  pipeline.push(input.data(), 5);
  EXPECT_EQ(pipeline.missing_frames(), 3);
  pipeline.push(input.data(), 8);
  EXPECT_EQ(pipeline.missing_frames(), 0);
  EXPECT_EQ(pipeline.step().frames_in, 8);
  EXPECT_EQ(pipeline.missing_frames(), 3);
}

TEST(Pipeline, EmitsNothingUntilAChunkIsFull) {
  Pipeline pipeline(lookahead_model(1), {.chunks = {.max_frames = 8}});
  const std::vector<float> input(3 * 20, 0.5f);
  EXPECT_EQ(pipeline.push(input.data(), 7), 7);
  EXPECT_EQ(pipeline.step().frames_in, 0);
  EXPECT_EQ(pipeline.push(input.data(), 2), 2);
  const Pipeline::Step step = pipeline.step();
  EXPECT_EQ(step.frames_in, 8);
  EXPECT_EQ(step.frames_out, 5);
  EXPECT_EQ(pipeline.step().frames_in, 0);
}

TEST(Pipeline, GivesTheSameBitsForEveryScheduleAndBlockSize) {
  Random random(3);
  const Model model = test::draw_model(random);
  constexpr std::int64_t kStreams = 3;
  constexpr std::int64_t kFrames = 333;
  const std::int64_t frame_samples = kStreams * model.stack->in_channels();
  const std::int64_t out_samples = kStreams * model.stack->out_channels();
  const std::vector<float> input = draw_signal(random, kFrames * frame_samples);
  std::vector<float> expected;
  for (int i = 0; i < 40; ++i) {
    PipelineSpec spec{.streams = kStreams, .ring_capacity_frames = draw(random, 1, 200)};
    spec.chunks.max_frames = draw(random, 1, 90);
    if (test::toss(random)) spec.chunks.seed = static_cast<std::uint64_t>(i);
    Pipeline pipeline(model, spec);
    std::vector<float> output;
    for (std::int64_t given = 0; given < kFrames;) {
      const std::int64_t block = std::min({kFrames - given, draw(random, 1, 100), pipeline.writable_frames()});
      ASSERT_EQ(pipeline.push(input.data() + given * frame_samples, block), block);
      given += block;
      for (auto step = pipeline.step(); step.frames_in > 0; step = pipeline.step()) append(output, step, out_samples);
    }
    drain(pipeline, output, out_samples);
    ASSERT_EQ(output.size(), static_cast<std::size_t>(kFrames * out_samples));
    if (expected.empty()) expected = output;
    ASSERT_EQ(std::memcmp(output.data(), expected.data(), output.size() * sizeof(float)), 0) << "run " << i;
  }
}

TEST(Pipeline, IsAsNewAfterItWasDrained) {
  Pipeline pipeline(lookahead_model(1), {.chunks = {.max_frames = 8}});
  Random random(4);
  const std::vector<float> input = draw_signal(random, 3 * 30);
  std::vector<float> outputs[2];
  for (std::vector<float>& output : outputs) {
    ASSERT_EQ(pipeline.push(input.data(), 30), 30);
    drain(pipeline, output, 2);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(outputs[0].size(), 60u);
}

TEST(Pipeline, DropsTheNewestAndCountsItWhenTheRingIsFull) {
  Pipeline pipeline(lookahead_model(1), {.chunks = {.max_frames = 4}, .ring_capacity_frames = 10});
  std::vector<float> input(3 * 16);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = static_cast<float>(i);
  EXPECT_EQ(pipeline.push(input.data(), 16), 10);
  RingCounters counters = pipeline.ring_counters();
  EXPECT_EQ(counters.frames_in, 16u);
  EXPECT_EQ(counters.frames_dropped_overrun, 6u);
  EXPECT_EQ(counters.frames_in_flight, 10u);
  EXPECT_EQ(pipeline.step().frames_in, 4);
  counters = pipeline.ring_counters();
  EXPECT_EQ(counters.frames_out, 4u);
  EXPECT_EQ(counters.frames_in_flight, 6u);
  EXPECT_EQ(pipeline.writable_frames(), 4);
}

TEST(Pipeline, LosesNothingBetweenAProducerAndAWorkerThread) {
  Random random(5);
  const Model model = lookahead_model(1);
  constexpr std::int64_t kFrames = 20000;
  const std::vector<float> input = draw_signal(random, kFrames * 3);
  std::vector<float> expected;
  {
    Pipeline pipeline(model, {.chunks = {.max_frames = 64}, .ring_capacity_frames = kFrames});
    ASSERT_EQ(pipeline.push(input.data(), kFrames), kFrames);
    drain(pipeline, expected, 2);
  }
  Pipeline pipeline(model, {.chunks = {.max_frames = 16}, .ring_capacity_frames = 100});
  std::atomic<bool> done{false};
  std::thread producer([&] {
    Random sizes(6);
    for (std::int64_t given = 0; given < kFrames;) {
      const std::int64_t block = std::min({kFrames - given, draw(sizes, 1, 40), pipeline.writable_frames()});
      if (block == 0) std::this_thread::yield();
      given += pipeline.push(input.data() + given * 3, block);
    }
    done = true;
  });
  std::vector<float> output;
  for (bool last = false;; last = done) {
    const Pipeline::Step step = pipeline.step();
    append(output, step, 2);
    if (step.frames_in == 0 && last) break;
    const RingCounters counters = pipeline.ring_counters();
    ASSERT_EQ(counters.frames_in, counters.frames_out + counters.frames_dropped_overrun + counters.frames_in_flight);
    ASSERT_LE(counters.frames_in_flight, 100u + 40u);
  }
  producer.join();
  drain(pipeline, output, 2);
  EXPECT_EQ(output, expected);
}

// A system that promises memory it does not have would end the program only later.
TEST(Pipeline, RefusesARingAndChunksThatNoMemoryHolds) {
  PipelineSpec spec;
  spec.backend = Backend::kCpu;
  spec.streams = std::int64_t{1} << 20;
  spec.chunks.max_frames = kMaxChunkFrames;
  try {
    const Pipeline pipeline(lookahead_model(1), spec);
    FAIL() << "took 32 TiB";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find("chunk_frames and ring: chunks of 1048576 frames and a ring of 1024, 3145728 samples in and "
                           "2097152 out a frame: expected at most "),
              0U)
        << message;
    EXPECT_NE(message.find(", got 3.28e+04 GiB"), std::string::npos) << message;
  }
}

TEST(Pipeline, SaysWhatAFrameWaitsForInIt) {
  const Pipeline pipeline(lookahead_model(1), {.backend = Backend::kCpu, .chunks = {.max_frames = 17}});
  ASSERT_EQ(pipeline.latency().size(), 2U);
  EXPECT_EQ(pipeline.latency()[0].frames, 16);
  EXPECT_EQ(pipeline.latency()[0].key.name, "chunk_frames");
  EXPECT_EQ(pipeline.latency()[1].frames, 3);
  EXPECT_EQ(pipeline.latency()[1].key.name, "model.file");
  for (const LatencyTerm& term : pipeline.latency()) {
    EXPECT_EQ(term.kind, LatencyKind::kAlgorithmic);
    EXPECT_EQ(term.rate_hz, 1000);
  }
}

TEST(Pipeline, RefusesASpecOutOfRange) {
  EXPECT_THROW(Pipeline(lookahead_model(1), {.chunks = {.max_frames = 0}}), ConfigError);
  EXPECT_THROW(Pipeline(lookahead_model(1), {.streams = 0}), ConfigError);
  EXPECT_THROW(Pipeline(lookahead_model(1), {.ring_capacity_frames = 0}), ConfigError);
  EXPECT_THROW(Pipeline(Model(), {}), ConfigError);
}

}  // namespace
}  // namespace halotap::pipeline
