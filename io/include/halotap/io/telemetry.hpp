// What a session is doing, as one record that any thread may read at any time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "halotap/io/sink.hpp"
#include "halotap/pipeline/published.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::io {

// Of samples as they come in, ±1 at full scale; samples that are not finite left aside.
struct Level {
  double peak = 0;  // largest magnitude
  double rms = 0;
};

// Frames are counted in a stream. Everything counts from the session's beginning, but for what says otherwise.
//
//     frames read from the source = frames_in - frames_filled + frames_skipped
//     frames_in = frames_out + what waits for its chunk, for lookahead or in stages + what stages merged
struct SessionTelemetry {
  static constexpr std::size_t kMostChannels = 8;
  static constexpr std::size_t kMostThreads = 16;
  using ThreadName = std::array<char, 16>;  // ends in zeros

  std::int64_t elapsed_ns = 0;
  std::int64_t frames_in = 0;       // into the pipeline
  std::int64_t frames_out = 0;      // to the sinks, behind the stages
  std::int64_t frames_skipped = 0;  // thrown away unprocessed, for they could not be on time
  std::int64_t frames_held = 0;     // to the sinks in place of late ones; among frames_out
  std::int64_t frames_dropped = 0;  // of a live source: delivered while its ring was full
  std::int64_t frames_lost = 0;     // of a live source: never delivered; an estimate
  std::int64_t gaps = 0;
  std::int64_t frames_filled = 0;         // among frames_in: zeros in the place of missing ones
  std::int64_t frames_marked = 0;         // among frames_out, now or soon: a gap, or what fills it, reaches them
  pipeline::InvalidSamples invalid = {};  // of what was read, before any was replaced
  std::int64_t skips = 0;
  std::int64_t failovers = 0;  // 1 once a card has failed and the CPU gone on
  std::array<pipeline::LatencyFigures, pipeline::kLatencyParts> latency = {};  // by LatencyPart
  std::int64_t latest_ns = 0;    // the whole way of the last chunk; 0: nobody knows
  std::int64_t is_missing = 0;   // the budget is missed for long enough that on_miss acts
  std::int64_t ring_frames = 0;  // waiting now, the chunk that is not full yet among them
  std::int64_t ring_capacity_frames = 0;

  std::int64_t device_sinks = 0;  // sinks that are devices
  PlayedCounters played;          // by the first of them

  Level level;                                           // of all channels and streams since the last record
  std::int64_t channels = 0;                             // in channel_levels
  std::array<Level, kMostChannels> channel_levels = {};  // the first ones' of the first stream

  std::int64_t threads = 0;  // in thread_names; more than kMostThreads are not named
  std::array<ThreadName, kMostThreads> thread_names = {};
};

// `store` by the session, ten times a second at most; `load` by anybody, without a lock.
using PublishedTelemetry = pipeline::Published<SessionTelemetry>;

}  // namespace halotap::io
