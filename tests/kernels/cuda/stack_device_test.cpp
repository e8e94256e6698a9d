// What is the one-kernel stack's alone; what every executor must keep is in executor_test.cpp.
#include "cuda/stack_device.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "compare.hpp"
#include "cuda/device.hpp"
#include "cuda/on_a_card.hpp"
#include "cuda/pass_executor.hpp"
#include "halotap/kernels/reference.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::draw;
using test::draw_signal;
using test::Random;
using test::relative_l2;

std::int64_t now_ns() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// That clock, or one that is past every limit at its next look.
bool is_impatient = false;
std::int64_t now_or_never_ns() noexcept {
  static std::int64_t later = 0;
  return now_ns() + (is_impatient ? later += 1'000'000'000'000 : 0);
}

class CudaStack : public OnACard {
 protected:
  void SetUp() override {
    OnACard::SetUp();
    if (IsSkipped()) return;
    if (compute_capability() < 90) GTEST_SKIP() << "this card has no clusters of blocks";
  }
};

// The network of the benchmarks: 128 channels, 5 taps, dilations 1, 2, 4, 8.
std::shared_ptr<const Stack> deep_stack(std::int64_t layers, std::int64_t in_channels = 128) {
  Random random(7);
  std::vector<Layer> all;
  for (std::int64_t l = 0; l < layers; ++l) {
    LayerSpec spec;
    spec.name = "layers." + std::to_string(l);
    spec.in_channels = l == 0 ? in_channels : 128;
    spec.out_channels = 128;
    spec.kernel_size = 5;
    spec.dilation = std::int64_t{1} << l % 4;
    spec.residual = l % 2 == 1;
    all.push_back(test::draw_layer(random, spec));
  }
  return std::make_shared<const Stack>(std::move(all));
}

ExecutorSpec spec_of(std::int64_t streams, std::int64_t frames, CudaInvocation invocation) {
  ExecutorSpec spec;
  spec.max_streams = streams;
  spec.max_chunk_frames = frames;
  spec.now_ns = now_ns;
  spec.cuda_invocation = invocation;
  return spec;
}

// A recording [channels, frames] through one slot, in chunks of at most `longest` frames: of as many each, or drawn.
std::vector<float> run(Executor& executor, const Stack& stack, std::int64_t slot, const std::vector<float>& input,
                       std::int64_t frames, std::int64_t longest, Random* random = nullptr) {
  std::vector<float> output(static_cast<std::size_t>(stack.out_channels() * frames));
  const ConstFrameView in = planar(input.data(), stack.in_channels(), frames);
  const FrameView out = planar(output.data(), stack.out_channels(), frames);
  executor.reset(slot, Fill{});
  for (std::int64_t taken = 0; taken < frames;) {
    const std::int64_t length = std::min(frames - taken, random != nullptr ? draw(*random, 1, longest) : longest);
    SlotChunk chunk{slot, in.slice(taken, length), out.slice(taken, frames - taken), -1};
    executor.process({&chunk, 1}, 0);
    EXPECT_EQ(chunk.frames_emitted, length) << executor.failure();
    taken += length;
  }
  return output;
}

TEST_F(CudaStack, SaysWhichPathRunsAndWhy) {
  const auto stack = deep_stack(8);
  const std::string asked = make_cuda_executor(stack, {})->description();
  EXPECT_TRUE(asked.ends_with(", one kernel a layer)")) << asked;
  const std::string launched = make_cuda_executor(stack, {.cuda_invocation = CudaInvocation::kLaunch})->description();
  EXPECT_TRUE(launched.ends_with(", one kernel a stack)")) << launched;
  ExecutorSpec spec;
  spec.cuda_invocation = CudaInvocation::kResident;
  const std::string resident = make_cuda_executor(stack, spec)->description();
  EXPECT_TRUE(resident.ends_with(", one resident kernel a stack)")) << resident;
  const auto large = deep_stack(30);
  const std::string layers = make_cuda_executor(large, {.cuda_invocation = CudaInvocation::kLaunch})->description();
  EXPECT_TRUE(layers.ends_with(", one kernel a layer: weights of 1.9 MiB do not fit)")) << layers;
  EXPECT_THROW(make_cuda_executor(large, spec), std::invalid_argument);
}

