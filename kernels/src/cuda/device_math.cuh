// Arithmetic that every block kernel shares: samples to float32 and back, activations, scaling and splitting.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/block.hpp"
#include "halotap/kernels/layer.hpp"

namespace halotap::kernels::cuda {

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }

template <typename Sample>
__device__ __forceinline__ Sample from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}

// 2^x, 2 units in the last place.
__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1/x, 1 unit in the last place; 0 for infinity and for what is so large that 1/x is denormal.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh(x), 2^-11 of it at the most.
__device__ __forceinline__ float tanh_fast(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float sigmoid(float z) {
  constexpr float kLog2E = 1.4426950408889634f;
  return reciprocal_fast(1.0f + exp2_fast(-kLog2E * z));
}

// GELU without a branch: max(z, 0) - u * q(u) with u = |z| and q(u) = erfc(u / sqrt(2)) / 2 = exp(-u^2 / 2) * P(t),
// t = 1 / (1 + 0.23 u): the form of Abramowitz and Stegun 7.1.26, with coefficients fitted for an even relative error
// of q, 3.9e-8. In float32 the result is within 2.4e-7 of the true one; relatively within 5e-7, from -2 upwards.
__device__ __forceinline__ float gelu(float z) {
  const float u = fabsf(z);
  const float t = reciprocal_fast(fmaf(0.23f, u, 1.0f));
  float p = -0.0767346099f;
  p = fmaf(p, t, 0.281455934f);
  p = fmaf(p, t, -0.258279055f);
  p = fmaf(p, t, 0.27688694f);
  p = fmaf(p, t, -0.0143196583f);
  p = fmaf(p, t, 0.110722855f);
  p = fmaf(p, t, 0.0882953182f);
  p = fmaf(p, t, 0.0919722617f);
  constexpr float kHalfLog2E = 0.72134752f;
  const float q = p * t * exp2_fast(-kHalfLog2E * u * u);
  return fmaf(-u, q, z < 0 ? 0.0f : z);
}

template <Activation kActivation>
__device__ __forceinline__ float activate(float z) {
  if constexpr (kActivation == Activation::kRelu) return z < 0 ? 0.0f : z;
  if constexpr (kActivation == Activation::kLeakyRelu) return z < 0 ? 0.01f * z : z;
  if constexpr (kActivation == Activation::kSilu) return z * sigmoid(z);
  if constexpr (kActivation == Activation::kGelu) return gelu(z);
  if constexpr (kActivation == Activation::kTanh) return tanhf(z);
  if constexpr (kActivation == Activation::kSigmoid) return sigmoid(z);
  return z;
}

// Calls `body` with the activation as a compile-time constant, so that the choice is made once for many numbers.
template <typename Body>
__device__ __forceinline__ void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kIdentity:
    case Activation::kSoftmax:  // a kernel of its own, afterwards
      return;
    case Activation::kRelu:
      return body([](float z) { return activate<Activation::kRelu>(z); });
    case Activation::kLeakyRelu:
      return body([](float z) { return activate<Activation::kLeakyRelu>(z); });
    case Activation::kSilu:
      return body([](float z) { return activate<Activation::kSilu>(z); });
    case Activation::kGelu:
      return body([](float z) { return activate<Activation::kGelu>(z); });
    case Activation::kTanh:
      return body([](float z) { return activate<Activation::kTanh>(z); });
    case Activation::kSigmoid:
      return body([](float z) { return activate<Activation::kSigmoid>(z); });
  }
}

// SiLU of z, given t = log2(e) * z and but for the factor ln 2: the packed taps hold the one, the row scales the other
// (pack.hpp), which saves a multiplication a sample.
__device__ __forceinline__ float silu_of_log2(float t) { return t * reciprocal_fast(1.0f + exp2_fast(-t)); }

