// Counters, as consistent snapshots. At every instant frames in = frames out + frames dropped (by cause) + in
// flight; frames that a stage merges are a cause of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

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
  std::uint64_t failovers = 0;  // 1 once a card has failed and the CPU gone on (Engine::failover)
};

// What an asynchronous engine's worker has done since it was made. Every entry is answered once, in the order of its
// stream: entries_in = entries_out + entries_in_flight.
struct AsyncCounters {
  std::uint64_t entries_in = 0;         // taken by the worker
  std::uint64_t entries_out = 0;        // answered
  std::uint64_t entries_in_flight = 0;  // chunks that wait for a call or are in one
  std::uint64_t chunks = 0;             // answered with what the engine computed
  std::uint64_t chunks_late = 0;        // of these, after their deadline
  std::uint64_t entries_failed = 0;     // answered with a status other than kOk
  std::uint64_t calls = 0;              // of Engine::process
  std::uint64_t calls_pressed = 0;  // begun by a deadline or a wait that was long enough, not because all were ready
  std::uint64_t calls_cut = 0;      // that left chunks behind, so that others are in time
  std::uint64_t largest_call = 0;   // streams
};

// What a pipeline's ring has done since it was made.
struct RingCounters {
  std::uint64_t frames_in = 0;               // offered by the producer
  std::uint64_t frames_out = 0;              // taken by the worker
  std::uint64_t frames_dropped_overrun = 0;  // offered while the ring was full
  std::uint64_t frames_in_flight = 0;        // waiting in the ring
};

// What one stage behind the engine has done since its pipeline was made. All streams of an instant are one frame, as in
// the ring.
struct StageCounters {
  std::uint64_t frames_in = 0;
  std::uint64_t frames_out = 0;
  std::uint64_t frames_merged = 0;     // taken, and stood for by another frame that came out
  std::uint64_t frames_discarded = 0;  // taken, and not given back by the end of their recording
  std::uint64_t frames_in_flight = 0;  // taken, waiting for later frames
  std::uint64_t events = 0;
  std::uint64_t events_dropped = 0;  // more than the stage announced
};

// A chunk's way through the machine: waiting for its session, in the device and in rings; the engine; the stages; the
// sinks; and all of it.
enum class LatencyPart { kSource, kEngine, kStages, kSinks, kWhole };
inline constexpr std::size_t kLatencyParts = 5;
// As files and summaries spell it ("source"). [any thread]
std::string_view to_string(LatencyPart part);

// How long chunks were on a part of their way. A quantile is at most 1.6 % above the true one.
struct LatencyFigures {
  std::uint64_t chunks = 0;
  std::int64_t p50_ns = 0;
  std::int64_t p99_ns = 0;
  std::int64_t p999_ns = 0;
  std::int64_t max_ns = 0;
  std::uint64_t misses = 0;  // chunks above the part's budget
};

// Invalid samples among a session's input, by kind (input_policy.hpp).
struct InvalidSamples {
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
  std::uint64_t too_large = 0;  // finite, of a magnitude above kMaxMagnitude

  std::uint64_t all() const noexcept { return nan + infinite + too_large; }
};

}  // namespace halotap::pipeline
