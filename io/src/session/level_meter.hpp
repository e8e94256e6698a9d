// How loud frames are.
#pragma once

#include <array>
#include <cstdint>

#include "halotap/io/telemetry.hpp"
#include "halotap/pipeline/annotations.hpp"

namespace halotap::io {

// Gathers the levels of an interval. Allocates nothing. One thread.
class LevelMeter {
 public:
  // Frames are [streams, channels].
  LevelMeter(std::int64_t streams, std::int64_t channels) : frame_samples_(streams * channels), channels_(channels) {}

  void add(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // Writes the levels since the last call.
  void tell(SessionTelemetry& telemetry) noexcept HALOTAP_NONBLOCKING;

 private:
  // In double no square of a float overflows.
  struct Sum {
    double peak = 0;
    double squares = 0;
    std::int64_t samples = 0;
    Level level() const noexcept HALOTAP_NONBLOCKING;
  };

  std::int64_t metered_channels() const noexcept HALOTAP_NONBLOCKING;

  std::int64_t frame_samples_;
  std::int64_t channels_;
  Sum all_;
  std::array<Sum, SessionTelemetry::kMostChannels> first_;
};

}  // namespace halotap::io
