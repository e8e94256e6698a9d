#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <vector>

#include "halotap/pipeline/async_engine.hpp"
#include "halotap/pipeline/built_in_stages.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "pipeline/allocation_counter.hpp"
#include "pipeline/lock_counter.hpp"
#include "pipeline/test_model.hpp"
#include "wound_clock.hpp"

namespace halotap::pipeline {
namespace {

using test::allocator_calls;

// Keeps the compiler from leaving out an allocation that nobody uses.
void* used(void* memory) {
  asm volatile("" : : "r"(memory) : "memory");
  return memory;
}

TEST(AllocationCounter, CatchesEveryKindOfAllocation) {
  const auto counts = [](auto body) {
    const std::uint64_t before = allocator_calls();
    body();
    return allocator_calls() > before;
  };
  EXPECT_TRUE(counts([] { used(std::make_unique<int>(1).get()); }));
  EXPECT_TRUE(counts([] { used(std::vector<float>(100).data()); }));
  EXPECT_TRUE(counts([] { std::free(used(std::malloc(10))); }));
  EXPECT_TRUE(counts([] { std::free(used(std::aligned_alloc(64, 64))); }));
  EXPECT_FALSE(counts([] {}));
}

// Those of this build and machine.
std::vector<Backend> backends() {
  std::vector<Backend> there;
  for (const Backend backend : {Backend::kCpu, Backend::kCuda}) {
    try {
      Engine().prepare(test::lookahead_model(1), {.backend = backend});
      there.push_back(backend);
    } catch (const DeviceError&) {
    }
  }
  return there;
}

void expect_no_allocation_after_prepare(Backend backend, std::uint64_t seed) {
  test::Random random(seed);
  const Model model = test::draw_model(random);
  Engine engine;
  engine.prepare(model, {.backend = backend, .max_streams = 3, .max_chunk_frames = 100});
  const std::int64_t room = 100 + model.stack->lookahead_frames();
  const std::vector<float> input = test::draw_signal(random, 100 * model.stack->in_channels());
  std::vector<float> output(static_cast<std::size_t>(room * model.stack->out_channels()));

  const std::uint64_t before = allocator_calls();
  Status worst = Status::kOk;
  const auto note = [&](Status status) { worst = status == Status::kOk ? worst : status; };
  StreamId streams[3];
  std::int64_t emitted = 0;
  for (StreamId& stream : streams) note(engine.open(stream));
  const FrameView out = kernels::planar(output.data(), model.stack->out_channels(), room);
  for (const std::int64_t frames : {1, 7, 100, 0, 64}) {
    for (const StreamId& stream : streams) {
      StreamChunk chunk{stream, kernels::planar(input.data(), model.stack->in_channels(), frames), out, 0, Status::kOk};
      note(engine.process({&chunk, 1}));
    }
  }
  note(engine.reset(streams[0], {FillKind::kHoldFirst, nullptr}));
  note(engine.reset(streams[1], {FillKind::kFrame, input.data()}));
  for (const StreamId& stream : streams) note(engine.flush(stream, out, emitted));
  StreamChunk unknown{{9, 9}, {}, {}, 0, Status::kOk};
  const bool refused = engine.process({&unknown, 1}) == Status::kUnknownStream;
  const EngineCounters counters = engine.counters();
  for (const StreamId& stream : streams) note(engine.close(stream));
  const std::uint64_t calls = allocator_calls() - before;

  EXPECT_EQ(calls, 0u) << to_string(backend) << ", seed " << seed;
  EXPECT_EQ(worst, Status::kOk);
  EXPECT_TRUE(refused);
  EXPECT_GT(counters.frames_in, 0u);
}

TEST(Engine, AllocatesNothingAfterPrepare) {
  if (backends().empty()) GTEST_SKIP() << "no backend on this machine";
  for (const Backend backend : backends()) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) expect_no_allocation_after_prepare(backend, seed);
  }
}

