#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "failover_executor.hpp"
#include "halotap/pipeline/built_in_stages.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "pipeline/allocation_counter.hpp"
#include "pipeline/backends.hpp"
#include "pipeline/test_model.hpp"

namespace halotap::pipeline {
namespace {

using test::allocator_calls;
using test::backends;

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

// Gives nothing, and fails when a test says so.
class FailingDevice final : public kernels::Executor {
 public:
  void reset(std::int64_t, const Fill&) noexcept HALOTAP_NONBLOCKING override {}
  void process(std::span<kernels::SlotChunk>, std::int64_t) noexcept HALOTAP_NONBLOCKING override {}
  std::int64_t flush(std::int64_t, FrameView) noexcept HALOTAP_NONBLOCKING override { return 0; }
  std::size_t state_bytes() const noexcept override { return 0; }
  std::string description() const override { return "failing"; }
  const char* failure() const noexcept override {
    return fails ? "a reason that is longer than what a string holds without allocating" : nullptr;
  }

  bool fails = false;
};

TEST(FailoverExecutor, AllocatesNothingWhenTheDeviceFails) {
  if (backends().empty() || backends().front() != Backend::kCpu) GTEST_SKIP() << "no CPU backend in this build";
  const Model model = test::lookahead_model(1);
  auto made = std::make_unique<FailingDevice>();
  FailingDevice& device = *made;
  const kernels::ExecutorSpec spec{2, 40};
  FailoverExecutor executor(*model.stack, spec, 12, std::move(made), kernels::make_cpu_executor(model.stack, spec),
                            monotonic_clock());
  std::vector<float> input(3 * 40, 0.5F);
  std::vector<float> output(2 * 40);
  kernels::SlotChunk chunks[2];
  for (std::int64_t slot = 0; slot < 2; ++slot) {
    chunks[slot] = {slot, kernels::planar<const float>(input.data(), 3, 40), kernels::planar(output.data(), 2, 40)};
  }
  const std::uint64_t before = allocator_calls();
  executor.process(chunks, 0);
  device.fails = true;
  executor.process(chunks, 0);
  const bool has_failed_over = executor.failover() != nullptr;
  executor.reset(0, {});
  executor.flush(1, chunks[1].output);
  EXPECT_EQ(allocator_calls() - before, 0U);
  EXPECT_TRUE(has_failed_over);
  EXPECT_EQ(executor.failover()->streams, 2);
  EXPECT_EQ(chunks[0].frames_emitted, 40);
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
