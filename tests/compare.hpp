// How near results are to what they should be.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <vector>

namespace halotap::test {

inline double relative_l2(const std::vector<float>& got, const std::vector<double>& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace halotap::test
