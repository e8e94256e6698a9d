#include "failover_executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compare.hpp"
#include "cuda/host_pass_device.hpp"
#include "cuda/pass_executor.hpp"
#include "memory.hpp"
#include "random_stack.hpp"
#include "wound_clock.hpp"

namespace halotap::pipeline {
namespace {

using kernels::ExecutorSpec;
using kernels::SlotChunk;
using test::draw;
using test::draw_signal;
using test::Random;

constexpr std::int64_t kStreams = 3;
constexpr std::int64_t kChunk = 40;
constexpr std::int64_t kPiece = 12;
constexpr std::int64_t kPass = 5;  // so that an early pass may have written where a later one fails

// Passes on the host, which fail on demand, with the CPU behind them; and beside it a CPU that has had the streams from
// their beginning.
struct Rig {
  explicit Rig(const std::shared_ptr<const kernels::Stack>& of) : stack(of) {
    const kernels::cuda::PassShape shape = kernels::cuda::make_pass_shape(*stack, {kStreams, kPass});
    auto made = std::make_unique<kernels::cuda::HostPassDevice>(stack, shape);
    device = made.get();
    failing = std::make_unique<FailoverExecutor>(*stack, ExecutorSpec{kStreams, kChunk}, kPiece,
                                                 kernels::cuda::make_pass_executor(shape, std::move(made)),
                                                 kernels::make_cpu_executor(stack, {kStreams, kPiece}), clock);
    cpu = kernels::make_cpu_executor(stack, {kStreams, kChunk});
  }

  std::shared_ptr<const kernels::Stack> stack;
  test::WoundClock clock{std::chrono::microseconds(7)};
  kernels::cuda::HostPassDevice* device = nullptr;
  std::unique_ptr<FailoverExecutor> failing;
  std::unique_ptr<kernels::Executor> cpu;
};

bool is_near(const std::vector<float>& got, const std::vector<float>& expected) {
  return test::relative_l2(got, std::vector<double>(expected.begin(), expected.end())) < 1e-5;
}

// One chunk for each of `slots`, of its own length and layout, in place where the model allows it.
void process_both(Rig& rig, Random& random, const std::vector<std::int64_t>& slots, bool same_bits) {
  const std::int64_t in = rig.stack->in_channels();
  const std::int64_t out = rig.stack->out_channels();
  struct Memory {
    std::vector<float> input;
    std::vector<float> output;
  };
  std::vector<Memory> memories[2] = {std::vector<Memory>(slots.size()), std::vector<Memory>(slots.size())};
  std::vector<SlotChunk> chunks[2];
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::int64_t frames = draw(random, 0, kChunk);
    const std::vector<float> input = draw_signal(random, in * frames);
    const bool planar = test::toss(random);
    const bool in_place = in == out && test::toss(random);
    for (int which = 0; which < 2; ++which) {
      Memory& memory = memories[which][i];
      memory.input = input;
      memory.output.assign(static_cast<std::size_t>(out * frames), -7.0F);
      float* to = in_place ? memory.input.data() : memory.output.data();
      const float* from = memory.input.data();
      chunks[which].push_back({slots[i],
                               planar ? kernels::planar(from, in, frames) : kernels::interleaved(from, in, frames),
                               planar ? kernels::planar(to, out, frames) : kernels::interleaved(to, out, frames)});
    }
  }
  rig.failing->process(chunks[0], 0);
  rig.cpu->process(chunks[1], 0);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    ASSERT_EQ(chunks[0][i].frames_emitted, chunks[1][i].frames_emitted);
    std::vector<float> results[2];
    for (int which = 0; which < 2; ++which) {
      const SlotChunk& chunk = chunks[which][i];
      for (std::int64_t o = 0; o < out; ++o) {
        for (std::int64_t t = 0; t < chunk.frames_emitted; ++t) results[which].push_back(chunk.output(o, t));
      }
    }
    ASSERT_TRUE(same_bits ? test::same_bits(results[0], results[1]) : is_near(results[0], results[1]));
  }
}

