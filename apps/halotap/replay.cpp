#include "replay.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halotap/io/endpoint.hpp"
#include "interrupt.hpp"
#include "message.hpp"
#include "option_values.hpp"
#include "processing.hpp"
#include "progress_bar.hpp"
#include "session_summary.hpp"

namespace halotap::apps {
namespace {

struct ReplayOptions {
  ProcessingOptions processing;
  std::vector<std::string> outputs;  // addresses
  std::string plot_file;
  std::optional<double> speed;
  bool json = false;
};

ExitCode replay(ReplayOptions options) {
  const std::atomic<bool>* stop = watch_for_interrupt();
  std::vector<std::string> outputs = options.outputs;
  if (!options.plot_file.empty()) outputs.push_back(io::file_address("png", options.plot_file));
  if (outputs.empty()) throw pipeline::ConfigError("replay: expected --output or --plot, got neither");

  const Subject subject = load_subject(options.processing);
  std::vector<std::string> inputs = subject.files;
  inputs.insert(inputs.begin(), options.processing.input);
  io::refuse_overwriting(inputs, outputs);

  const std::unique_ptr<io::Source> source = open_input(options.processing, subject.model);
  const io::SourceInfo& info = source->info();
  std::vector<std::unique_ptr<io::Sink>> sinks;
  const auto open_sinks = [&](io::SinkSpec spec) -> const std::vector<std::unique_ptr<io::Sink>>& {
    spec.stop = stop;
    spec.on_note = [](const std::string& note) { say(note); };
    for (const std::string& output : outputs) sinks.push_back(io::open_sink(output, spec));
    return sinks;
  };

  SessionSummary summary;
  {
    ProgressBar bar(info.frames, info.rate_hz);
    io::SessionSpec spec;
    spec.speed = options.speed;
    spec.stop = stop;
    spec.on_progress = [&bar](std::int64_t frames) { bar.update(frames); };
    spec.on_note = [](const std::string& note) { say(note); };
    summary.processed = process_recording(*source, subject, options.processing, open_sinks, spec);
  }
  summary.streams = info.streams;
  summary.rate_hz = info.rate_hz;
  summary.chunk_frames = options.processing.offline ? 0 : options.processing.chunks.max_frames;
  summary.precision = options.processing.precision;
  for (const pipeline::StageEntry& stage : subject.stages) summary.stages.push_back(stage.name);
  summary.sinks = outputs;
  report_session(summary, options.json);
  return ExitCode::kDone;
}

}  // namespace

void add_replay(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<ReplayOptions>();
  CLI::App* command = app.add_subcommand("replay", "Play a recording through a model into files");
  add_processing_options(*command, options->processing, true);
  command
      ->add_option("--output", options->outputs, "Where results go: a path, or scheme://path?option=value; repeatable")
      ->allow_extra_args(false)
      ->type_name("ADDRESS");
  command->add_option("--plot", options->plot_file, "Also draw the output: channels over time, as PNG")
      ->type_name("FILE.png");
  add_value(*command, "--speed", options->speed, parse_speed, "max|FACTOR", "max or a number above 0",
            "As fast as possible, or paced: 1.0 is the speed at which the recording was made")
      ->default_str("max")
      ->excludes("--offline")
      ->group("Engine");
  command->add_flag("--json", options->json, "Print the summary as one JSON object");
  command->footer(
      "Streams the recording through ring, chunker and engine, as a live source would be; results do not depend on\n"
      "--chunk, --speed or --offline. The summary goes to standard output, or to standard error when an output is "
      "'-'.\n"
      "Ctrl-C ends the recording there: what was computed is flushed and written. A second one ends at once.\n\n" +
      describe_schemes() +
      "\n\nExample:\n"
      "  halotap replay --model configs/cochlea/model.yaml --input 'speech.wav?resample=true' --output bands.npy \\\n"
      "      --plot bands.png");
  command->callback([options, &chosen] { chosen = [options] { return replay(*options); }; });
}

}  // namespace halotap::apps
