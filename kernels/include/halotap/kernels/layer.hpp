// One layer of a network: its shape (LayerSpec), its numbers (LayerWeights) and the rules both must keep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halotap::kernels {

enum class LayerType { kTemporalConv, kPointwise };
enum class Padding { kCausal, kSame };
// softmax, the only one that is not elementwise, stays last: tests draw from the values before it.
enum class Activation { kIdentity, kRelu, kLeakyRelu, kSilu, kGelu, kTanh, kSigmoid, kSoftmax };

// Names as model files spell them ("temporal_conv", "same", "leaky_relu"). [any thread]
std::string_view to_string(LayerType type);
std::string_view to_string(Padding padding);
std::string_view to_string(Activation activation);

// Bounds on what one layer may ask for. They keep every product of shapes inside 64 bits and a malformed file from
// claiming the whole memory; no network we know of comes near them.
inline constexpr std::int64_t kMaxChannels = 16384;
inline constexpr std::int64_t kMaxKernelSize = 65536;
inline constexpr std::int64_t kMaxHaloFrames = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxLayers = 4096;

// The shape of one layer.
//
// temporal_conv, with x[C_in, T] zero outside [0, T):
//     z[c,t] = dw_bias[c] + sum_k dw[c,k] * x[c, t + k*dilation - left]
//     a      = activation(batch_norm(z))
//     y[o,t] = pw_bias[o] + sum_c pw[o,c] * a[c,t]   (+ x[o,t] when residual)
// pointwise:
//     y[o,t] = activation(pw_bias[o] + sum_c pw[o,c] * x[c,t])
//
// A pointwise layer keeps kernel_size 1, dilation 1, causal and no residual; softmax (over channels) is for pointwise
// layers only.
struct LayerSpec {
  std::string name;
  LayerType type = LayerType::kTemporalConv;
  std::int64_t in_channels = 0;        // 1 to kMaxChannels
  std::int64_t out_channels = 0;       // 1 to kMaxChannels
  std::int64_t kernel_size = 1;        // taps, 1 to kMaxKernelSize
  std::int64_t dilation = 1;           // frames between taps, at least 1
  Padding padding = Padding::kCausal;  // same: (kernel_size-1)*dilation must be even
  Activation activation = Activation::kSilu;
  bool residual = false;  // needs in_channels == out_channels

  // Frames between the first and the last tap: (kernel_size-1)*dilation. [any thread]
  std::int64_t halo_frames() const { return (kernel_size - 1) * dilation; }
  // Frames the first tap reaches back. [any thread]
  std::int64_t left_frames() const { return halo_frames() - right_frames(); }
  // Frames the last tap reaches ahead: the layer's lookahead. [any thread]
  std::int64_t right_frames() const { return padding == Padding::kSame ? halo_frames() / 2 : 0; }
};

// Inference-time batch normalisation of the depthwise output, one entry a channel:
//     bn(z) = (z - running_mean) / sqrt(running_var + eps) * weight + bias
struct BatchNorm {
  std::vector<double> weight;
  std::vector<double> bias;
  std::vector<double> running_mean;
  std::vector<double> running_var;  // not negative
  double eps = 1e-5;                // > 0
};

// The numbers of one layer, in double so that a float64 checkpoint loses nothing before a backend packs it.
struct LayerWeights {
  std::vector<double> dw_weight;        // [in_channels, kernel_size], taps fastest; empty for pointwise
  std::vector<double> dw_bias;          // [in_channels], or empty for none
  std::optional<BatchNorm> batch_norm;  // over in_channels; none for pointwise
  std::vector<double> pw_weight;        // [out_channels, in_channels], in_channels fastest
  std::vector<double> pw_bias;          // [out_channels], or empty for none

  // Numbers held, batch norm statistics included. [any thread]
  std::int64_t parameters() const;
};

// Depthwise weights with the batch norm multiplied in: z' = sum_k weight[c,k] * x + bias[c] equals bn(z).
struct FoldedDepthwise {
  std::vector<double> weight;  // [in_channels, kernel_size]
  std::vector<double> bias;    // [in_channels]
};

// Folds the layer's batch norm (if any) into its depthwise weights and bias. The layer must be valid. [control]
FoldedDepthwise fold_batch_norm(const LayerSpec& spec, const LayerWeights& weights);

// Throws std::invalid_argument naming the field, what it must be and what it is, when
// - a shape field is out of its range, or (kernel_size-1)*dilation above kMaxHaloFrames,
// - padding is same and (kernel_size-1)*dilation odd,
// - residual is set while in_channels differs from out_channels,
// - a pointwise layer has taps, dilation, same padding or a residual, or softmax is on a temporal_conv. [control]
void validate(const LayerSpec& spec);

// Throws std::invalid_argument naming the tensor when one has the wrong length, holds a NaN, an Inf or a number that
// float32 cannot hold (also after folding), or a running_var + eps is not positive. `spec` must be valid. [control]
void validate(const LayerSpec& spec, const LayerWeights& weights);

}  // namespace halotap::kernels
