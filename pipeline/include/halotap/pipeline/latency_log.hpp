// How long chunks were on their way through the machine.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/latency.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::pipeline {

// When a chunk passed what it passes.
struct ChunkTimes {
  // When its last input frame was meant to be captured: by the count of frames, so that a device or a session that
  // stalls is late with every frame that it delays. None: nobody knows, as in a replay without a pace.
  std::optional<Instant> captured;
  Instant begun;        // it was taken from the ring
  Instant computed;     // by the engine
  Instant staged;       // it was through the stages
  Instant handed_over;  // the last sink had taken what came of it
};

// The times of all chunks, by part of their way and whole, against the budgets:
//
//     source = begun - captured
//     engine = computed - begun
//     stages = staged - computed
//     sinks  = handed_over - staged
//     whole  = handed_over - captured = source + engine + stages + sinks
//
// Chunks whose capture nobody knows have no `source` and no `whole`. Fixed size. One thread. [worker]
class LatencyLog {
 public:
  // Nothing is ever late without budgets. [control]
  explicit LatencyLog(const LatencyConfig& config = {});

  void record(const ChunkTimes& times) noexcept HALOTAP_NONBLOCKING;

  // Whether so long a way is above the whole budget.
  bool is_late(std::chrono::nanoseconds whole) const noexcept HALOTAP_NONBLOCKING;
  const LatencyHistogram& times(LatencyPart part) const noexcept { return times_[static_cast<std::size_t>(part)]; }
  LatencyFigures figures(LatencyPart part) const noexcept HALOTAP_NONBLOCKING;

 private:
  void record(LatencyPart part, std::chrono::nanoseconds time) noexcept HALOTAP_NONBLOCKING;

  std::array<std::optional<std::chrono::nanoseconds>, kLatencyParts> budgets_;
  std::array<LatencyHistogram, kLatencyParts> times_;
  std::array<std::uint64_t, kLatencyParts> misses_{};
};

}  // namespace halotap::pipeline
