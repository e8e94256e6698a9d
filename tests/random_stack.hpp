// Networks and signals drawn from a seed, for property tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "halotap/kernels/stack.hpp"

namespace halotap::test {

using kernels::Activation;
using kernels::Layer;
using kernels::LayerSpec;
using kernels::LayerType;
using kernels::Padding;
using kernels::Stack;

using Random = std::mt19937_64;

inline std::int64_t draw(Random& random, std::int64_t least, std::int64_t most) {
  return std::uniform_int_distribution<std::int64_t>(least, most)(random);
}

inline bool toss(Random& random) { return draw(random, 0, 1) == 1; }

inline std::vector<double> draw_weights(Random& random, std::int64_t count, double deviation) {
  std::normal_distribution<double> normal(0.0, deviation);
  std::vector<double> values(static_cast<std::size_t>(count));
  // Rounded to float32, so that executor and reference start from the same numbers.
  for (double& value : values) value = static_cast<float>(normal(random));
  return values;
}

// Weights for `spec`, biases and batch norm included at random; with magnitudes that keep activations near one.
inline Layer draw_layer(Random& random, const LayerSpec& spec) {
  Layer layer{spec, {}};
  const double fan_in = static_cast<double>(spec.in_channels);
  if (spec.type == LayerType::kTemporalConv) {
    layer.weights.dw_weight = draw_weights(random, spec.in_channels * spec.kernel_size,
                                           1.0 / std::sqrt(static_cast<double>(spec.kernel_size)));
    if (toss(random)) layer.weights.dw_bias = draw_weights(random, spec.in_channels, 0.5);
    if (toss(random)) {
      kernels::BatchNorm norm{draw_weights(random, spec.in_channels, 1.0), draw_weights(random, spec.in_channels, 0.5),
                              draw_weights(random, spec.in_channels, 0.5), draw_weights(random, spec.in_channels, 1.0),
                              1e-5};
      for (double& variance : norm.running_var) variance = 0.5 + std::abs(variance);
      layer.weights.batch_norm = norm;
    }
  }
  layer.weights.pw_weight = draw_weights(random, spec.in_channels * spec.out_channels, 1.0 / std::sqrt(fan_in));
  if (toss(random)) layer.weights.pw_bias = draw_weights(random, spec.out_channels, 0.5);
  return layer;
}

// Gives a layer the identity for a mix, which backends may leave out.
inline void make_identity(Layer& layer) {
  const auto channels = static_cast<std::size_t>(layer.spec.in_channels);
  layer.weights.pw_bias.clear();
  layer.weights.pw_weight.assign(channels * channels, 0.0);
  for (std::size_t c = 0; c < channels; ++c) layer.weights.pw_weight[c * channels + c] = 1.0;
}

struct StackBounds {
  std::int64_t max_layers = 4;
  std::int64_t max_channels = 40;
  std::int64_t max_kernel_size = 9;
  std::int64_t max_dilation = 6;
};

// The last activation, and the only one that no temporal_conv has.
inline constexpr auto kSoftmax = static_cast<std::int64_t>(Activation::kSoftmax);

inline std::shared_ptr<const Stack> draw_stack(Random& random, const StackBounds& bounds = {}) {
  const std::int64_t count = draw(random, 1, bounds.max_layers);
  std::vector<Layer> layers;
  std::int64_t channels = draw(random, 1, bounds.max_channels);
  for (std::int64_t l = 0; l < count; ++l) {
    LayerSpec spec;
    spec.name = "layers." + std::to_string(l);
    spec.in_channels = channels;
    spec.out_channels = toss(random) ? channels : draw(random, 1, bounds.max_channels);
    if (draw(random, 0, 3) == 0) {
      spec.type = LayerType::kPointwise;
      spec.activation = static_cast<Activation>(draw(random, 0, kSoftmax));
    } else {
      spec.kernel_size = draw(random, 1, bounds.max_kernel_size);
      spec.dilation = draw(random, 1, bounds.max_dilation);
      spec.activation = static_cast<Activation>(draw(random, 0, kSoftmax - 1));
      spec.padding = spec.halo_frames() % 2 == 0 && toss(random) ? Padding::kSame : Padding::kCausal;
      spec.residual = spec.in_channels == spec.out_channels && toss(random);
    }
    channels = spec.out_channels;
    layers.push_back(draw_layer(random, spec));
    if (spec.in_channels == spec.out_channels && !spec.residual && toss(random)) make_identity(layers.back());
  }
  return std::make_shared<const Stack>(std::move(layers));
}

inline std::vector<float> draw_signal(Random& random, std::int64_t samples) {
  std::normal_distribution<float> normal;
  std::vector<float> signal(static_cast<std::size_t>(samples));
  for (float& sample : signal) sample = normal(random);
  return signal;
}

}  // namespace halotap::test
