// Counters, as consistent snapshots. At every instant frames in = frames out + frames dropped (by cause) + in flight.
#pragma once

#include <cstdint>

namespace halotap::pipeline {

// What an engine has done since prepare, summed over all streams.
struct EngineCounters {
  std::uint64_t frames_in = 0;         // accepted by process
  std::uint64_t frames_out = 0;        // emitted by process and flush
  std::uint64_t frames_discarded = 0;  // accepted, then given up by reset or close before they were due
  std::uint64_t frames_in_flight = 0;  // accepted, waiting for their lookahead
  std::uint64_t chunks = 0;            // entries processed
  std::uint64_t calls_refused = 0;     // entries and calls answered with a status other than kOk
  std::uint64_t streams_open = 0;
};

// What a pipeline's ring has done since it was made.
struct RingCounters {
  std::uint64_t frames_in = 0;               // offered by the producer
  std::uint64_t frames_out = 0;              // taken by the worker
  std::uint64_t frames_dropped_overrun = 0;  // offered while the ring was full
  std::uint64_t frames_in_flight = 0;        // waiting in the ring
};

}  // namespace halotap::pipeline
