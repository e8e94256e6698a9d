// The compute kernels of the CPU backend, one set for every SIMD level, chosen once at run time.
//
// Activations lie frame by frame, channels fastest: row t holds `stride` floats, of which the first `channels` count
// and the rest is padding that nothing real is ever computed from. Wide rows are whole numbers of kRowFloats and start
// on such boundaries. Rows of 8 channels or fewer are narrow: 1, 2, 4 or 8 floats, so that one vector holds several
// frames; kernels then read and write up to kRowFloats past the last row, which must be there and hold nothing wanted.
// Every output frame is summed in one fixed order (taps ascending, then input channels ascending, one accumulator
// each), whatever the number of frames in a call: that is promise 2, bit-identity.
#pragma once

#include <hwy/aligned_allocator.h>

#include <bit>
#include <cstdint>

#include "halotap/kernels/layer.hpp"

namespace halotap::kernels::cpu {

using AlignedFloats = hwy::AlignedFreeUniquePtr<float[]>;

// Floats a row is rounded up to: 64 bytes, a cache line and the widest vector.
inline constexpr std::int64_t kRowFloats = 16;

// Taps from which on an input row is worth keeping for the frames a dilation further on.
inline constexpr std::int64_t kLongKernel = 16;

constexpr std::int64_t row_stride(std::int64_t channels) {
  if (channels <= kRowFloats / 2) return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(channels)));
  return (channels + kRowFloats - 1) / kRowFloats * kRowFloats;
}

// Floats that `rows` rows take, with what kernels may touch behind them.
constexpr std::int64_t rows_floats(std::int64_t rows, std::int64_t stride) {
  return (rows * stride + kRowFloats - 1) / kRowFloats * kRowFloats + kRowFloats;
}

// One layer's numbers in the order the kernels read them.
struct PackedLayer {
  LayerType type;
  Activation activation;
  bool residual;
  bool has_mix;  // see Layer::has_mix
  std::int64_t in_channels;
  std::int64_t out_channels;
  std::int64_t in_stride;   // row_stride(in_channels)
  std::int64_t out_stride;  // row_stride(out_channels)
  std::int64_t kernel_size;
  std::int64_t dilation;
  std::int64_t left_frames;
  std::int64_t right_frames;
  AlignedFloats
      dw_weight;          // [kernel_size, in_stride]; for narrow rows [kernel_size, kRowFloats], repeated by in_stride
  AlignedFloats dw_bias;  // [in_stride]; for narrow rows [kRowFloats], repeated
  AlignedFloats pw_weight;  // panels of output channels, each [in_channels, panel width]
  AlignedFloats pw_bias;    // [out_stride], at least [kRowFloats]

  std::int64_t halo_frames() const { return left_frames + right_frames; }
};

struct LayerKernels {
  const char* level;  // "AVX3"

  // Floats of PackedLayer::pw_weight, and its filling from [out_channels, in_channels] weights.
  std::int64_t (*pointwise_size)(std::int64_t in_channels, std::int64_t out_channels);
  void (*pack_pointwise)(const double* weight, std::int64_t in_channels, std::int64_t out_channels, float* packed);

  // a[t] = activation(dw_bias + sum_k dw_weight[k] * window[t + k*dilation]) for `frames` (at least 1) rows of
  // in_stride.
  void (*depthwise)(const PackedLayer& layer, const float* window, std::int64_t frames, float* a);

  // y[t] = pw_bias + sum_c pw_weight[c] * a[t][c] (+ residual[t] unless null), for `frames` (at least 1) rows: `a` and
  // `residual` of in_stride, `y` of out_stride. A pointwise layer's activation is applied to y.
  void (*pointwise)(const PackedLayer& layer, const float* a, const float* residual, std::int64_t frames, float* y);

  // rows[t][c] = x[c * channel_stride + t], and back: for views whose frames lie one behind the other.
  void (*read_planar)(const float* x, std::int64_t channel_stride, std::int64_t channels, std::int64_t frames,
                      float* rows, std::int64_t stride);
  void (*write_planar)(const float* rows, std::int64_t stride, std::int64_t channels, std::int64_t frames, float* y,
                       std::int64_t channel_stride);
};

// The set for the best SIMD level this processor has, or for the one that the environment variable HALOTAP_ISA names;
// throws std::invalid_argument when that is none of this build's and this processor's. [control]
const LayerKernels& layer_kernels();

}  // namespace halotap::kernels::cpu
