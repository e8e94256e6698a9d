// Distributions of times.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "halotap/kernels/annotations.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::pipeline {

// A log-linear histogram of durations: 64 equal steps in every power of two, so a quantile is read back within 1.6 %
// of its value, from 1 ns to 2^40 ns (18 minutes; longer counts there). Fixed size, records in a few instructions.
// Not shared between threads. [worker]
class LatencyHistogram {
 public:
  void record(std::chrono::nanoseconds duration) noexcept HALOTAP_NONBLOCKING;

  // As if all that the other recorded had been recorded here. [control]
  void add(const LatencyHistogram& other) noexcept;

  std::uint64_t count() const noexcept { return count_; }
  // The smallest recorded step that at least `fraction` (0 to 1) of the durations do not exceed; 0 when empty.
  std::chrono::nanoseconds quantile(double fraction) const noexcept;
  std::chrono::nanoseconds max() const noexcept { return max_; }
  // All that, in one pass over the steps; no misses.
  LatencyFigures figures() const noexcept HALOTAP_NONBLOCKING;

 private:
  static constexpr int kStepBits = 6;
  static constexpr int kRangeBits = 40;
  static constexpr std::size_t kBuckets = (kRangeBits - kStepBits + 1) << kStepBits;
  static std::size_t bucket_of(std::uint64_t nanoseconds) noexcept;
  static std::uint64_t upper_bound_of(std::size_t bucket) noexcept;
  std::uint64_t rank_of(double fraction) const noexcept;

  std::array<std::uint64_t, kBuckets> counts_{};
  std::uint64_t count_ = 0;
  std::chrono::nanoseconds max_{0};
};

}  // namespace halotap::pipeline
