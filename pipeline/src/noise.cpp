#include "noise.hpp"

namespace halotap::pipeline {

std::vector<float> noise(std::int64_t samples) {
  std::vector<float> result(static_cast<std::size_t>(samples));
  std::uint64_t state = 0;
  for (float& sample : result) {
    // splitmix64, as in the chunker.
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    sample = static_cast<float>(mixed >> 40) / 16777216.0f - 0.5f;
  }
  return result;
}

}  // namespace halotap::pipeline
