// `halotap plan`: the latency ledger of a pipeline file, against its budget.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "command.hpp"
#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/ledger.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::apps {

void add_plan(CLI::App& app, Command& chosen);

// What a run is judged by before it begins.
struct Trial {
  pipeline::ComputeTime compute;               // the median, which hiccups of the machine do not move
  std::optional<pipeline::Failover> failover;  // of a card that failed meanwhile; the time is the CPU's
};

// How long a chunk of the file's pipeline with so many streams takes, found within a tenth of a second. Where a card
// fails and `config` lets the CPU go on, a line says so, and `config` asks for the CPU. [control]
Trial try_out(pipeline::PipelineConfig& config, const pipeline::Model& model, std::int64_t streams);

}  // namespace halotap::apps
