#include "cuda/stack_pack.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "cuda/float16.hpp"
#include "halotap/kernels/executor.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::draw;
using test::draw_stack;
using test::Random;
using Tile = StackTile;

// Reads images as the kernel's threads do.
struct Images {
  const std::vector<std::byte>& bytes;
  const StackPlan& plan;

  template <typename Number>
  double at(std::int64_t block, std::int64_t offset, std::int64_t index) const {
    Number number;
    std::memcpy(&number,
                bytes.data() + block * plan.image_bytes + offset + index * static_cast<std::int64_t>(sizeof number),
                sizeof number);
    return number;
  }
  double half(std::int64_t block, std::int64_t offset, std::int64_t index) const {
    return float16_value(static_cast<std::uint16_t>(at<std::uint16_t>(block, offset, index)));
  }
};

TEST(StackPack, GivesEveryBlockItsChannelsWeightsForEveryBlocksRows) {
  int packed = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    const auto stack = draw_stack(random, {.max_layers = 3, .max_channels = 70});
    StackPlan plan;
    if (!plan_stack(*stack, Precision::kFp32, plan).empty()) continue;
    ++packed;
    const std::vector<std::byte> bytes = pack_stack(*stack, plan);
    const Images images{bytes, plan};
    for (std::size_t l = 0; l < stack->layers().size(); ++l) {
      const Layer& layer = stack->layers()[l];
      const StackLayer& planned = plan.layers[l];
      for (int block = 0; block < planned.in_blocks; ++block) {
        for (int to = 0; to < planned.out_blocks; ++to) {
          for (int lane = 0; lane < 32; ++lane) {
            for (int number = 0; number < 8; ++number) {
              // Of a 16 x 8 operand, thread lane has row lane / 4 of tile number / 4; sums of rows 2 * (lane % 4) and
              // the next of each tile are one thread's, four rows side by side.
              const std::int64_t n = lane / 4;
              const std::int64_t row = 16 * to + 4 * (n / 2) + 2 * (number / 4) + n % 2;
              const std::int64_t channel = 16 * block + 4 * (lane % 4) + number % 4;
              const std::int64_t offset = planned.mix_offset + to * Tile::kMixBytes;
              const std::int64_t index = lane * 8 + number;
              const double sum =
                  images.half(block, offset, index) + images.half(block, offset + Tile::kUnitBytes, index);
              if (row >= layer.spec.out_channels || channel >= layer.spec.in_channels) {
                EXPECT_EQ(sum, 0);
                continue;
              }
              const double weight =
                  layer.weights.pw_weight[static_cast<std::size_t>(row * layer.spec.in_channels + channel)];
              const double unit =
                  layer.spec.type == LayerType::kTemporalConv && layer.spec.activation == Activation::kSilu
                      ? std::numbers::ln2
                      : 1;
              const double scale = images.at<float>(to, planned.rows_offset, row % 16);
              ASSERT_NEAR(sum * scale, weight * unit, std::abs(scale) * 0x1p-7 + std::abs(weight) * 0x1p-21);
            }
          }
        }
      }
    }
  }
  EXPECT_GT(packed, 10);
}

TEST(StackPack, KeepsTapsAndBiasesOfABlocksChannels) {
  Random random(4);
  LayerSpec spec;
  spec.name = "layer";
  spec.in_channels = 20;
  spec.out_channels = 35;
  spec.kernel_size = 3;
  spec.activation = Activation::kTanh;
  Layer layer = test::draw_layer(random, spec);
  layer.weights.pw_bias = test::draw_weights(random, 35, 1.0);
  const FoldedDepthwise folded = fold_batch_norm(spec, layer.weights);
  const Stack stack({layer});
  StackPlan plan;
  ASSERT_EQ(plan_stack(stack, Precision::kFp32, plan), "");
  const std::vector<std::byte> bytes = pack_stack(stack, plan);
  const Images images{bytes, plan};
  for (std::int64_t c = 0; c < 20; ++c) {
    for (std::int64_t k = 0; k < 3; ++k) {
      EXPECT_EQ(images.at<float>(c / 16, plan.layers[0].taps_offset, k * 16 + c % 16),
                static_cast<float>(folded.weight[static_cast<std::size_t>(c * 3 + k)]));
    }
    EXPECT_EQ(images.at<float>(c / 16, plan.layers[0].taps_offset, 3 * 16 + c % 16),
              static_cast<float>(folded.bias[static_cast<std::size_t>(c)]));
  }
  for (std::int64_t row = 0; row < 35; ++row) {
    EXPECT_EQ(images.at<float>(row / 16, plan.layers[0].rows_offset, 16 + row % 16),
              static_cast<float>(layer.weights.pw_bias[static_cast<std::size_t>(row)]));
  }
}

}  // namespace
}  // namespace halotap::kernels::cuda
