// A recording through a model: what `replay` and `verify` have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "command.hpp"
#include "halotap/io/session.hpp"
#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"
#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::apps {

struct ProcessingOptions {
  std::string model_file;
  std::string input;  // an address
  pipeline::ChunkSchedule chunks;
  pipeline::Backend backend = pipeline::Backend::kAuto;
  pipeline::Precision precision = pipeline::Precision::kFp32;
  std::int64_t worker_threads = 0;
  bool offline = false;  // the whole recording as one chunk, without the ring
};

// --backend and --precision.
void add_backend_options(CLI::App& app, pipeline::Backend& backend, pipeline::Precision& precision);
// --workers.
void add_workers_option(CLI::App& app, std::int64_t& worker_threads);
// --model, --input, --chunk, --offline and the above. `options` must outlive the parsing.
void add_processing_options(CLI::App& app, ProcessingOptions& options);

// The input and output schemes of this build, for --help.
std::string describe_schemes();

// Opens the options' input as `model` needs it. Throws what io::open_source throws.
std::unique_ptr<io::Source> open_input(const ProcessingOptions& options, const pipeline::Model& model);

struct Processed {
  io::SessionReport report;
  std::string device;
  std::int64_t lookahead_frames = 0;
  std::int64_t latency_frames = 0;  // lookahead and stages, in input frames
};

// Runs `source` through `model` into `sinks` and finishes them. Offline, the recording is held in memory, the report's
// one step is the whole computation, and `spec.speed` is not used.
Processed process_recording(io::Source& source, const pipeline::Model& model, const ProcessingOptions& options,
                            const std::vector<std::unique_ptr<io::Sink>>& sinks, const io::SessionSpec& spec);

}  // namespace halotap::apps
