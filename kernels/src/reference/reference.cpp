#include "halotap/kernels/reference.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace halotap::kernels {
namespace {

// A planar [channels, frames] signal.
struct Signal {
  std::int64_t channels;
  std::int64_t frames;
  std::vector<double> samples;

  Signal(std::int64_t c, std::int64_t t) : channels(c), frames(t), samples(static_cast<std::size_t>(c * t), 0.0) {}
  double& at(std::int64_t c, std::int64_t t) { return samples[static_cast<std::size_t>(c * frames + t)]; }
  double at(std::int64_t c, std::int64_t t) const { return samples[static_cast<std::size_t>(c * frames + t)]; }
  double padded(std::int64_t c, std::int64_t t) const { return t < 0 || t >= frames ? 0.0 : at(c, t); }
};

double activate(Activation activation, double z) {
  switch (activation) {
    case Activation::kIdentity:
    case Activation::kSoftmax:  // across channels: softmax_channels
      return z;
    case Activation::kRelu:
      return z < 0 ? 0.0 : z;
    case Activation::kLeakyRelu:
      return z < 0 ? 0.01 * z : z;
    case Activation::kSilu:
      return z / (1 + std::exp(-z));
    case Activation::kGelu:
      return 0.5 * z * std::erfc(-z / std::sqrt(2.0));
    case Activation::kTanh:
      return std::tanh(z);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-z));
  }
  return z;
}

double weight_or_zero(const std::vector<double>& values, std::int64_t index) {
  return values.empty() ? 0.0 : values[static_cast<std::size_t>(index)];
}

double normalise(const BatchNorm& norm, std::int64_t channel, double z) {
  const auto c = static_cast<std::size_t>(channel);
  return (z - norm.running_mean[c]) / std::sqrt(norm.running_var[c] + norm.eps) * norm.weight[c] + norm.bias[c];
}

Signal depthwise(const LayerSpec& spec, const LayerWeights& weights, const Signal& x) {
  Signal a(spec.in_channels, x.frames);
  for (std::int64_t c = 0; c < spec.in_channels; ++c) {
    for (std::int64_t t = 0; t < x.frames; ++t) {
      double z = weight_or_zero(weights.dw_bias, c);
      for (std::int64_t k = 0; k < spec.kernel_size; ++k) {
        z += weights.dw_weight[static_cast<std::size_t>(c * spec.kernel_size + k)] *
             x.padded(c, t + k * spec.dilation - spec.left_frames());
      }
      if (weights.batch_norm) z = normalise(*weights.batch_norm, c, z);
      a.at(c, t) = activate(spec.activation, z);
    }
  }
  return a;
}

Signal mix_channels(const LayerSpec& spec, const LayerWeights& weights, const Signal& a) {
  Signal y(spec.out_channels, a.frames);
  for (std::int64_t o = 0; o < spec.out_channels; ++o) {
    for (std::int64_t t = 0; t < a.frames; ++t) {
      double sum = weight_or_zero(weights.pw_bias, o);
      for (std::int64_t c = 0; c < spec.in_channels; ++c) {
        sum += weights.pw_weight[static_cast<std::size_t>(o * spec.in_channels + c)] * a.at(c, t);
      }
      y.at(o, t) = sum;
    }
  }
  return y;
}

void softmax_channels(Signal& y) {
  for (std::int64_t t = 0; t < y.frames; ++t) {
    double largest = y.at(0, t);
    for (std::int64_t o = 1; o < y.channels; ++o) largest = std::max(largest, y.at(o, t));
    double sum = 0;
    for (std::int64_t o = 0; o < y.channels; ++o) sum += y.at(o, t) = std::exp(y.at(o, t) - largest);
    for (std::int64_t o = 0; o < y.channels; ++o) y.at(o, t) /= sum;
  }
}

Signal run_layer(const Layer& layer, const Signal& x) {
  const LayerSpec& spec = layer.spec;
  if (spec.type == LayerType::kPointwise) {
    Signal y = mix_channels(spec, layer.weights, x);
    for (double& sample : y.samples) sample = activate(spec.activation, sample);
    if (spec.activation == Activation::kSoftmax) softmax_channels(y);
    return y;
  }
  Signal y = mix_channels(spec, layer.weights, depthwise(spec, layer.weights, x));
  if (spec.residual) {
    for (std::size_t i = 0; i < y.samples.size(); ++i) y.samples[i] += x.samples[i];
  }
  return y;
}

}  // namespace

std::vector<double> run_reference(const Stack& stack, std::span<const float> input, std::int64_t frames,
                                  const Fill& fill) {
  assert(static_cast<std::int64_t>(input.size()) == stack.in_channels() * frames);
  if (frames == 0) return {};

  // receptive_field() frames of the fill stand for an endless past: no output from frame 0 on reaches further back.
  const std::int64_t past = fill.kind == FillKind::kZeros ? 0 : stack.receptive_field();
  Signal signal(stack.in_channels(), past + frames);
  for (std::int64_t c = 0; c < signal.channels; ++c) {
    const float* channel = input.data() + c * frames;
    for (std::int64_t t = 0; t < past; ++t)
      signal.at(c, t) = fill.kind == FillKind::kFrame ? fill.frame[c] : channel[0];
    for (std::int64_t t = 0; t < frames; ++t) signal.at(c, past + t) = channel[t];
  }
  for (const Layer& layer : stack.layers()) signal = run_layer(layer, signal);

  std::vector<double> output;
  output.reserve(static_cast<std::size_t>(signal.channels * frames));
  for (std::int64_t c = 0; c < signal.channels; ++c) {
    for (std::int64_t t = 0; t < frames; ++t) output.push_back(signal.at(c, past + t));
  }
  return output;
}

}  // namespace halotap::kernels
