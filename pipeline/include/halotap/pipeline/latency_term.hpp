// One wait on a frame's way from the source to the sinks.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "halotap/pipeline/telemetry.hpp"

namespace halotap::pipeline {

// What a frame waits for.
enum class LatencyKind {
  kAlgorithmic,  // later frames, which have to arrive first, whatever the machine: chunk, lookahead, filters
  kBuffering,    // a buffer to be handed on or emptied: of a device, of whoever looks into a ring
  kMeasured,     // its results to be computed: a time of this machine
};

// "algorithmic", "buffering", "measured". [any thread]
std::string_view to_string(LatencyKind kind);

// The key of a pipeline file that sets a term, and its value for n frames of wait, where it is known beforehand:
//
//     at_zero + per_step * floor(n / step_frames)
struct LatencyKey {
  std::string name = {};  // dotted, as "stages.1.window_ms"; of a stage or an endpoint, without what leads to it;
                          // empty: no key sets the term
  double at_zero = 0;     // > 0, or 0 where no value gives no wait at all
  double per_step = 0;    // > 0; 0: the value cannot be told from the wait
  std::int64_t step_frames = 1;  // at least 1
};

// An entry of the ledger (ledger.hpp).
struct LatencyTerm {
  std::string place;                        // "device", "chunk", "stage 1 (rms)"
  LatencyPart part = LatencyPart::kEngine;  // kWhole: of engine and stages together
  LatencyKind kind = LatencyKind::kAlgorithmic;
  std::int64_t frames = 0;                      // at rate_hz; 0 for a wait that is known in time alone
  double rate_hz = 0;                           // of these frames, > 0
  std::chrono::duration<double> time_alone{0};  // of a wait that does not count frames
  bool is_timed = false;                        // a run's own measure of a chunk's way (LatencyLog) has it too
  bool sets_rate = false;  // the key sets the frame rate behind it too, and with it what waits there in frames
  LatencyKey key = {};
  std::string note = {};  // where the figure is from: "as the device states it"; or empty

  // [any thread]
  std::chrono::duration<double> time() const {
    return rate_hz > 0 ? std::chrono::duration<double>(static_cast<double>(frames) / rate_hz) : time_alone;
  }
};

}  // namespace halotap::pipeline
