#include "cuda/stack_plan.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>

namespace halotap::kernels::cuda {
namespace {

using Tile = StackTile;

std::int32_t blocks_of(std::int64_t channels) {
  return static_cast<std::int32_t>((channels + Tile::kBlockChannels - 1) / Tile::kBlockChannels);
}

std::string mebibytes(std::int64_t bytes) {
  const std::int64_t tenths = (bytes * 10 + (1 << 19)) >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

std::string why_not(const LayerSpec& spec) {
  if (spec.activation == Activation::kSoftmax) return "layer " + spec.name + " has softmax";
  const std::int64_t channels = std::max(spec.in_channels, spec.out_channels);
  if (channels > Tile::kMostChannels) {
    return "layer " + spec.name + " has " + std::to_string(channels) + " channels, more than " +
           std::to_string(Tile::kMostChannels);
  }
  return "";
}

// How many items of each size go into a tile of `columns`, with at least `least` layers' windows. False when none does.
bool divide_windows(StackPlan& plan, std::int32_t columns, std::int32_t least) {
  for (std::int32_t size = 0; size < Tile::kColumnSizes; ++size) {
    const std::int32_t item_columns = 1 << size;
    plan.items[size] = 0;
    if (item_columns > columns) continue;
    std::int32_t items = columns / item_columns;
    while (items > 1 && plan.windows(size, items) < std::min(least, plan.layer_count)) items /= 2;
    plan.items[size] = items;
    if (plan.windows(size, items) < std::min(2, plan.layer_count)) return false;
  }
  return true;
}

}  // namespace

std::string plan_stack(const Stack& stack, Precision precision, StackPlan& plan) {
  plan = StackPlan{};
  if (precision != Precision::kFp32) return "precision is not fp32";
  if (std::ssize(stack.layers()) > Tile::kMostLayers) {
    return std::to_string(stack.layers().size()) + " layers, more than " + std::to_string(Tile::kMostLayers);
  }
  std::int32_t most_blocks = Tile::kLeastBlocks;
  for (const Layer& layer : stack.layers()) {
    if (const std::string why = why_not(layer.spec); !why.empty()) return why;
    most_blocks = std::max({most_blocks, blocks_of(layer.spec.in_channels), blocks_of(layer.spec.out_channels)});
  }
  plan.blocks = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(most_blocks)));
  plan.block_bits = std::countr_zero(static_cast<std::uint32_t>(plan.blocks));
  plan.in_channels = static_cast<std::int32_t>(stack.in_channels());
  plan.out_channels = static_cast<std::int32_t>(stack.out_channels());

