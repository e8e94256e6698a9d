#include "halotap/io/session_ledger.hpp"

#include <chrono>
#include <cstddef>
#include <limits>
#include <string>

#include "paced_block.hpp"

namespace halotap::io {

using pipeline::LatencyKind;
using pipeline::LatencyLedger;
using pipeline::LatencyPart;
using pipeline::LatencyTerm;

LatencyLedger session_ledger(const SourceInfo& source, const pipeline::Pipeline& pipeline,
                             const std::vector<std::unique_ptr<Sink>>& sinks, bool paced) {
  LatencyLedger ledger(source.rate_hz);
  std::vector<LatencyTerm> arriving = source.latency;
  for (LatencyTerm& term : arriving) term.part = LatencyPart::kSource;
  ledger.add(arriving, "source.");
  if (paced) {
    LatencyTerm block;
    block.place = "source";
    block.part = LatencyPart::kSource;
    block.kind = LatencyKind::kBuffering;
    // A block's first frame waits for the others.
    block.frames = paced_block_frames(source.rate_hz, std::numeric_limits<std::int64_t>::max()) - 1;
    block.rate_hz = source.rate_hz;
    block.is_timed = true;
    block.note = "read in blocks of " + std::to_string(block.frames + 1) + (block.frames == 0 ? " frame" : " frames");
    ledger.add(std::move(block));
  }
  ledger.add(pipeline.latency());

  std::size_t slowest = 0;
  std::vector<LatencyTerm> longest;
  std::chrono::duration<double> most{0};
  for (std::size_t i = 0; i < sinks.size(); ++i) {
    std::vector<LatencyTerm> terms = sinks[i] ? sinks[i]->latency() : std::vector<LatencyTerm>();
    std::chrono::duration<double> sum{0};
    for (LatencyTerm& term : terms) {
      term.part = LatencyPart::kSinks;
      term.place = "sink " + std::to_string(i) + " (" + term.place + ")";
      sum += term.time();
    }
    if (sum <= most) continue;
    most = sum;
    slowest = i;
    longest = std::move(terms);
  }
  ledger.add(longest, "sinks." + std::to_string(slowest) + ".");
  return ledger;
}

}  // namespace halotap::io
