// How fast the core is, measured: the roof over every kernel's speed.
#pragma once

#include <chrono>

namespace halotap::pipeline {

// What this thread's core reaches at the SIMD level of the CPU backend (HALOTAP_ISA forces one), each figure the best
// of many short runs.
struct Roofline {
  double gflops = 0;           // 10^9 operations a second, two a multiply-add, all operands in registers
  double l2_gbytes_per_s = 0;  // 10^9 bytes a second, read in order from 512 KiB: the size of the weights of eight
                               // layers of 128 channels, too large for a first-level cache
};

// Measures on the calling thread for about `duration`, half of it a figure, and at least five runs each. Throws
// ConfigError when HALOTAP_ISA names no level of this build and processor, and DeviceError in a build without the CPU
// backend. [control]
Roofline measure_roofline(std::chrono::nanoseconds duration);

}  // namespace halotap::pipeline
