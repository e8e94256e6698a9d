// A recording through a model: what `replay` and `verify` have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "command.hpp"
#include "halotap/io/session.hpp"
#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/input_policy.hpp"
#include "halotap/pipeline/ledger.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::apps {

// Of a pipeline file that does not say.
inline constexpr std::int64_t kDefaultChunkFrames = 64;

// How a card is asked, where the command line says.
struct CudaOptions {
  std::optional<pipeline::CudaInvocation> invocation;
  std::optional<pipeline::Wait> wait;
  std::optional<std::int64_t> resident_clusters;

  // The names of those that are given: "--cuda-wait".
  std::vector<std::string> names() const;
  // These in the place of `spec`'s. Throws ConfigError for one that this backend or that invocation has no use for.
  pipeline::CudaSpec over(pipeline::CudaSpec spec, pipeline::Backend backend) const;
};

struct ProcessingOptions {
  std::string model_file;  // one of the two
  std::string pipeline_file;
  std::string input;  // an address
  pipeline::ChunkSchedule chunks;
  pipeline::Backend backend = pipeline::Backend::kAuto;
  pipeline::Precision precision = pipeline::Precision::kFp32;
  std::int64_t worker_threads = 0;
  std::int64_t auto_chunk_frames = kDefaultChunkFrames;  // what `auto` goes by, however the recording is cut
  std::optional<pipeline::Fallback> fallback;            // none: the pipeline file's, or the CPU
  CudaOptions cuda_options = {};
  pipeline::CudaSpec cuda = {};                           // what they come to, once the subject is loaded
  std::vector<std::string> card_settings = {};            // what was given for it, by name, likewise
  bool offline = false;                                   // the whole recording as one chunk, without the ring
  std::function<bool(const std::string&)> is_given = {};  // whether the command line has this option
};

// --backend and --precision.
void add_backend_options(CLI::App& app, pipeline::Backend& backend, pipeline::Precision& precision);
// --cuda-invocation, --cuda-wait and --cuda-resident-clusters.
void add_cuda_options(CLI::App& app, CudaOptions& options);
// --workers.
void add_workers_option(CLI::App& app, std::int64_t& worker_threads);
// --model, --pipeline, --input, --chunk, --offline, the above and, where it is taken, --fallback. `options` and `app`
// must outlive the parsing.
void add_processing_options(CLI::App& app, ProcessingOptions& options, bool takes_fallback);

// "model.cuda" where a pipeline file has other settings of a card than every run has; else nothing.
std::vector<std::string> card_settings_of(const pipeline::PipelineConfig& config);

// Which of a card's settings, as given, do nothing: all of them where the CPU computes.
std::vector<std::string> unused_settings(const pipeline::Engine& engine, const std::vector<std::string>& card_settings);
// Why the engine has its backend, and what does nothing therefore: "asked for; not used: model.cuda".
std::string describe_choice(const pipeline::Engine& engine, const std::vector<std::string>& card_settings);
// One line on what computes and why: a card, and in what way it does, or the CPU where `auto` weighed a card or what
// was given for one is not used.
void say_choice(const pipeline::Engine& engine, const std::vector<std::string>& card_settings);

// One line where a pipeline file says what a resident kernel keeps, and the invocation is another.
void say_unused_clusters(const std::string& pipeline_file, const pipeline::CudaSpec& cuda);

// The input and output schemes of this build, for --help.
std::string describe_schemes();

// What a recording goes through.
struct Subject {
  pipeline::Model model;
  std::vector<pipeline::StageEntry> stages;
  pipeline::InputPolicy input;     // of which only invalid samples matter here
  std::vector<std::string> files;  // what it was read from, so that no output overwrites it
};

// Reads the options' model, or their pipeline file and its model; what the command line does not say of backend,
// precision, fallback, card and chunks is as in that file. Throws what the loaders and CudaOptions::over throw, and
// ConfigError for neither file.
Subject load_subject(ProcessingOptions& options);

// Opens the options' input as `model` needs it. Throws what io::open_source throws.
std::unique_ptr<io::Source> open_input(const ProcessingOptions& options, const pipeline::Model& model);

struct Processed {
  io::SessionReport report;
  std::string device;
  std::int64_t lookahead_frames = 0;
  pipeline::LatencyLedger ledger;  // empty when offline
};

// Opens the sinks of a recording once it is known what will be written; they stay the caller's.
using OpenSinks = std::function<const std::vector<std::unique_ptr<io::Sink>>&(const io::SinkSpec&)>;

// Runs `source` through `subject` into the sinks and finishes them. Offline, which goes without stages, the recording
// is held in memory, the report's one step is the whole computation, and `spec.speed` is not used.
Processed process_recording(io::Source& source, const Subject& subject, const ProcessingOptions& options,
                            const OpenSinks& open_sinks, const io::SessionSpec& spec);

}  // namespace halotap::apps