TEST(FailoverExecutor, GoesOnAsTheCpuWouldHaveFromTheBeginning) {
  std::int64_t rebuilt = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Rig rig(test::draw_stack(random));
    const std::int64_t in = rig.stack->in_channels();
    const std::int64_t failing_step = draw(random, 0, 12);
    for (std::int64_t step = 0; step < 20; ++step) {
      const bool has_failed = rig.failing->failover() != nullptr;
      if (step == failing_step) rig.device->fail_after(draw(random, 0, 9));
      const std::int64_t slot = draw(random, 0, kStreams - 1);
      const std::int64_t action = draw(random, 0, 9);
      if (action == 0) {
        const std::vector<float> frame = draw_signal(random, in);
        const kernels::Fill fill{static_cast<kernels::FillKind>(draw(random, 0, 2)), frame.data()};
        rig.failing->reset(slot, fill);
        rig.cpu->reset(slot, fill);
      } else if (action == 1) {
        const std::int64_t room = rig.stack->lookahead_frames();
        std::vector<float> got(static_cast<std::size_t>(rig.stack->out_channels() * room));
        std::vector<float> expected(got.size());
        ASSERT_EQ(rig.failing->flush(slot, kernels::planar(got.data(), rig.stack->out_channels(), room)),
                  rig.cpu->flush(slot, kernels::planar(expected.data(), rig.stack->out_channels(), room)));
        ASSERT_TRUE(has_failed ? test::same_bits(got, expected) : is_near(got, expected));
      } else {
        std::vector<std::int64_t> slots;
        for (std::int64_t s = 0; s < kStreams; ++s) {
          if (s == slot || test::toss(random)) slots.push_back(s);
        }
        process_both(rig, random, slots, has_failed);
      }
      if (HasFatalFailure()) return;
    }
    if (rig.failing->failover() != nullptr) rebuilt += rig.failing->failover()->streams;
  }
  EXPECT_GT(rebuilt, 200);
}

// A stack whose layers look ahead. Each pass of a recording is the one that fails once.
TEST(FailoverExecutor, LosesAndDoublesNothingWhicheverPassFails) {
  Random random(1);
  kernels::LayerSpec spec;
  spec.in_channels = 6;
  spec.out_channels = 6;
  spec.kernel_size = 5;
  spec.padding = kernels::Padding::kSame;
  std::vector<kernels::Layer> layers;
  for (const char* name : {"a", "b", "c"}) {
    spec.name = name;
    layers.push_back(test::draw_layer(random, spec));
  }
  const auto stack = std::make_shared<const kernels::Stack>(std::move(layers));
  constexpr std::int64_t kFrames = 90;
  const std::vector<float> input = draw_signal(random, 6 * kFrames);
  const auto run = [&](kernels::Executor& executor) {
    std::vector<float> output(input.size());
    const kernels::ConstFrameView from = kernels::planar(input.data(), std::int64_t{6}, kFrames);
    const kernels::FrameView to = kernels::planar(output.data(), std::int64_t{6}, kFrames);
    std::int64_t given = 0;
    for (std::int64_t taken = 0; taken < kFrames; taken += 30) {
      SlotChunk chunk{1, from.slice(taken, 30), to.slice(given, 30)};
      executor.process({&chunk, 1}, 0);
      given += chunk.frames_emitted;
    }
    given += executor.flush(1, to.slice(given, kFrames - given));
    EXPECT_EQ(given, kFrames);
    return output;
  };
  const std::vector<float> expected = run(*Rig(stack).cpu);
  for (std::int64_t pass = 0; pass < 28; ++pass) {
    Rig rig(stack);
    rig.device->fail_after(pass);
    EXPECT_TRUE(is_near(run(*rig.failing), expected)) << pass;
    // Pieces of 12, 12 and 6 frames a chunk are 3 + 3 + 2 passes; the flush of 6 frames is two more. This device has
    // failed as soon as its last pass is over.
    EXPECT_EQ(rig.failing->failover() != nullptr, pass <= 26) << pass;
  }
}

TEST(FailoverExecutor, SaysHowTheCpuTookOver) {
  Random random(3);
  Rig rig(test::draw_stack(random));
  EXPECT_EQ(rig.failing->description(), "host");
  EXPECT_EQ(rig.failing->failover(), nullptr);
  EXPECT_EQ(rig.failing->failure(), nullptr);
  process_both(rig, random, {0, 2}, false);
  rig.failing->reset(1, {kernels::FillKind::kHoldFirst});
  rig.cpu->reset(1, {kernels::FillKind::kHoldFirst});
  rig.failing->reset(2, {});
  rig.cpu->reset(2, {});
  rig.device->fail_after(0);
  const Instant before = rig.clock.now();
  process_both(rig, random, {2}, true);
  ASSERT_NE(rig.failing->failover(), nullptr);
  const Failover& failover = *rig.failing->failover();
  EXPECT_EQ(failover.from, "host");
  EXPECT_EQ(failover.to, rig.cpu->description());
  EXPECT_EQ(failover.reason, "the test ended it");
  EXPECT_EQ(failover.streams, 2) << "slot 2 had just begun";
  EXPECT_EQ(failover.at, before + std::chrono::microseconds(7));
  EXPECT_EQ(failover.rebuild_time, std::chrono::microseconds(7));
  EXPECT_EQ(rig.failing->description(), rig.cpu->description());
  EXPECT_EQ(rig.failing->failure(), nullptr) << "it goes on";
  EXPECT_EQ(describe(failover),
            "host failed: the test ended it; " + rig.cpu->description() + " goes on, with 2 streams rebuilt in 7 us");
}

