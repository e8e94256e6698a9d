// `halotap plan`: the latency ledger of a pipeline file, against its budget.
#pragma once

#include <memory>
#include <vector>

#include "command.hpp"
#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/ledger.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::apps {

void add_plan(CLI::App& app, Command& chosen);

// The median time of a chunk of the file's pipeline with so many streams, found within a tenth of a second: what a run
// is judged by before it begins. Hiccups of the machine do not move it. Where a card fails meanwhile and `config` lets
// the CPU go on, a line says so, the time is the CPU's, and `config` asks for the CPU.
pipeline::ComputeTime try_out(pipeline::PipelineConfig& config, const pipeline::Model& model, std::int64_t streams);

}  // namespace halotap::apps
