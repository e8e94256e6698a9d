// Rounding to bfloat16 on the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace halotap::kernels::cuda {

// `value` rounded to the nearest bfloat16, ties to even, as its 16 bits; beyond the range, infinity; below 2^-126 the
// least bits are cut off. A NaN stays one. [any thread]
inline std::uint16_t bfloat16_bits(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const auto rounded = static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(value, 8 - exponent)), exponent - 8));
  std::uint32_t bits = 0;
  std::memcpy(&bits, &rounded, sizeof bits);
  return static_cast<std::uint16_t>(bits >> 16);
}

// The number that 16 bits of bfloat16 stand for. [any thread]
inline float bfloat16_value(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

}  // namespace halotap::kernels::cuda