// SiLU of z, given h = z / 2, by one instruction of the special functions. On compute capability 9.0 measured to be
// within 1.1e-5, and from z = -8 on closer than bfloat16 rounds it; the instruction's description bounds it by 2^-11 of
// |h|.
__device__ __forceinline__ float silu_of_half(float h) { return fmaf(h, tanh_fast(h), h); }

// The scale that a kernel may give every frame that it fits, so that most of the time no frame's largest magnitude must
// be known first: those whose largest scaled magnitude, rounded to float16, lies in [2^-3, 2^15), and silent ones. The
// second of two float16 terms rounds to multiples of 2^-24, 2^-22 of 2^-3 at most.
struct CommonScale {
  static constexpr float kScale = 512.0f;
  static constexpr std::uint32_t kQuietest = (15 - 3) << 10;  // the bits of 2^-3
  static constexpr std::uint32_t kLoudest = (15 + 15) << 10;  // and of 2^15
};

// silu_of_log2, times the common scale.
__device__ __forceinline__ float scaled_silu_of_log2(float t) {
  constexpr float kInverse = 1.0f / CommonScale::kScale;
  return t * reciprocal_fast(fmaf(exp2_fast(-t), kInverse, kInverse));
}

// As with_activation, for what the packed taps give.
template <Terms kTerms, typename Body>
__device__ __forceinline__ void with_activation_of_taps(Activation activation, const Body& body) {
  if (activation == Activation::kSilu) {
    return body([](float t) { return kTerms == Terms::kBfloat16 ? silu_of_half(t) : silu_of_log2(t); });
  }
  with_activation(activation, body);
}

// The same for float16 terms, times the common scale.
template <typename Body>
__device__ __forceinline__ void with_scaled_activation_of_taps(Activation activation, const Body& body) {
  if (activation == Activation::kSilu) return body([](float t) { return scaled_silu_of_log2(t); });
  if (activation == Activation::kIdentity) return body([](float z) { return z * CommonScale::kScale; });
  with_activation(activation, [&](auto function) { body([&](float z) { return function(z) * CommonScale::kScale; }); });
}

// A power of two that brings `largest` (not negative) into [2^14, 2^15), and its inverse; both normal numbers. The
// inverse of 1/scale is exact, so undoing the scale costs no accuracy.
struct FrameScale {
  float scale;
  float inverse;
};
__device__ __forceinline__ FrameScale frame_scale(float largest) {
  // 2^(14 - e) has the exponent field 127 + 14 - (field - 127); held to [1, 253] so that the inverse is normal too.
  const int field = static_cast<int>(__float_as_uint(largest) >> 23);
  const int scale_field = min(268 - field, 253);
  return {__uint_as_float(static_cast<std::uint32_t>(scale_field) << 23),
          __uint_as_float(static_cast<std::uint32_t>(254 - scale_field) << 23)};
}

// As frame_scale, but the common scale where that fits.
__device__ __forceinline__ FrameScale frame_scale_unless_common(float largest) {
  const std::uint32_t bits = __half_as_ushort(__float2half_rn(largest * CommonScale::kScale));
  if (largest == 0 || (bits >= CommonScale::kQuietest && bits < CommonScale::kLoudest)) {
    return {CommonScale::kScale, 1.0f / CommonScale::kScale};
  }
  return frame_scale(largest);
}

struct SplitPair {
  std::uint32_t high;  // two float16: the numbers rounded
  std::uint32_t low;   // two float16: what rounding left
};
__device__ __forceinline__ SplitPair split_pair(float first, float second) {
  const __half2 high = __floats2half2_rn(first, second);
  const float2 rounded = __half22float2(high);
  const __half2 low = __floats2half2_rn(first - rounded.x, second - rounded.y);
  return {*reinterpret_cast<const std::uint32_t*>(&high), *reinterpret_cast<const std::uint32_t*>(&low)};
}

// Two numbers rounded to bfloat16.
__device__ __forceinline__ std::uint32_t round_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

}  // namespace halotap::kernels::cuda
