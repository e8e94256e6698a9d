// The latency ledger of a session.
#pragma once

#include <memory>
#include <vector>

#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"
#include "halotap/pipeline/ledger.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::io {

// Every term of run_session's latency but the measured one, in the order in which a frame meets them: the source's, the
// pipeline's, the slowest sink's (sinks wait side by side; a null one holds nothing). What writing to a file takes is
// in none. `paced`: whether a recording is read as fast as its frames were made, in blocks of about a millisecond.
// [control]
pipeline::LatencyLedger session_ledger(const SourceInfo& source, const pipeline::Pipeline& pipeline,
                                       const std::vector<std::unique_ptr<Sink>>& sinks, bool paced);

}  // namespace halotap::io
