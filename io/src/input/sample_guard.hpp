// Looks at every sample that goes into a run.
#pragma once

#include <cstdint>
#include <vector>

#include "halotap/pipeline/annotations.hpp"
#include "halotap/pipeline/input_policy.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::io {

// Counts invalid samples and replaces them as the policy says. What comes out does not depend on how the frames were
// cut into blocks. One thread.
class SampleGuard {
 public:
  // `frame_samples`: samples of a frame, all streams and channels. [control]
  SampleGuard(pipeline::OnInvalid on_invalid, std::int64_t frame_samples);

  // `samples` [frames, frame_samples]. [worker]
  void clean(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // The frame before the next one is all zeros: a stream begins, or was filled up with them. [worker]
  void begin_again() noexcept HALOTAP_NONBLOCKING;

  const pipeline::InvalidSamples& counts() const noexcept { return counts_; }

 private:
  pipeline::OnInvalid on_invalid_;
  std::int64_t frame_samples_;
  std::vector<float> before_;  // the last frame, as it came out
  pipeline::InvalidSamples counts_;
};

}  // namespace halotap::io
