#include "cuda/pack.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "cuda/bfloat16.hpp"
#include "cuda/float16.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

void store_floats(std::vector<std::byte>& image, std::int64_t offset, const std::vector<float>& values) {
  std::memcpy(image.data() + offset, values.data(), values.size() * sizeof(float));
}

std::vector<float> padded_floats(const std::vector<double>& values, std::int64_t count) {
  std::vector<float> floats(static_cast<std::size_t>(count), 0.0f);
  std::transform(values.begin(), values.end(), floats.begin(), [](double value) { return static_cast<float>(value); });
  return floats;
}

}  // namespace

ImageLayout image_layout(const LayerSpec& spec, Terms terms) {
  ImageLayout layout;
  const std::int64_t whole_passes = spec.in_channels / Tile::kPassChannels;
  const std::int64_t steps =
      round_up(spec.in_channels % Tile::kPassChannels, Tile::kStepChannels) / Tile::kStepChannels;
  layout.in_padded = whole_passes * Tile::kPassChannels;
  if (steps > 0) {
    layout.in_padded +=
        Tile::kStepChannels * static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(steps)));
  }
  layout.out_padded = round_up(spec.out_channels, 64);
  layout.terms = count_of(terms);
  layout.taps = layout.terms * layout.term_bytes();
  layout.tap_bias = layout.taps + layout.in_padded * spec.kernel_size * 4;
  layout.row_scale = layout.tap_bias + layout.in_padded * 4;
  layout.mix_bias = layout.row_scale + layout.out_padded * 4;
  layout.size_bytes = layout.mix_bias + layout.out_padded * 4;
  return layout;
}

double scale_to_float16(const double* values, std::int64_t count) {
  double largest = 0;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  if (largest == 0) return 1;
  return std::ldexp(1.0, std::min(14 - std::ilogb(largest), 126));
}

std::vector<std::byte> pack_image(const Layer& layer, Terms terms) {
  const LayerSpec& spec = layer.spec;
  const ImageLayout layout = image_layout(spec, terms);
  std::vector<std::byte> image(static_cast<std::size_t>(layout.size_bytes));

  const bool silu_of_taps = spec.type == LayerType::kTemporalConv && spec.activation == Activation::kSilu;
  const bool bfloat16 = terms == Terms::kBfloat16;
  // Of the sums over taps, and of what they are activated to.
  const double unit = !silu_of_taps ? 1.0 : bfloat16 ? 0.5 : std::numbers::log2e;
  const double result_unit = bfloat16 ? 1.0 : unit;

  const std::int64_t k_steps = layout.in_padded / 16;
  std::vector<float> row_scale(static_cast<std::size_t>(layout.out_padded), 1.0f);
  for (std::int64_t row = 0; row < spec.out_channels; ++row) {
    const double* weights = layer.weights.pw_weight.data() + row * spec.in_channels;
    // Without scales of frames, room above the weights is room for loud ones.
    const double scale = scale_to_float16(weights, spec.in_channels) * (bfloat16 ? 0x1p-15 : 1.0);
    row_scale[static_cast<std::size_t>(row)] = static_cast<float>(1 / (scale * result_unit));
    for (std::int64_t channel = 0; channel < spec.in_channels; ++channel) {
      const std::int64_t r = row % 16;
      const std::int64_t c = channel % 16;
      const std::int64_t lane = r % 8 * 4 + c % 8 / 2;
      const std::int64_t number = c % 2 + r / 8 * 2 + c / 8 * 4;
      const std::int64_t tile = row / 16 * k_steps + channel / 16;
      double rest = weights[channel] * scale;
      for (std::int64_t term = 0; term < layout.terms; ++term) {
        const std::uint16_t bits = bfloat16 ? bfloat16_bits(rest) : float16_bits(rest);
        if (!bfloat16) rest -= float16_value(bits);
        std::memcpy(image.data() + layout.mix + term * layout.term_bytes() + ((tile * 32 + lane) * 8 + number) * 2,
                    &bits, sizeof bits);
      }
    }
  }

  FoldedDepthwise depthwise;
  if (spec.type == LayerType::kTemporalConv) {
    depthwise = fold_batch_norm(spec, layer.weights);
  } else {
    depthwise.weight.assign(static_cast<std::size_t>(spec.in_channels), 1.0);
  }
  std::vector<float> taps(static_cast<std::size_t>(layout.in_padded * spec.kernel_size), 0.0f);
  for (std::int64_t channel = 0; channel < spec.in_channels; ++channel) {
    for (std::int64_t k = 0; k < spec.kernel_size; ++k) {
      taps[static_cast<std::size_t>(k * layout.in_padded + channel)] =
          static_cast<float>(unit * depthwise.weight[static_cast<std::size_t>(channel * spec.kernel_size + k)]);
    }
  }
  for (double& bias : depthwise.bias) bias *= unit;
  store_floats(image, layout.taps, taps);
  store_floats(image, layout.tap_bias, padded_floats(depthwise.bias, layout.in_padded));
  store_floats(image, layout.row_scale, row_scale);
  store_floats(image, layout.mix_bias, padded_floats(layer.weights.pw_bias, layout.out_padded));
  return image;
}

}  // namespace halotap::kernels::cuda