TEST_F(CudaStack, GivesTheSameBitsForEveryChunkInvocationAndCut) {
  for (const std::int64_t in_channels : {128, 54}) {
    const auto stack = deep_stack(8, in_channels);
    Random random(1);
    const std::int64_t frames = 300;
    const std::vector<float> input = draw_signal(random, in_channels * frames);
    std::vector<float> first;
    for (const CudaInvocation invocation : {CudaInvocation::kLaunch, CudaInvocation::kResident}) {
      for (const std::int64_t longest : {1, 2, 3, 4, 7, 16, 17, 64, 300}) {
        const auto executor = make_cuda_executor(stack, spec_of(1, longest, invocation));
        const std::vector<float> output = run(*executor, *stack, 0, input, frames, longest);
        if (first.empty()) {
          first = output;
          EXPECT_LE(relative_l2(output, run_reference(*stack, input, frames)), 1e-6);
        }
        ASSERT_EQ(std::memcmp(output.data(), first.data(), first.size() * sizeof(float)), 0) << longest;
      }
      const auto executor = make_cuda_executor(stack, spec_of(1, 64, invocation));
      const std::vector<float> output = run(*executor, *stack, 0, input, frames, 64, &random);
      ASSERT_EQ(std::memcmp(output.data(), first.data(), first.size() * sizeof(float)), 0);
    }
  }
}

// Tiles in one part, a few launches: what racecheck goes over.
TEST_F(CudaStack, GivesTheSameBitsInShortChunks) {
  const auto stack = deep_stack(3, 20);
  Random random(10);
  const std::int64_t frames = 12;
  const std::vector<float> input = draw_signal(random, 20 * frames);
  std::vector<float> first;
  for (const std::int64_t longest : {12, 5, 1}) {
    const auto executor = make_cuda_executor(stack, spec_of(1, longest, CudaInvocation::kLaunch));
    const std::vector<float> output = run(*executor, *stack, 0, input, frames, longest);
    if (first.empty()) first = output;
    EXPECT_EQ(output, first) << longest;
  }
  EXPECT_LE(relative_l2(first, run_reference(*stack, input, frames)), 1e-6);
}

TEST_F(CudaStack, GivesTheSameBitsForEveryLoudness) {
  // Frames whose scale is the common one beside frames that need their own, silence, and what a float32 just holds.
  const auto stack = deep_stack(2);
  const std::int64_t frames = 64;
  Random random(2);
  std::vector<float> input = draw_signal(random, 128 * frames);
  const float loudness[] = {1.0f, 1e-6f, 0.0f, 1e6f, 1e-20f, 1e25f, 3.0f, 1e-3f};
  for (std::int64_t i = 0; i < 128 * frames; ++i) input[static_cast<std::size_t>(i)] *= loudness[i % frames / 8];
  const auto executor = make_cuda_executor(stack, spec_of(1, 64, CudaInvocation::kLaunch));
  const std::vector<float> wide = run(*executor, *stack, 0, input, frames, 64);
  const std::vector<float> narrow = run(*executor, *stack, 0, input, frames, 1);
  EXPECT_EQ(std::memcmp(wide.data(), narrow.data(), wide.size() * sizeof(float)), 0);
  EXPECT_LE(relative_l2(wide, run_reference(*stack, input, frames)), 1e-6);
}

