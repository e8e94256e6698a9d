// The latency ledger: every wait on a frame's way, and whether all of them fit a budget.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halotap/pipeline/calibration.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/latency_term.hpp"

namespace halotap::pipeline {

// The terms of latency, in the order in which they are added. Each is the longest that a frame waits there while
// nothing is late; the sum is the longest that one takes from its instant until its result is handed over. [control]
class LatencyLedger {
 public:
  LatencyLedger() = default;
  // `rate_hz`: of the pipeline's input, > 0.
  explicit LatencyLedger(double rate_hz) : rate_hz_(rate_hz) {}

  void add(LatencyTerm term) { terms_.push_back(std::move(term)); }
  // `prefix` leads to the terms' keys: "sinks.0."; a term without a key stays without one.
  void add(const std::vector<LatencyTerm>& terms, const std::string& prefix = {});

  const std::vector<LatencyTerm>& terms() const { return terms_; }
  double rate_hz() const { return rate_hz_; }
  // The sum of one kind, and of all kinds: never the second without saying so.
  std::chrono::duration<double> total(LatencyKind kind) const;
  std::chrono::duration<double> total() const;
  // What is left of a budget for a run's own measure of a chunk's way (LatencyLog), which does not see all terms; 0
  // where nothing is: then every chunk is late.
  double timed_budget_ms(double budget_ms) const;
  // The sum of one kind in frames of the pipeline's input, on one part of the way or all of it; exact for algorithmic
  // terms.
  std::int64_t frames(LatencyKind kind, std::optional<LatencyPart> part = {}) const;

 private:
  double rate_hz_ = 0;
  std::vector<LatencyTerm> terms_;
};

// Why a pipeline cannot keep to its budget.
struct Misfit {
  std::string text;               // one line: what does not fit, and what to change
  std::string place;              // the term to change first
  std::string key;                // that sets it; empty: none
  std::optional<double> at_most;  // a value of `key` that fits if nothing else changes; none: no value does, or it
                                  // cannot be told
};

// What of `ledger` does not fit `config`, the most important first; empty: everything does. With `compute`, of which
// `ledger` has a term (measured_term), also when a chunk takes longer than its `chunk_frames` take to arrive, budget or
// not, and when engine or stages miss a budget of their own. That of the sinks is not looked at: only a run can tell.
// [control]
std::vector<Misfit> misfits(const LatencyLedger& ledger, const LatencyConfig& config, std::int64_t chunk_frames,
                            const std::optional<ComputeTime>& compute);

}  // namespace halotap::pipeline
