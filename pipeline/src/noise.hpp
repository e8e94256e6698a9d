// Samples to time computing with.
#pragma once

#include <cstdint>
#include <vector>

namespace halotap::pipeline {

// Within ±0.5, finite and never denormal; the same on every machine. [control]
std::vector<float> noise(std::int64_t samples);

}  // namespace halotap::pipeline