TEST_F(CudaStack, GivesEveryStreamOfACallItsOwnBitsWhateverTheirLengths) {
  const auto stack = deep_stack(5, 20);
  constexpr std::int64_t kStreams = 70;
  constexpr std::int64_t kFrames = 40;
  Random random(3);
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> alone;
  const auto single = make_cuda_executor(stack, spec_of(1, kFrames, CudaInvocation::kLaunch));
  for (std::int64_t s = 0; s < kStreams; ++s) {
    inputs.push_back(draw_signal(random, 20 * kFrames));
    if (s % 9 == 4) inputs.back()[5 * kFrames + 11] = std::numeric_limits<float>::quiet_NaN();
    alone.push_back(run(*single, *stack, 0, inputs.back(), kFrames, kFrames));
  }
  for (const CudaInvocation invocation : {CudaInvocation::kLaunch, CudaInvocation::kResident}) {
    for (const std::int64_t longest : {1, 4, 13, 40}) {
      ExecutorSpec spec = spec_of(kStreams, longest, invocation);
      spec.resident_clusters = 3;
      const auto executor = make_cuda_executor(stack, spec);
      std::vector<std::vector<float>> outputs(kStreams, std::vector<float>(128 * kFrames));
      std::vector<std::int64_t> taken(kStreams);
      for (bool more = true; more;) {
        more = false;
        std::vector<SlotChunk> chunks;
        for (std::int64_t s = 0; s < kStreams; ++s) {
          const auto i = static_cast<std::size_t>(s);
          const std::int64_t length = std::min(kFrames - taken[i], draw(random, 0, longest));
          more = more || taken[i] < kFrames;
          if (length == 0) continue;
          // Slots in another order than streams.
          chunks.push_back({(s * 11 + 5) % kStreams,
                            planar<const float>(inputs[i].data(), 20, kFrames).slice(taken[i], length),
                            planar(outputs[i].data(), 128, kFrames).slice(taken[i], length), -1});
          taken[i] += length;
        }
        executor->process(chunks, 0);
        ASSERT_EQ(executor->failure(), nullptr);
      }
      for (std::size_t s = 0; s < kStreams; ++s) {
        ASSERT_EQ(std::memcmp(outputs[s].data(), alone[s].data(), alone[s].size() * sizeof(float)), 0)
            << "stream " << s << " longest " << longest;
      }
    }
  }
}

TEST_F(CudaStack, GoesOnWhenItsResidentKernelHasEnded) {
  const auto stack = deep_stack(3, 30);
  StackPlan plan;
  ASSERT_EQ(plan_stack(*stack, Precision::kFp32, plan), "");
  Random random(5);
  const std::int64_t frames = 200;
  const std::vector<float> input = draw_signal(random, 30 * frames);
  const auto launched = make_cuda_executor(stack, spec_of(1, 8, CudaInvocation::kLaunch));
  const std::vector<float> expected = run(*launched, *stack, 0, input, frames, 8);
  // Ends whenever there is nothing to do; or before half its life is over, behind almost every pass.
  for (const ResidentLife& life : {ResidentLife{0, 4'000'000'000}, ResidentLife{1'000'000'000, 2}}) {
    ExecutorSpec spec = spec_of(1, 8, CudaInvocation::kResident);
    spec.resident_clusters = 2;
    const PassShape shape = make_stack_shape(*stack, plan, spec);
    const auto executor = make_pass_executor(shape, make_stack_device(*stack, plan, shape, spec, life));
    const std::vector<float> output = run(*executor, *stack, 0, input, frames, 8);
    EXPECT_EQ(std::memcmp(output.data(), expected.data(), expected.size() * sizeof(float)), 0);
  }
}

TEST_F(CudaStack, KeepsResidentClustersInStepThatAPassHasNothingFor) {
  const auto stack = deep_stack(1);
  Random random(8);
  const std::int64_t frames = 2000;
  const std::vector<float> input = draw_signal(random, 128 * frames);
  const auto launched = make_cuda_executor(stack, spec_of(1, 1, CudaInvocation::kLaunch));
  ExecutorSpec spec = spec_of(1, 1, CudaInvocation::kResident);
  spec.resident_clusters = 4;  // three of them idle, in every pass
  const auto resident = make_cuda_executor(stack, spec);
  EXPECT_EQ(run(*resident, *stack, 0, input, frames, 1), run(*launched, *stack, 0, input, frames, 1));
}

