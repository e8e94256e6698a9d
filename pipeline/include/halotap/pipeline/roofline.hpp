// How fast the core is, measured: the roof over every kernel's speed.
#pragma once

#include <vector>

namespace halotap::pipeline {

// What the calling thread's core reaches at the SIMD level of the CPU backend (HALOTAP_ISA forces one). A core lowers
// its clock under the load it carries, so a roof is sampled between the calls that are measured against it. It is the
// ninth decile of its samples: an interruption lowers one, and the very best may be from before the clock went down.
class Roofline {
 public:
  // [control]
  Roofline();

  // Runs both loops once, two tenths of a millisecond in all. Throws ConfigError when HALOTAP_ISA names no level of
  // this build and processor, and DeviceError in a build without the CPU backend. [control]
  void sample();

  // 10^9 operations a second, two a multiply-add, all operands in registers; after at least one sample. [control]
  double gflops() const;

  // 10^9 bytes a second, read in order from 512 KiB: the size of the weights of eight layers of 128 channels, too large
  // for a first-level cache; after at least one sample. [control]
  double l2_gbytes_per_s() const;

 private:
  std::vector<float> data_;
  std::vector<double> gflops_;
  std::vector<double> l2_gbytes_per_s_;
};

}  // namespace halotap::pipeline
