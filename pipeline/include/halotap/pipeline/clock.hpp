// What time it is.
#pragma once

#include <chrono>
#include <string>

#include "halotap/kernels/annotations.hpp"

namespace halotap::pipeline {

using Instant = std::chrono::steady_clock::time_point;

// The monotonic clock, or one that a test winds.
class Clock {
 public:
  virtual ~Clock() = default;

  // [any thread]
  virtual Instant now() const noexcept HALOTAP_NONBLOCKING = 0;
  // Returns when `time` has passed, or a little later. [control]
  virtual void sleep(std::chrono::nanoseconds time) const = 0;
};

// The system's. [any thread]
const Clock& monotonic_clock() noexcept HALOTAP_NONBLOCKING;

// For people, with three digits at least: "12.3 us", "4.56 ms", "7.812 s". [any thread]
std::string duration_text(std::chrono::nanoseconds time);

}  // namespace halotap::pipeline
