#include "cuda/stack_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::draw;
using test::draw_layer;
using test::draw_stack;
using test::Random;
using Tile = StackTile;

LayerSpec conv(std::int64_t in, std::int64_t out, std::int64_t kernel_size = 5, std::int64_t dilation = 1) {
  LayerSpec spec;
  spec.in_channels = in;
  spec.out_channels = out;
  spec.kernel_size = kernel_size;
  spec.dilation = dilation;
  return spec;
}

Stack stack_of(std::vector<LayerSpec> specs) {
  Random random(1);
  std::vector<Layer> layers;
  for (LayerSpec& spec : specs) {
    spec.name = "layers." + std::to_string(layers.size());
    layers.push_back(draw_layer(random, spec));
  }
  return Stack(std::move(layers));
}

std::string why_not(const Stack& stack, Precision precision = Precision::kFp32) {
  StackPlan plan;
  return plan_stack(stack, precision, plan);
}

TEST(StackPlan, TakesEightLayersOf128ChannelsWithAnInputLayer) {
  std::vector<LayerSpec> specs(8, conv(128, 128));
  for (std::size_t l = 0; l < specs.size(); ++l) specs[l].dilation = std::int64_t{1} << l % 4;
  specs.insert(specs.begin(), conv(54, 128));
  StackPlan plan;
  EXPECT_EQ(plan_stack(stack_of(specs), Precision::kFp32, plan), "");
  EXPECT_EQ(plan.blocks, 8);
  EXPECT_EQ(plan.columns, 64);
  EXPECT_EQ(plan.taps, 5);
  EXPECT_EQ(plan.layers[0].in_blocks, 4);
  EXPECT_EQ(plan.layers[1].in_blocks, 8);
  EXPECT_EQ(plan.items[6], 1);
  for (const int size : {0, 6})
    EXPECT_EQ(plan.windows(size, 1), 9) << "a stream alone has all its halos from the start";
}

TEST(StackPlan, SaysWhyAStackTakesAKernelALayer) {
  LayerSpec head = conv(16, 4, 1);
  head.type = LayerType::kPointwise;
  head.activation = Activation::kSoftmax;
  EXPECT_EQ(why_not(stack_of({conv(16, 16), head})), "layer layers.1 has softmax");
  EXPECT_EQ(why_not(stack_of({conv(16, 129)})), "layer layers.0 has 129 channels, more than 128");
  EXPECT_EQ(why_not(stack_of({conv(16, 16)}), Precision::kBf16), "precision is not fp32");
  EXPECT_EQ(why_not(stack_of(std::vector<LayerSpec>(49, conv(16, 16)))), "49 layers, more than 48");
  EXPECT_EQ(why_not(stack_of(std::vector<LayerSpec>(32, conv(128, 128)))), "weights of 2.1 MiB do not fit");
  EXPECT_EQ(why_not(stack_of({conv(16, 16, 2, 4000)})), "halos do not fit");
  EXPECT_EQ(why_not(stack_of({conv(16, 16, 2, 3000), conv(16, 16, 2, 3000)})), "weights and halos do not fit together");
}

TEST(StackPlan, UsesNoMoreBlocksThanChannelsNeed) {
  const std::pair<std::int64_t, std::int32_t> blocks_of_channels[] = {{1, 2},  {16, 2}, {32, 2},
                                                                      {33, 4}, {64, 4}, {65, 8}};
  for (const auto& [channels, blocks] : blocks_of_channels) {
    StackPlan plan;
    ASSERT_EQ(plan_stack(stack_of({conv(1, channels)}), Precision::kFp32, plan), "");
    EXPECT_EQ(plan.blocks, blocks) << channels;
  }
}

