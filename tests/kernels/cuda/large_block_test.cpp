// Blocks over more samples than 32 bits count: what lies past 2^31 must come out as it does at the start of memory.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "cuda/block.hpp"
#include "cuda/device.hpp"
#include "cuda/on_a_card.hpp"
#include "halotap/kernels/executor.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr std::int64_t kChannels = 16;
constexpr std::int64_t kTail = 4096;         // frames that hold a signal, at the end
constexpr std::int64_t kCompared = 2048;     // of them, those whose past is all signal
using Samples = std::vector<std::uint16_t>;  // bfloat16

class LargeBlock : public OnACard {
 protected:
  void SetUp() override {
    OnACard::SetUp();
    if (IsSkipped()) return;
    test::Random random(1);
    LayerSpec spec;
    spec.name = "layer";
    spec.in_channels = kChannels;
    spec.out_channels = kChannels;
    spec.kernel_size = 5;
    spec.dilation = 2;
    spec.residual = true;
    BlockOptions options;
    options.x = Element::kBfloat16;
    options.y = Element::kBfloat16;
    block_ = std::make_unique<PackedBlock>(test::draw_layer(random, spec), options);
    for (const float sample : test::draw_signal(random, kChannels * kTail)) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &sample, sizeof bits);
      signal_.push_back(static_cast<std::uint16_t>(bits >> 16));
    }
    expected_ = run(1, kTail);
  }

  // The last item's last frames of the output over `count` items of `frames` frames, the signal at the end of the last.
  Samples run(std::int64_t count, std::int64_t frames) {
    const std::int64_t samples = count * kChannels * frames;
    const auto d_x = allocate_on_device<std::uint16_t>(samples);
    const auto d_y = allocate_on_device<std::uint16_t>(samples);
    const std::int64_t last = (count - 1) * kChannels * frames;
    const auto pitch = static_cast<std::size_t>(frames) * sizeof(std::uint16_t);
    const auto tail = static_cast<std::size_t>(kTail) * sizeof(std::uint16_t);
    require(cudaMemcpy2D(d_x.get() + last + frames - kTail, pitch, signal_.data(), tail, tail, kChannels,
                         cudaMemcpyHostToDevice),
            "cudaMemcpy2D");
    Items items;
    items.count = count;
    items.first = {d_x.get(), d_y.get(), frames, frames, frames, 0, frames, 0, frames};
    items.x_stride = kChannels * frames;
    items.y_stride = kChannels * frames;
    require(launch_block(*block_, items, nullptr), "launch_block");
    Samples output(static_cast<std::size_t>(kChannels * kCompared));
    const auto compared = static_cast<std::size_t>(kCompared) * sizeof(std::uint16_t);
    require(cudaMemcpy2D(output.data(), compared, d_y.get() + last + frames - kCompared, pitch, compared, kChannels,
                         cudaMemcpyDeviceToHost),
            "cudaMemcpy2D");
    return output;
  }

  std::unique_ptr<PackedBlock> block_;
  Samples signal_;  // [channels, tail]
  Samples expected_;
};

TEST_F(LargeBlock, GivesTheSameBitsAtTheEndOfAVeryLongRecording) {
  EXPECT_EQ(run(1, (std::int64_t{1} << 27) + 1000), expected_);
}

TEST_F(LargeBlock, GivesTheSameBitsInTheLastOfVeryManyRecordings) {
  EXPECT_EQ(run((std::int64_t{1} << 15) + 1, kTail), expected_);
}

}  // namespace
}  // namespace halotap::kernels::cuda
