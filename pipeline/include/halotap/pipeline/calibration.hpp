// How long this machine takes for a chunk, found by trying.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "halotap/pipeline/latency.hpp"
#include "halotap/pipeline/latency_term.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::pipeline {

// How long chunks took, computed one after the other, all streams of each.
struct Calibration {
  LatencyHistogram chunk;  // engine and stages
  LatencyHistogram engine;
  LatencyHistogram stages;
};

// Runs noise (uniform from -0.5 to 0.5, finite) through `pipeline` for `limit` of its clock, and one chunk at least.
// Its streams are as new afterwards, its counters are not: a pipeline is calibrated instead of being run, or as one of
// its own. The thread rests after each chunk, or after as many as make a millisecond of frames, for at least as long as
// they took, but for less than it waits in a run, where caches are colder.
// Throws DeviceError when the device stops computing. [control]
Calibration calibrate(Pipeline& pipeline, std::chrono::nanoseconds limit);

// A quantile of a calibration, to be judged by. Those of engine and stages add up to more than the chunk's: their
// slowest chunks are not the same.
struct ComputeTime {
  std::string quantile;      // "p99.9"
  std::uint64_t chunks = 0;  // of how many, at least 1
  std::chrono::nanoseconds chunk{0};
  std::chrono::nanoseconds engine{0};
  std::chrono::nanoseconds stages{0};
  // The medians of the same: what is usual.
  std::chrono::nanoseconds chunk_p50{0};
  std::chrono::nanoseconds engine_p50{0};
  std::chrono::nanoseconds stages_p50{0};
};

// The highest quantile that so many chunks can tell: p99.9 of 1000 or more, p99 of 100 or more, else the longest. What
// a plan promises. [any thread]
ComputeTime telling_time(const Calibration& calibration);
// The median, which no hiccup of the machine moves: what does not fit by it will never fit. [any thread]
ComputeTime median_time(const Calibration& calibration);

// The ledger's term for it: the whole chunk's. [any thread]
LatencyTerm measured_term(const ComputeTime& time);
// Which quantile it is, and the median of that time, one of its three: "p99.9 of 1204 chunks, p50 31 us"; of a median
// "median of 1204 chunks". [any thread]
std::string quantile_text(const ComputeTime& time, std::chrono::nanoseconds p50);

}  // namespace halotap::pipeline
