#include "cuda/stack_pack.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numbers>

#include "cuda/float16.hpp"
#include "cuda/pack.hpp"

namespace halotap::kernels::cuda {
namespace {

using Tile = StackTile;

template <typename Number>
void store(std::byte* to, std::int64_t index, Number number) {
  std::memcpy(to + index * static_cast<std::int64_t>(sizeof number), &number, sizeof number);
}

void pack_layer(const Layer& layer, const StackLayer& planned, const StackPlan& plan, std::byte* images) {
  const LayerSpec& spec = layer.spec;
  constexpr std::int64_t kChannels = Tile::kBlockChannels;
  // See pack_image: SiLU's taps are times log2(e).
  const bool silu_of_taps = spec.type == LayerType::kTemporalConv && spec.activation == Activation::kSilu;
  const double unit = silu_of_taps ? std::numbers::log2e : 1.0;
  const auto image_of = [&](std::int64_t block, std::int64_t offset) {
    return images + block * plan.image_bytes + offset;
  };

  for (std::int64_t row = 0; row < spec.out_channels; ++row) {
    const double* weights = layer.weights.pw_weight.data() + row * spec.in_channels;
    const double scale = scale_to_float16(weights, spec.in_channels);
    std::byte* rows = image_of(row / kChannels, planned.rows_offset);
    store(rows, row % kChannels, static_cast<float>(1 / (scale * unit)));
    if (!layer.weights.pw_bias.empty()) {
      store(rows, kChannels + row % kChannels,
            static_cast<float>(layer.weights.pw_bias[static_cast<std::size_t>(row)]));
    }
    for (std::int64_t channel = 0; channel < spec.in_channels; ++channel) {
      const std::int64_t r = row % kChannels;
      const std::int64_t c = channel % kChannels;
      const std::int64_t lane = (r / 4 * 2 + r % 2) * 4 + c / 4;
      const std::int64_t number = r % 4 / 2 * 4 + c % 4;
      std::byte* mix = image_of(channel / kChannels, planned.mix_offset + row / kChannels * Tile::kMixBytes);
      const double scaled = weights[channel] * scale;
      const std::uint16_t high = float16_bits(scaled);
      store(mix, lane * 8 + number, high);
      store(mix + Tile::kUnitBytes, lane * 8 + number, float16_bits(scaled - float16_value(high)));
    }
  }

  FoldedDepthwise depthwise;
  if (spec.type == LayerType::kTemporalConv) {
    depthwise = fold_batch_norm(spec, layer.weights);
  } else {
    depthwise.weight.assign(static_cast<std::size_t>(spec.in_channels), 1.0);
    depthwise.bias.assign(static_cast<std::size_t>(spec.in_channels), 0.0);
  }
  for (std::int64_t channel = 0; channel < spec.in_channels; ++channel) {
    std::byte* taps = image_of(channel / kChannels, planned.taps_offset);
    const double* weights = depthwise.weight.data() + channel * spec.kernel_size;
    for (std::int64_t k = 0; k < spec.kernel_size; ++k) {
      store(taps, k * kChannels + channel % kChannels, static_cast<float>(unit * weights[k]));
    }
    store(taps, spec.kernel_size * kChannels + channel % kChannels,
          static_cast<float>(unit * depthwise.bias[static_cast<std::size_t>(channel)]));
  }
}

}  // namespace

std::vector<std::byte> pack_stack(const Stack& stack, const StackPlan& plan) {
  std::vector<std::byte> images(static_cast<std::size_t>(plan.blocks) * static_cast<std::size_t>(plan.image_bytes));
  for (std::size_t l = 0; l < stack.layers().size(); ++l) {
    pack_layer(stack.layers()[l], plan.layers[l], plan, images.data());
  }
  return images;
}

}  // namespace halotap::kernels::cuda
