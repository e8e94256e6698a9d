#include "run.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halotap/io/endpoint.hpp"
#include "halotap/io/recorder.hpp"
#include "halotap/io/session.hpp"
#include "halotap/io/session_ledger.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/ledger.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "interrupt.hpp"
#include "message.hpp"
#include "option_values.hpp"
#include "plan.hpp"
#include "processing.hpp"
#include "session_summary.hpp"
#include "setup.hpp"
#include "status_reporter.hpp"

namespace halotap::apps {
namespace {

struct RunOptions {
  std::string pipeline_file;
  std::optional<std::chrono::duration<double>> duration;
  std::vector<std::string> overrides;
  bool force = false;
  bool json = false;
};

// A machine without a microphone can still run the pipeline.
std::unique_ptr<io::Source> open_input(const pipeline::PipelineConfig& config, const pipeline::Model& model) {
  try {
    return open_source(config, model);
  } catch (const pipeline::DeviceError& error) {
    throw pipeline::DeviceError(std::string(error.what()) + "; to run a recording instead: --set source.uri=FILE.wav");
  }
}

// Whether the run may begin: with a budget that it cannot keep to only when forced.
bool may_begin(const RunOptions& options, const std::vector<pipeline::Misfit>& misfits) {
  if (misfits.empty()) return true;
  const std::string text = options.pipeline_file + ": " + misfits.front().text;
  say(options.force ? text + "; run all the same, for --force" : text + "; --force runs it all the same");
  return options.force;
}

std::string describe_gap(const io::HandledGap& handled) {
  if (handled.frames_skipped > 0) {
    return "late: skipped " + std::to_string(handled.frames_skipped) + " frames in front of frame " +
           std::to_string(handled.at_frame) + "; the stream begins again";
  }
  const io::Gap& gap = handled.gap;
  std::string text = "gap in front of frame " + std::to_string(handled.at_frame) + ":";
  if (gap.frames_lost > 0) text += " about " + std::to_string(gap.frames_lost) + " frames never came;";
  if (gap.frames_dropped > 0) text += " " + std::to_string(gap.frames_dropped) + " frames dropped, the ring was full;";
  if (gap.is_reopening) text += " the device was opened anew;";
  if (handled.action == pipeline::OnGap::kReset) return text + " the stream begins again";
  const bool filled = handled.action == pipeline::OnGap::kFill;
  if (filled) text += " filled with " + std::to_string(handled.frames_filled) + " frames of zeros;";
  if (handled.frames == 0) return text + " reaches no output frame";
  return text + " reaches output frames " + std::to_string(handled.first_frame) + " to " +
         std::to_string(handled.first_frame + handled.frames - 1);
}

ExitCode run(const RunOptions& options) {
  const std::atomic<bool>* stop = watch_for_interrupt();
  pipeline::PipelineConfig config = pipeline::load_pipeline_config(options.pipeline_file, options.overrides);
  check_budget(config);
  say_unused_clusters(options.pipeline_file, config.cuda);
  const pipeline::Model model = pipeline::load_model(config.model_file);
  std::vector<std::string> inputs{config.source_uri, options.pipeline_file};
  for (const auto& file : model.files) inputs.push_back(file.string());
  const io::RecorderSpec kept{config.record_file, config.record_output_file};
  std::vector<std::string> recordings;
  for (const std::string& file : {kept.input, kept.output}) {
    if (!file.empty()) recordings.push_back(file);
  }
  io::refuse_overwriting(inputs, config.sink_uris, recordings);

  // Before the device delivers: a device's source is one stream.
  std::optional<Trial> trial;
  const bool from_device = io::is_device_source(config.source_uri);
  if (config.latency.budget_ms && from_device) {
    trial = try_out(config, model, 1);
  } else if (from_device && config.backend != pipeline::Backend::kCpu) {
    // A driver that is opened for the first time, and what auto times, take longer than the device's ring holds.
    const pipeline::Pipeline first(model, pipeline_spec(config, 1, model.frame_rate_hz));
  }
  const std::unique_ptr<io::Source> source = open_input(config, model);
  const io::SourceInfo& info = source->info();
  if (config.latency.budget_ms && !from_device) trial = try_out(config, model, info.streams);

  io::SessionSpec spec;
  spec.stop = stop;
  spec.input = config.input;
  spec.max_fill_frames = frames_in(config.ring_capacity_ms / 1e3, info.rate_hz);
  spec.realtime = config.realtime;
  spec.on_note = [](const std::string& note) { say(note); };
  spec.on_gap = [](const io::HandledGap& gap) { say(describe_gap(gap)); };
  spec.latency = config.latency;
  io::PublishedTelemetry telemetry;
  spec.telemetry = &telemetry;
  std::int64_t frames = info.frames;
  if (options.duration) {
    spec.max_frames = frames_in(options.duration->count(), info.rate_hz);
    frames = frames < 0 ? spec.max_frames : std::min(frames, spec.max_frames);
  }

  pipeline::Pipeline pipeline(model, pipeline_spec(config, info.streams, info.rate_hz));
  const bool has_card_failed = trial && trial->failover;  // and was asked as the file says until then
  say_choice(pipeline.engine(), has_card_failed ? std::vector<std::string>{} : card_settings_of(config));

  std::unique_ptr<io::Recorder> recorder;
  if (!recordings.empty()) recorder = std::make_unique<io::Recorder>(kept, info, pipeline.output());
  spec.recorder = recorder.get();

  io::SinkSpec output = sink_spec(pipeline, info, frames);
  output.stop = stop;
  std::vector<std::unique_ptr<io::Sink>> sinks;
  for (const std::string& sink : config.sink_uris) {
    sinks.push_back(io::open_sink(sink, output));
  }
  const bool paced = needs_pace(info, sinks);
  if (paced) spec.speed = 1.0;

  pipeline::LatencyLedger ledger = io::session_ledger(info, pipeline, sinks, paced);
  if (trial) {
    spec.latency.budget_ms = ledger.timed_budget_ms(*config.latency.budget_ms);
    pipeline::LatencyLedger tried = ledger;
    tried.add(pipeline::measured_term(trial->compute));
    const auto misfits = pipeline::misfits(tried, config.latency, config.chunk_frames, trial->compute);
    if (!may_begin(options, misfits)) return ExitCode::kCheckFailed;
    if (stop->load(std::memory_order_relaxed)) {
      say("stopped before the run began; nothing was written");
      return ExitCode::kDone;
    }
  }

  SessionSummary summary;
  std::optional<io::SessionReport> failed;
  std::exception_ptr failure;
  spec.failed = &failed;
  {
    const bool output_taken = std::any_of(config.sink_uris.begin(), config.sink_uris.end(), io::is_standard_output);
    StatusReporterSpec status{frames, info.rate_hz, config.latency.budget_ms};
    // Results that go to a terminal would be mixed up with a status line on it.
    status.shows_line = isatty(STDERR_FILENO) != 0 && !(output_taken && isatty(STDOUT_FILENO) != 0);
    if (options.json) status.json = output_taken ? &std::cerr : &std::cout;
    const StatusReporter reporter(telemetry, status);
    try {
      summary.processed.report = io::run_session(*source, pipeline, sinks, spec);
    } catch (const pipeline::Error&) {
      if (!failed) throw;
      summary.processed.report = *std::move(failed);
      failure = std::current_exception();
    }
  }
  summary.processed.device = pipeline.engine().device();
  summary.processed.lookahead_frames = pipeline.engine().lookahead_frames();
  summary.processed.ledger = std::move(ledger);
  for (const pipeline::StageEntry& stage : config.stages) summary.stages.push_back(stage.name);
  summary.streams = info.streams;
  summary.rate_hz = info.rate_hz;
  summary.run_latency = config.latency;
  if (trial) summary.trial_failover = trial->failover;
  summary.is_live = info.is_live;
  summary.chunk_frames = config.chunk_frames;
  summary.precision = config.precision;
  summary.sinks = config.sink_uris;
  summary.asks_realtime = config.realtime.asks();
  report_session(summary, options.json);
  if (failure) std::rethrow_exception(failure);
  return ExitCode::kDone;
}

}  // namespace

void add_run(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Run a pipeline file in real time");
  command->add_option("pipeline", options->pipeline_file, "Pipeline file")->required()->type_name("PIPELINE.yaml");
  add_value(*command, "--duration", options->duration, parse_duration, "TIME",
            "a time above 0 with its unit, as 500ms, 10s, 2min or 1h",
            "Stop after this much input, as 500ms, 10s, 2min");
  command->add_option("--set", options->overrides, "Replace a value of the file: dotted key=value; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_flag("--force", options->force, "Run although the file's latency budget cannot be kept");
  command->add_flag("--json", options->json, "Print a JSON object a second on what happens, and the summary as one");
  command->footer(
      "A sound device delivers frames as it makes them, any other source at the model's frame rate. Results go\n"
      "through the file's stages to its sinks. Ctrl-C ends the run: what was computed is flushed and written.\n"
      "The summary goes to standard output, or to standard error when a sink is '-'.\n\n" +
      describe_schemes() +
      "\n\nExample:\n"
      "  halotap run configs/cochlea/replay.yaml --duration 1s --set chunk_frames=48\n"
      "  halotap run configs/cochlea/sweep.yaml");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

}  // namespace halotap::apps
