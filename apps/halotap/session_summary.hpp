// What a session did, told to a person or a program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/engine.hpp"
#include "processing.hpp"

namespace halotap::apps {

struct SessionSummary {
  std::int64_t streams = 1;
  double rate_hz = 0;                                                 // > 0
  std::int64_t chunk_frames = 0;                                      // the longest chunk; 0: offline
  bool is_live = false;                                               // its source
  std::optional<pipeline::LatencyConfig> run_latency = std::nullopt;  // of `run`
  std::optional<pipeline::Failover> trial_failover = std::nullopt;    // while `run` tried its budget
  pipeline::Precision precision = pipeline::Precision::kFp32;
  std::vector<std::string> stages;  // names, one for each of the report's counters
  std::vector<std::string> sinks;   // addresses
  bool asks_realtime = false;       // for a priority, processors or locked memory
  Processed processed;
};

// Prints aligned lines, or one JSON object on one line: to standard output, or to standard error when a sink writes to
// standard output. Algorithmic latency (frames that have to arrive first) and measured latency (time the computation
// takes) stand apart. Of `run` the JSON object has "line":
// "summary". Says so when the user stopped the session.
void report_session(const SessionSummary& summary, bool json);

}  // namespace halotap::apps