// Both sides and the worker on this thread, so that its counters see all three: open, every kind of entry, refusals, a
// full stream, waiting, close and the next tenant.
void expect_no_allocation_or_lock_of_an_async_engine(Backend backend, std::uint64_t seed) {
  test::Random random(seed);
  const Model model = test::draw_model(random);
  const test::WoundClock clock(std::chrono::microseconds(1));
  AsyncEngine engine(
      model,
      {.engine = {.backend = backend, .max_streams = 3, .max_chunk_frames = 20}, .own_thread = false, .clock = &clock});
  const std::int64_t in = model.stack->in_channels();
  const std::vector<float> input = test::draw_signal(random, in * 20);

  const std::uint64_t allocations = allocator_calls();
  const std::uint64_t locks = test::lock_calls();
  std::uint64_t answers = 0;
  std::uint64_t refusals = 0;
  const auto note = [&](Status status) { refusals += status != Status::kOk; };
  for (int tenant = 0; tenant < 5; ++tenant) {
    StreamId streams[3];
    for (StreamId& stream : streams) note(engine.open(stream));
    StreamId fourth;
    note(engine.open(fourth));
    for (int round = 0; round < 8; ++round) {
      for (const StreamId& stream : streams) {
        FrameView view;
        note(engine.begin_chunk(stream, round + 1, view));
        note(engine.submit(stream, clock.now() + std::chrono::microseconds(100)));
        note(engine.submit(stream, kernels::planar<const float>(input.data(), in, 20), clock.now()));
        note(engine.skip(stream));
        note(round == 2 ? engine.reset(stream, {FillKind::kFrame, input.data()}) : Status::kOk);
        note(round == 4 ? engine.flush(stream) : Status::kOk);
        note(round == 7 ? engine.close(stream) : Status::kOk);
      }
      AsyncResult result;
      for (int i = 0; i < 6; ++i) {
        static_cast<void>(engine.step());
        for (const StreamId& stream : streams) {
          answers += engine.try_collect(stream, clock.now() + std::chrono::milliseconds(1), result) == Status::kOk;
        }
      }
    }
    AsyncResult result;
    for (const StreamId& stream : streams) {
      note(engine.close(stream));
      for (int i = 0; i < 3; ++i) {
        static_cast<void>(engine.step());
        answers += engine.try_collect(stream, {}, result) == Status::kOk;
      }
    }
  }
  const AsyncCounters counters = engine.counters();
  engine.stop();
  EXPECT_EQ(allocator_calls() - allocations, 0u) << to_string(backend) << ", seed " << seed;
  if (backend == Backend::kCpu) {  // a card's driver has locks of its own
    EXPECT_EQ(test::lock_calls() - locks, 0u) << "seed " << seed;
  }
  EXPECT_EQ(answers, counters.entries_out);
  EXPECT_GT(refusals, 0u);
  EXPECT_GT(counters.chunks, 100u);
}

TEST(AsyncEngine, NeitherAllocatesNorLocksOnceMade) {
  if (backends().empty()) GTEST_SKIP() << "no backend on this machine";
  for (const Backend backend : backends()) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) expect_no_allocation_or_lock_of_an_async_engine(backend, seed);
  }
}

TEST(Pipeline, AllocatesNothingOnceMade) {
  if (backends().empty()) GTEST_SKIP() << "no backend on this machine";
  Pipeline pipeline(test::lookahead_model(1), {.streams = 2,
                                               .chunks = {.max_frames = 16, .seed = 5},
                                               .stages = {{"smooth", smooth_stage({.attack_ms = 2})},
                                                          {"affine", affine_stage({.gain = 1.5})},
                                                          {"threshold", threshold_stage({.on = 0.01, .channel = "1"})},
                                                          {"select", select_stage({.channels = {"1", "0", "1"}})},
                                                          {"decimate", decimate_stage({.factor = 2})},
                                                          {"rms", rms_stage({.window_ms = 4})},
                                                          {"log", log_stage({})},
                                                          {"argmax", argmax_stage()}}});
  std::vector<float> input(2 * 3 * 500);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = i / 60 % 2 == 0 ? 1.0f : -1.0f;
  const std::uint64_t before = allocator_calls();
  std::int64_t frames = 0;
  std::size_t events = 0;
  for (int block = 1; block < 40; ++block) {
    pipeline.push(input.data(), block);
    for (auto step = pipeline.step(); step.frames_in > 0; step = pipeline.step()) {
      frames += step.frames_out;
      events += step.events.size();
    }
  }
  for (auto step = pipeline.drain(); step.frames_in + step.frames_out > 0; step = pipeline.drain()) {
    frames += step.frames_out;
  }
  const std::uint64_t calls = allocator_calls() - before;
  EXPECT_EQ(calls, 0u);
  EXPECT_EQ(frames, 39 * 40 / 2 / 4);
  EXPECT_GT(events, 0u);
}

}  // namespace
}  // namespace halotap::pipeline
