// How long this machine takes for a chunk, found by trying.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "halotap/pipeline/latency.hpp"
#include "halotap/pipeline/latency_term.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::pipeline {

// Times of a chunk, computed one after the other, all streams of it.
struct Calibration {
  LatencyHistogram chunk;  // engine and stages
};

// Runs noise (uniform from -0.5 to 0.5, finite) through `pipeline` for `limit`, and one chunk at least. Its streams are
// as new afterwards, its counters are not: a pipeline is calibrated instead of being run, or as one of its own. Chunks
// follow each other without a pause, so caches are warm: one that comes after a wait takes longer. Throws DeviceError
// when the device stops computing. [control]
Calibration calibrate(Pipeline& pipeline, std::chrono::nanoseconds limit);

// A quantile of a calibration, to be judged by.
struct ChunkTime {
  std::string quantile;      // "p99.9"
  std::uint64_t chunks = 0;  // of how many, at least 1
  std::chrono::nanoseconds time{0};
};

// The highest quantile that so many chunks can tell: p99.9 of 1000 or more, p99 of 100 or more, else the longest. What
// a plan promises. [any thread]
ChunkTime telling_time(const LatencyHistogram& chunks);
// The median, which no hiccup of the machine moves: what does not fit by it will never fit. [any thread]
ChunkTime median_time(const LatencyHistogram& chunks);

// The ledger's term for it. [any thread]
LatencyTerm measured_term(const ChunkTime& time);

}  // namespace halotap::pipeline
