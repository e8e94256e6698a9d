// How fast the CUDA backend's kernels are on the device alone, without the host and the way there and back.
#pragma once

#include <cstdint>
#include <string>

#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/stack.hpp"

namespace halotap::kernels {

// How samples are stored in the device's memory.
enum class SampleType { kFloat32, kBfloat16, kFloat16 };

struct DeviceTimingSpec {
  std::int64_t batch = 1;   // recordings, at least 1
  std::int64_t frames = 1;  // a recording, at least 1; all of it in one launch a layer
  Precision precision = Precision::kFp32;
  SampleType samples = SampleType::kFloat32;  // of input and output; between layers there is float32
};

// Medians over many replays of a CUDA graph, in microseconds for one run of the stack over the batch, all planar
// [channels, frames] in device memory. Cold: runs take turns over inputs and outputs that together are five times the
// second-level cache. Warm: always the same ones.
struct DeviceTiming {
  double cold_us = 0;
  double warm_us = 0;
  double generic_cold_us = 0;  // the same by the kernel that takes any layer, which some layers have anyway
  // A copy within the device that reads and writes as many bytes as input and output have together.
  double copy_cold_us = 0;
  double copy_warm_us = 0;
  double rel_l2 = 0;       // error of the output against the reference, over the first and the last recording
  std::string kernels;     // what ran: "sm90 k5 d2", or several with their number of layers
  std::string device;      // as Executor::description
  std::int64_t bytes = 0;  // of input and output
};

// Runs `stack` on random samples from a fixed seed. Throws what make_cuda_executor throws, and std::invalid_argument
// for a spec out of range or 16-bit samples behind a softmax. [control]
DeviceTiming time_on_device(const Stack& stack, const DeviceTimingSpec& spec);

}  // namespace halotap::kernels
