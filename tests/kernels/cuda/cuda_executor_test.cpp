// What only the executor with a kernel a layer has; what every executor must keep is in executor_test.cpp.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "cuda/device.hpp"
#include "cuda/on_a_card.hpp"
#include "halotap/kernels/executor.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::Random;

using CudaExecutor = OnACard;

// A clock that is past every limit at its second look, once it is asked to.
bool is_impatient = false;
std::int64_t now_ns() noexcept {
  static std::int64_t now = 0;
  return is_impatient ? now += 1'000'000'000'000 : now;
}

TEST_F(CudaExecutor, WritesNothingIntoItsMemoryOnceItsDeviceWasGivenUp) {
  constexpr std::int64_t kChannels = 128;
  constexpr std::int64_t kFrames = 4;
  Random random(1);
  std::vector<Layer> layers;
  for (int l = 0; l < 40; ++l) {  // milliseconds, until results would be written
    LayerSpec spec;
    spec.name = "layers." + std::to_string(l);
    spec.in_channels = kChannels;
    spec.out_channels = kChannels;
    spec.kernel_size = 5;
    layers.push_back(test::draw_layer(random, spec));
  }
  const auto stack = std::make_shared<const Stack>(std::move(layers));
  for (const std::int64_t last_frames : {kFrames, kFrames - 1}) {  // in lockstep, and apart
    is_impatient = false;
    constexpr std::int64_t kStreams = 1000;
    ExecutorSpec spec{kStreams, kFrames};
    spec.now_ns = now_ns;
    const auto executor = make_cuda_executor(stack, spec);
    constexpr std::int64_t kSamples = kStreams * kChannels * kFrames;
    float* input = executor->allocate_samples(kSamples);
    float* output = executor->allocate_samples(kSamples);
    std::fill_n(input, kSamples, 1.0f);
    std::vector<SlotChunk> chunks;
    for (std::int64_t s = 0; s < kStreams; ++s) {
      const std::int64_t frames = s + 1 == kStreams ? last_frames : kFrames;
      const std::int64_t place = s * kChannels * kFrames;
      chunks.push_back(
          {s, planar<const float>(input + place, kChannels, frames), {output + place, kChannels, kFrames, kFrames, 1}});
    }
    executor->process(chunks, 0);
    EXPECT_EQ(std::count(output, output + kSamples, 0.0f), last_frames == kFrames ? 0 : kChannels);
    std::fill_n(output, kSamples, 0.0f);
    is_impatient = true;
    executor->process(chunks, 0);
    ASSERT_NE(executor->failure(), nullptr);
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(std::count(output, output + kSamples, 0.0f), kSamples);
  }
}

// The longest halo is of few channels and the widest layer has none: no grid of a pass may be as large as their
// product.
TEST_F(CudaExecutor, TakesAStackWhoseLongestHaloAndWidestLayerAreApart) {
  Random random(2);
  std::vector<Layer> layers;
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 513}, {513, 4}}) {
    LayerSpec spec;
    spec.name = "layers." + std::to_string(layers.size());
    spec.in_channels = in;
    spec.out_channels = out;
    if (layers.empty()) {
      spec.kernel_size = 3;
      spec.dilation = 8192;
    } else {
      spec.type = LayerType::kPointwise;
    }
    layers.push_back(test::draw_layer(random, spec));
  }
  constexpr std::int64_t kStreams = 64;
  constexpr std::int64_t kFrames = 4;
  const auto executor =
      make_cuda_executor(std::make_shared<const Stack>(std::move(layers)), ExecutorSpec{kStreams, kFrames});
  const std::vector<float> input = test::draw_signal(random, kStreams * kFrames);
  std::vector<float> output(kStreams * 4 * kFrames);
  std::vector<SlotChunk> chunks;
  for (std::int64_t s = 0; s < kStreams; ++s) {
    chunks.push_back({s, planar<const float>(input.data() + s * kFrames, 1, kFrames),
                      planar(output.data() + s * 4 * kFrames, std::int64_t{4}, kFrames)});
  }
  executor->process(chunks, 0);
  EXPECT_EQ(executor->failure(), nullptr);
  for (const SlotChunk& chunk : chunks) EXPECT_EQ(chunk.frames_emitted, kFrames);
}

}  // namespace
}  // namespace halotap::kernels::cuda