TEST(StackPlan, LaysEverythingOutWithoutOverlapInsideSharedMemory) {
  int planned = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Random random(seed);
    const auto stack =
        draw_stack(random, {.max_layers = 12, .max_channels = 128, .max_kernel_size = 9, .max_dilation = 40});
    StackPlan plan;
    if (!plan_stack(*stack, Precision::kFp32, plan).empty()) continue;
    ++planned;
    ASSERT_EQ(plan.layer_count, std::ssize(stack->layers()));
    std::int32_t image = 0;
    std::int32_t rows = 0;
    for (std::int32_t l = 0; l < plan.layer_count; ++l) {
      const StackLayer& layer = plan.layers[l];
      EXPECT_EQ(layer.mix_offset, image);
      EXPECT_EQ(layer.taps_offset, layer.mix_offset + layer.out_blocks * Tile::kMixBytes);
      EXPECT_EQ(layer.rows_offset, layer.taps_offset + (layer.taps + 1) * Tile::kRowBytes);
      image = layer.rows_offset + 2 * Tile::kRowBytes;
      EXPECT_GE(layer.ring_mask + 1, layer.halo_frames);
      EXPECT_EQ(layer.ring_row, rows);
      if (layer.halo_frames > 0) rows += layer.ring_mask + 1;
      EXPECT_LE(std::max(layer.in_blocks, layer.out_blocks), plan.blocks);
    }
    EXPECT_EQ(plan.image_bytes, image);
    EXPECT_EQ(plan.ring_rows, rows);
    EXPECT_GE(plan.partials_offset, plan.image_bytes);
    EXPECT_EQ(plan.operand_offset, plan.partials_offset + 2 * Tile::kMostParts * plan.blocks * Tile::kPartialBytes);
    EXPECT_EQ(plan.inverse_offset, plan.operand_offset + 2 * Tile::kOperandBytes);
    EXPECT_EQ(plan.output_offset, plan.inverse_offset + 2 * Tile::kInverseBytes);
    EXPECT_EQ(plan.windows_offset, plan.output_offset + Tile::kBlockChannels * Tile::kOutputStride * 4);
    for (int size = 0; size < Tile::kColumnSizes; ++size) {
      const std::int32_t columns = 1 << size;
      if (columns > plan.columns) {
        EXPECT_EQ(plan.items[size], 0);
        continue;
      }
      EXPECT_GE(plan.items[size], 1);
      EXPECT_EQ(plan.items[size] & (plan.items[size] - 1), 0) << "a power of two";
      EXPECT_LE(plan.items[size] * columns, plan.columns);
      const std::int32_t windows = plan.windows(size, plan.items[size]);
      EXPECT_GE(windows, std::min(2, plan.layer_count)) << "of a layer and the one before";
      const std::int32_t bytes = plan.items[size] * (plan.window_frames + columns) * Tile::kRowBytes;
      EXPECT_LE(plan.windows_offset + windows * bytes, Tile::kSharedBytes);
    }
    if (plan.most_split_size > 0) {
      const std::int32_t half_bytes = (plan.window_frames + (1 << plan.most_split_size) / 2) * Tile::kRowBytes;
      EXPECT_LE(plan.windows_offset + plan.layer_count * half_bytes, Tile::kSharedBytes);
    }
  }
  EXPECT_GT(planned, 100);
}

TEST(StackPlan, SplitsWhatTwoTeamsAreFasterAtAndHaveRoomFor) {
  StackPlan plan;
  ASSERT_EQ(plan_stack(stack_of(std::vector<LayerSpec>(8, conv(128, 128, 5, 8))), Precision::kFp32, plan), "");
  EXPECT_TRUE(plan.splits(4, 1, false, 1));
  EXPECT_TRUE(plan.splits(6, 7, false, 7));
  EXPECT_FALSE(plan.splits(3, 1, false, 1)) << "8 frames";
  EXPECT_FALSE(plan.splits(6, 8, false, 7)) << "more streams than clusters";
  EXPECT_FALSE(plan.splits(6, 1, true, 1)) << "a stream that starts to hold a frame";
  // 160 frames of halo a layer: two layers' windows at a time, not eight.
  ASSERT_EQ(plan_stack(stack_of(std::vector<LayerSpec>(8, conv(128, 128, 5, 40))), Precision::kFp32, plan), "");
  EXPECT_FALSE(plan.splits(6, 1, false, 1));
}

TEST(StackShape, StepsThroughTilesAndKeepsRingsAsState) {
  const Stack stack = stack_of({conv(54, 128, 5, 2), conv(128, 20, 4, 1)});
  StackPlan plan;
  ASSERT_EQ(plan_stack(stack, Precision::kFp32, plan), "");
  const PassShape shape = make_stack_shape(stack, plan, {.max_streams = 3, .max_chunk_frames = 1000});
  EXPECT_EQ(shape.step_frames, 64);
  EXPECT_EQ(shape.in_stride, 64);
  EXPECT_EQ(shape.max_items, 3);
  EXPECT_EQ(shape.in_place_floats, 4) << "the kernel reads and writes 16 bytes at a time";
  EXPECT_EQ(shape.state_floats, 8 * (8 + 4) * 16) << "halos of 8 and 3 frames";
  const std::pair<std::int64_t, std::int64_t> stride_of_step[] = {{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {33, 36}};
  for (const auto& [step, stride] : stride_of_step) {
    const PassShape small = make_stack_shape(stack, plan, {.max_streams = 1, .max_chunk_frames = step});
    EXPECT_EQ(small.step_frames, step);
    EXPECT_EQ(small.in_stride, stride);
    EXPECT_EQ(small.out_stride, stride);
  }
  EXPECT_EQ(make_stack_shape(stack, plan, {.max_streams = 1 << 20, .max_chunk_frames = 64}).max_items,
            (1 << 26) / (74 * 64));
  EXPECT_EQ(make_stack_shape(stack, plan, {.max_streams = 1 << 20, .max_chunk_frames = 1}).max_items, (1 << 26) / 74);
}

}  // namespace
}  // namespace halotap::kernels::cuda