TEST_F(CudaStack, TakesOneFrameAndManyInTurnOverSeveralResidentClusters) {
  // A pass of one frame leaves the other clusters idle, and the next one may have its stream on another.
  const auto stack = deep_stack(2, 40);
  Random random(9);
  constexpr std::int64_t kStreams = 6;
  constexpr std::int64_t kFrames = 300;
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> expected;
  const auto launched = make_cuda_executor(stack, spec_of(1, 20, CudaInvocation::kLaunch));
  for (std::int64_t s = 0; s < kStreams; ++s) {
    inputs.push_back(draw_signal(random, 40 * kFrames));
    expected.push_back(run(*launched, *stack, 0, inputs.back(), kFrames, 20));
  }
  ExecutorSpec spec = spec_of(kStreams, 20, CudaInvocation::kResident);
  spec.resident_clusters = 3;
  const auto resident = make_cuda_executor(stack, spec);
  std::vector<std::vector<float>> outputs(kStreams, std::vector<float>(128 * kFrames));
  std::vector<std::int64_t> taken(kStreams);
  for (bool more = true; more;) {
    std::vector<SlotChunk> chunks;
    const bool single = draw(random, 0, 1) == 0;
    const std::int64_t chosen = draw(random, 0, kStreams - 1);
    more = false;
    for (std::int64_t s = 0; s < kStreams; ++s) {
      const auto i = static_cast<std::size_t>(s);
      more = more || taken[i] < kFrames;
      const std::int64_t length = std::min(kFrames - taken[i], single ? 1 : draw(random, 0, 20));
      if (length == 0 || (single && s != chosen)) continue;
      chunks.push_back({s, planar<const float>(inputs[i].data(), 40, kFrames).slice(taken[i], length),
                        planar(outputs[i].data(), 128, kFrames).slice(taken[i], length), -1});
      taken[i] += length;
    }
    resident->process(chunks, 0);
    ASSERT_EQ(resident->failure(), nullptr);
  }
  for (std::size_t s = 0; s < kStreams; ++s) EXPECT_EQ(outputs[s], expected[s]) << "stream " << s;
}

TEST_F(CudaStack, WritesNothingIntoItsMemoryOnceItsDeviceWasGivenUp) {
  const auto stack = deep_stack(8);
  constexpr std::int64_t kStreams = 2000;  // milliseconds
  constexpr std::int64_t kFrames = 64;
  constexpr std::int64_t kSamples = kStreams * 128 * kFrames;
  for (const CudaInvocation invocation : {CudaInvocation::kLaunch, CudaInvocation::kResident}) {
    is_impatient = false;
    ExecutorSpec spec = spec_of(kStreams, kFrames, invocation);
    spec.now_ns = now_or_never_ns;
    const auto executor = make_cuda_executor(stack, spec);
    float* const input = executor->allocate_samples(kSamples);
    float* const output = executor->allocate_samples(kSamples);
    std::fill_n(input, kSamples, 1.0f);
    std::vector<SlotChunk> chunks;
    for (std::int64_t s = 0; s < kStreams; ++s) {
      chunks.push_back({s, planar<const float>(input + s * 128 * kFrames, 128, kFrames),
                        planar(output + s * 128 * kFrames, 128, kFrames), -1});
    }
    executor->process(chunks, 0);
    ASSERT_EQ(executor->failure(), nullptr);
    EXPECT_EQ(std::count(output, output + kSamples, 0.0f), 0);
    std::fill_n(output, kSamples, 0.0f);
    is_impatient = true;
    executor->process(chunks, 0);
    ASSERT_NE(executor->failure(), nullptr);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    // What was written until it knew is a few tiles.
    EXPECT_GT(std::count(output, output + kSamples, 0.0f), kSamples / 2);
  }
  is_impatient = false;
}

TEST_F(CudaStack, RefusesMoreResidentClustersThanTheCardHas) {
  ExecutorSpec spec = spec_of(1, 16, CudaInvocation::kResident);
  spec.resident_clusters = 1 << 19;
  EXPECT_THROW(make_cuda_executor(deep_stack(2), spec), std::invalid_argument);
}

TEST_F(CudaStack, RunsSeveralResidentStacksBesideEachOther) {
  // Each is made, and freed, while others' kernels run.
  const auto stack = deep_stack(2);
  Random random(6);
  const std::vector<float> input = draw_signal(random, 128 * 64);
  const ExecutorSpec spec = spec_of(1, 16, CudaInvocation::kResident);
  const auto first = make_cuda_executor(stack, spec);
  const std::vector<float> expected = run(*first, *stack, 0, input, 64, 16);
  for (int i = 0; i < 2; ++i) {
    const auto second = make_cuda_executor(stack, spec);
    EXPECT_EQ(run(*second, *stack, 0, input, 64, 16), expected);
    EXPECT_EQ(run(*first, *stack, 0, input, 64, 16), expected);
  }
}

}  // namespace
}  // namespace halotap::kernels::cuda
