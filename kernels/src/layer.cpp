#include "halotap/kernels/layer.hpp"

#include <Eigen/Core>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "halotap/kernels/names.hpp"

namespace halotap::kernels {
namespace {

constexpr std::array kLayerTypeNames{std::pair{LayerType::kTemporalConv, std::string_view{"temporal_conv"}},
                                     std::pair{LayerType::kPointwise, std::string_view{"pointwise"}}};
constexpr std::array kPaddingNames{std::pair{Padding::kCausal, std::string_view{"causal"}},
                                   std::pair{Padding::kSame, std::string_view{"same"}}};
constexpr std::array kActivationNames{
    std::pair{Activation::kIdentity, std::string_view{"identity"}},
    std::pair{Activation::kRelu, std::string_view{"relu"}},
    std::pair{Activation::kLeakyRelu, std::string_view{"leaky_relu"}},
    std::pair{Activation::kSilu, std::string_view{"silu"}},
    std::pair{Activation::kGelu, std::string_view{"gelu"}},
    std::pair{Activation::kTanh, std::string_view{"tanh"}},
    std::pair{Activation::kSigmoid, std::string_view{"sigmoid"}},
    std::pair{Activation::kSoftmax, std::string_view{"softmax"}},
};

[[noreturn]] void refuse(const std::string& what, const std::string& expected, const std::string& got) {
  throw std::invalid_argument(what + ": expected " + expected + ", got " + got);
}

// The shortest text that reads back as `number`.
std::string text_of(double number) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

void require_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most) {
    refuse(field, std::to_string(least) + " to " + std::to_string(most), std::to_string(value));
  }
}

void require_numbers(const char* tensor, const std::vector<double>& values, std::int64_t count) {
  if (static_cast<std::int64_t>(values.size()) != count) {
    refuse(tensor, std::to_string(count) + " numbers", std::to_string(values.size()));
  }
  constexpr double kLargest = std::numeric_limits<float>::max();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(std::abs(values[i]) <= kLargest)) {
      refuse(std::string(tensor) + "[" + std::to_string(i) + "]", "a finite number that float32 holds",
             text_of(values[i]));
    }
  }
}

void require_optional_numbers(const char* tensor, const std::vector<double>& values, std::int64_t count) {
  if (!values.empty()) require_numbers(tensor, values, count);
}

}  // namespace

std::string_view to_string(LayerType type) { return name_of(kLayerTypeNames, type); }
std::string_view to_string(Padding padding) { return name_of(kPaddingNames, padding); }
std::string_view to_string(Activation activation) { return name_of(kActivationNames, activation); }

std::int64_t LayerWeights::parameters() const {
  std::size_t count = dw_weight.size() + dw_bias.size() + pw_weight.size() + pw_bias.size();
  if (batch_norm) {
    count += batch_norm->weight.size() + batch_norm->bias.size() + batch_norm->running_mean.size() +
             batch_norm->running_var.size();
  }
  return static_cast<std::int64_t>(count);
}

FoldedDepthwise fold_batch_norm(const LayerSpec& spec, const LayerWeights& weights) {
  FoldedDepthwise folded{weights.dw_weight, weights.dw_bias};
  folded.bias.resize(static_cast<std::size_t>(spec.in_channels), 0.0);
  if (!weights.batch_norm) return folded;

  const BatchNorm& norm = *weights.batch_norm;
  using Vector = Eigen::Map<const Eigen::ArrayXd>;
  const auto vector = [&](const std::vector<double>& values) { return Vector(values.data(), spec.in_channels); };
  const Eigen::ArrayXd scale = vector(norm.weight) / (vector(norm.running_var) + norm.eps).sqrt();

  Eigen::Map<Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(folded.weight.data(),
                                                                                    spec.in_channels, spec.kernel_size)
      .colwise() *= scale;
  Eigen::Map<Eigen::ArrayXd> bias(folded.bias.data(), spec.in_channels);
  bias = (bias - vector(norm.running_mean)) * scale + vector(norm.bias);
  return folded;
}

void validate(const LayerSpec& spec) {
  require_range("in_channels", spec.in_channels, 1, kMaxChannels);
  require_range("out_channels", spec.out_channels, 1, kMaxChannels);
  require_range("kernel_size", spec.kernel_size, 1, kMaxKernelSize);
  require_range("dilation", spec.dilation, 1, kMaxHaloFrames);
  require_range("(kernel_size-1)*dilation", spec.halo_frames(), 0, kMaxHaloFrames);

  if (spec.type == LayerType::kPointwise) {
    if (spec.kernel_size != 1) refuse("kernel_size of a pointwise layer", "1", std::to_string(spec.kernel_size));
    if (spec.dilation != 1) refuse("dilation of a pointwise layer", "1", std::to_string(spec.dilation));
    if (spec.residual) refuse("residual of a pointwise layer", "false", "true");
    return;
  }
  if (spec.activation == Activation::kSoftmax) {
    refuse("activation of a temporal_conv", "any but softmax (softmax is for pointwise layers)", "softmax");
  }
  if (spec.padding == Padding::kSame && spec.halo_frames() % 2 != 0) {
    refuse("(kernel_size-1)*dilation with padding same", "an even number", std::to_string(spec.halo_frames()));
  }
  if (spec.residual && spec.in_channels != spec.out_channels) {
    refuse("residual", "in_channels equal to out_channels",
           std::to_string(spec.in_channels) + " and " + std::to_string(spec.out_channels));
  }
}

void validate(const LayerSpec& spec, const LayerWeights& weights) {
  const std::int64_t taps = spec.type == LayerType::kTemporalConv ? spec.in_channels * spec.kernel_size : 0;
  require_numbers("dw.weight", weights.dw_weight, taps);
  require_optional_numbers("dw.bias", weights.dw_bias, taps > 0 ? spec.in_channels : 0);
  require_numbers("pw.weight", weights.pw_weight, spec.in_channels * spec.out_channels);
  require_optional_numbers("pw.bias", weights.pw_bias, spec.out_channels);
  if (!weights.batch_norm) return;

  if (taps == 0) refuse("batch norm", "none on a pointwise layer", "one");
  const BatchNorm& norm = *weights.batch_norm;
  require_numbers("bn.weight", norm.weight, spec.in_channels);
  require_numbers("bn.bias", norm.bias, spec.in_channels);
  require_numbers("bn.running_mean", norm.running_mean, spec.in_channels);
  require_numbers("bn.running_var", norm.running_var, spec.in_channels);
  if (!(norm.eps > 0 && norm.eps <= std::numeric_limits<float>::max())) {
    refuse("bn_eps", "a positive number", text_of(norm.eps));
  }
  for (std::size_t c = 0; c < norm.running_var.size(); ++c) {
    if (norm.running_var[c] < 0) {
      refuse("bn.running_var[" + std::to_string(c) + "]", "0 or more", text_of(norm.running_var[c]));
    }
  }
  const FoldedDepthwise folded = fold_batch_norm(spec, weights);
  require_numbers("dw.weight with batch norm folded in", folded.weight, taps);
  require_numbers("dw.bias with batch norm folded in", folded.bias, spec.in_channels);
}

}  // namespace halotap::kernels
