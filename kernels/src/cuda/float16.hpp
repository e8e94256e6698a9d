// Rounding to float16 on the host.
#pragma once

#include <cmath>
#include <cstdint>

namespace halotap::kernels::cuda {

// `value` rounded to the nearest float16, ties to even, as its 16 bits; beyond the range, infinity. [any thread]
inline std::uint16_t float16_bits(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (!(magnitude < 65520.0)) return static_cast<std::uint16_t>(sign | (std::isnan(value) ? 0x7e00 : 0x7c00));
  if (magnitude == 0) return sign;
  // A float16 is a multiple of 2^(e-10) for a normal number of exponent e, and of 2^-24 below 2^-14.
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent-1), 2^exponent)
  const int e = exponent - 1 < -14 ? -14 : exponent - 1;
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, 10 - e)));
  // A normal number has steps in [2^10, 2^11]; adding them to the exponent field less one carries where it must.
  return static_cast<std::uint16_t>(sign | ((static_cast<std::uint32_t>(e + 14) << 10) + steps));
}

// The number that 16 bits of float16 stand for; not for infinities and NaN. [any thread]
inline double float16_value(std::uint16_t bits) {
  const int field = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude = field == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, field - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace halotap::kernels::cuda