TEST(FailoverExecutor, AsksNothingOfACardThatHasFailed) {
  Random random(3);
  Rig rig(test::draw_stack(random));
  EXPECT_NE(rig.failing->allocate_samples(100), nullptr);
  rig.device->fail_after(0);
  process_both(rig, random, {0}, true);
  ASSERT_NE(rig.failing->failover(), nullptr);
  float* samples = rig.failing->allocate_samples(100);
  EXPECT_EQ(samples[99], 0.0F);
  EXPECT_EQ(rig.device->allocations(), 1);
}

TEST(FailoverExecutor, TellsHowFarALongChunkWasDone) {
  Random random(7);
  Rig rig(test::draw_stack(random));
  std::vector<float> input = draw_signal(random, rig.stack->in_channels() * kChunk);
  std::vector<float> output(static_cast<std::size_t>(rig.stack->out_channels() * kChunk));
  rig.device->fail_after(2 * ((kPiece + kPass - 1) / kPass) + 1);
  SlotChunk chunk{0, kernels::planar<const float>(input.data(), rig.stack->in_channels(), kChunk),
                  kernels::planar(output.data(), rig.stack->out_channels(), kChunk)};
  rig.failing->process({&chunk, 1}, 0);
  ASSERT_NE(rig.failing->failover(), nullptr);
  EXPECT_EQ(rig.failing->failover()->frames_before, 2 * kPiece);
}

TEST(FailoverExecutor, CountsWhatItKeepsAsState) {
  Random random(4);
  const auto stack = test::draw_stack(random);
  Rig rig(stack);
  const kernels::cuda::PassShape shape = kernels::cuda::make_pass_shape(*stack, {kStreams, kPass});
  const std::int64_t kept = (stack->receptive_field() - 1 + kPiece) * stack->in_channels();
  EXPECT_EQ(rig.failing->state_bytes(), (static_cast<std::size_t>(shape.state_floats + kept)) * sizeof(float) +
                                            kernels::make_cpu_executor(stack, {1, kPiece})->state_bytes());
}

// Says that its streams take so many bytes each, and takes none.
class ExecutorOfSize final : public kernels::Executor {
 public:
  explicit ExecutorOfSize(double state_bytes) : state_bytes_(static_cast<std::size_t>(state_bytes)) {}
  void reset(std::int64_t, const kernels::Fill&) noexcept HALOTAP_NONBLOCKING override {}
  void process(std::span<SlotChunk>, std::int64_t) noexcept HALOTAP_NONBLOCKING override {}
  std::int64_t flush(std::int64_t, kernels::FrameView) noexcept HALOTAP_NONBLOCKING override { return 0; }
  std::size_t state_bytes() const noexcept override { return state_bytes_; }
  std::string description() const override { return "a size"; }

 private:
  const std::size_t state_bytes_;
};

TEST(FailoverExecutor, KeepsNoMoreThanTheMachineHas) {
  Random random(6);
  kernels::LayerSpec spec;
  spec.name = "a";
  spec.in_channels = 10;
  spec.out_channels = 1;
  spec.kernel_size = 2;
  spec.dilation = 1 << 16;
  const kernels::Stack stack({test::draw_layer(random, spec)});
  const auto keep = [&](std::int64_t streams, double state_bytes) {
    const FailoverExecutor made(stack, ExecutorSpec{streams, 64}, 64, std::make_unique<ExecutorOfSize>(0),
                                std::make_unique<ExecutorOfSize>(state_bytes), monotonic_clock());
  };
  EXPECT_THROW(keep(1 << 20, 0), std::bad_alloc) << "2.7 TB of rings";
  // Less than what is kept of the input is left beside the CPU's state.
  const double kept_bytes = (65536 + 64 + 1) * 10 * 4;
  EXPECT_THROW(keep(1, memory_bytes() - kept_bytes / 2), std::bad_alloc);
  EXPECT_NO_THROW(keep(1, memory_bytes() - kept_bytes * 2));
}

TEST(FailoverExecutor, TakesPiecesThatKeepFewSamples) {
  Random random(5);
  kernels::LayerSpec spec;
  spec.name = "a";
  spec.in_channels = 128;
  spec.out_channels = 1;
  const kernels::Stack stack({test::draw_layer(random, spec)});
  EXPECT_EQ(FailoverExecutor::piece_frames(stack, {1, 16}), 16);
  EXPECT_EQ(FailoverExecutor::piece_frames(stack, {1, std::int64_t{1} << 40}), 131072);
  EXPECT_EQ(FailoverExecutor::piece_frames(stack, {100000, 4096}), 64);
  EXPECT_EQ(FailoverExecutor::piece_frames(stack, {100000, 4}), 4);
}

}  // namespace
}  // namespace halotap::pipeline