  // In 64 bits until it is known to fit: a layer may have 65536 taps.
  std::int64_t image = 0;
  std::int64_t rows = 0;
  std::int64_t lag = 0;
  std::int64_t longest_halo = 0;
  for (const Layer& layer : stack.layers()) {
    const LayerSpec& spec = layer.spec;
    StackLayer& planned = plan.layers[plan.layer_count++];
    const std::int64_t taps_offset = image + std::int64_t{blocks_of(spec.out_channels)} * Tile::kMixBytes;
    const std::int64_t rows_offset = taps_offset + (spec.kernel_size + 1) * Tile::kRowBytes;
    const std::int64_t end = rows_offset + 2 * Tile::kRowBytes;
    if (end > Tile::kSharedBytes) {
      std::int64_t bytes = 0;
      for (const Layer& any : stack.layers()) {
        bytes += any.spec.in_channels * (any.spec.out_channels + any.spec.kernel_size) * 4;
      }
      return "weights of " + mebibytes(bytes) + " do not fit";
    }
    longest_halo = std::max(longest_halo, spec.halo_frames());
    if (longest_halo * Tile::kRowBytes > Tile::kSharedBytes) return "halos do not fit";
    const auto halo = static_cast<std::int32_t>(spec.halo_frames());
    const auto right = static_cast<std::int32_t>(spec.right_frames());
    const auto ring = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(halo)));
    planned.mix_offset = static_cast<std::int32_t>(image);
    planned.taps_offset = static_cast<std::int32_t>(taps_offset);
    planned.rows_offset = static_cast<std::int32_t>(rows_offset);
    planned.halo_bytes = halo * Tile::kRowBytes;
    planned.step_bytes = static_cast<std::int32_t>(spec.dilation) * Tile::kRowBytes;
    planned.taps = static_cast<std::int32_t>(spec.kernel_size);
    if (spec.residual) planned.residual_offset = (halo - right) * Tile::kRowBytes;
    planned.lag_frames = static_cast<std::int32_t>(lag);
    planned.ring_row = static_cast<std::int32_t>(rows);
    planned.ring_mask = ring - 1;
    planned.in_blocks = blocks_of(spec.in_channels);
    planned.out_blocks = blocks_of(spec.out_channels);
    (spec.type == LayerType::kPointwise ? planned.after_mix : planned.before_mix) = spec.activation;
    planned.halo_frames = halo;
    if (plan.layer_count == 1) plan.taps = planned.taps;
    if (plan.taps != planned.taps) plan.taps = 0;
    image = end;
    if (halo > 0) rows += ring;
    lag += spec.right_frames();
  }
  plan.out_lag_frames = static_cast<std::int32_t>(lag);
  plan.ring_rows = static_cast<std::int32_t>(rows);
  plan.image_bytes = static_cast<std::int32_t>(image);
  plan.window_frames = static_cast<std::int32_t>(longest_halo);

  // The widest tile with room for two layers' windows; with several items only if there is room for three, so that a
  // halo arrives while another layer is computed.
  for (std::int32_t columns = Tile::kMostColumns; columns >= 2 * Tile::kUnitColumns; columns /= 2) {
    plan.columns = columns;
    plan.partials_offset = (plan.image_bytes + 127) / 128 * 128;
    plan.operand_offset = plan.partials_offset + 2 * Tile::kMostParts * plan.blocks * Tile::kPartialBytes;
    plan.inverse_offset = plan.operand_offset + 2 * Tile::kOperandBytes;
    plan.output_offset = plan.inverse_offset + 2 * Tile::kInverseBytes;
    plan.windows_offset = plan.output_offset + Tile::kBlockChannels * Tile::kOutputStride * 4;
    if (plan.windows_offset < Tile::kSharedBytes && divide_windows(plan, columns, 3)) {
      const std::int32_t frames = (Tile::kSharedBytes - plan.windows_offset) / Tile::kRowBytes / plan.layer_count;
      for (std::int32_t size = Tile::kLeastSplitSize; size < Tile::kColumnSizes; ++size) {
        if (plan.window_frames + (1 << size) / 2 <= frames) plan.most_split_size = size;
      }
      return "";
    }
  }
  return "weights and halos do not fit together";
}

PassShape make_stack_shape(const Stack& stack, const StackPlan& plan, const ExecutorSpec& spec) {
  PassShape shape = make_pass_shape(stack, spec);
  shape.step_frames = std::min<std::int64_t>(spec.max_chunk_frames, plan.columns);
  // Rows of four frames, which a thread moves at a time; shorter ones side by side.
  const std::int64_t stride = shape.step_frames <= 2 ? shape.step_frames : (shape.step_frames + 3) / 4 * 4;
  shape.in_place_floats = kAlignFrames;
  shape.in_stride = stride;
  shape.out_stride = stride;
  shape.window_floats = 0;
  shape.state_floats = std::int64_t{plan.blocks} * plan.ring_rows * Tile::kBlockChannels;
  if (shape.state_floats > std::numeric_limits<std::int64_t>::max() / 8 / shape.max_slots) throw std::bad_alloc();
  // As many items as there are streams, while what is staged stays within a quarter of a gigabyte.
  constexpr std::int64_t kMostStagedFloats = std::int64_t{1} << 26;
  shape.max_items = std::clamp<std::int64_t>(kMostStagedFloats / ((plan.in_channels + plan.out_channels) * stride), 1,
                                             std::min(spec.max_streams, StackTile::kMostItems));
  return shape;
}

}  // namespace halotap::kernels::cuda
