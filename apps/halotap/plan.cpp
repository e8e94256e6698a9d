#include "plan.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "halotap/io/endpoint.hpp"
#include "halotap/io/session_ledger.hpp"
#include "halotap/pipeline/calibration.hpp"
#include "halotap/pipeline/errors.hpp"
#include "latency_json.hpp"
#include "message.hpp"
#include "processing.hpp"
#include "setup.hpp"

namespace halotap::apps {
namespace {

using nlohmann::ordered_json;
using pipeline::LatencyKind;

constexpr std::chrono::milliseconds kPlanTime{300};
constexpr std::chrono::milliseconds kTryOutTime{100};

struct PlanOptions {
  std::string pipeline_file;
  std::vector<std::string> overrides;
  bool json = false;
};

struct Plan {
  pipeline::LatencyLedger ledger;
  pipeline::LatencyConfig budget;
  std::int64_t chunk_frames = 0;
  std::int64_t streams = 1;
  pipeline::LatencyHistogram chunks;  // how long they took
  pipeline::ComputeTime compute;      // the quantile that counts
  std::string device;                 // that computed them
  pipeline::Precision precision = pipeline::Precision::kFp32;
  std::vector<std::string> notes;  // what could not be asked
  std::vector<pipeline::Misfit> misfits;
};

double ms_of(std::chrono::duration<double> time) { return time.count() * 1e3; }

// What `open` opens with its device, or, where that cannot be, without it.
template <typename Open>
auto open_or_note(const Open& open, std::vector<std::string>& notes) {
  try {
    return open(true);
  } catch (const pipeline::DeviceError& error) {
    notes.push_back(std::string(error.what()) + "; planned with what the address states");
    return open(false);
  }
}

// The devices among the sinks; null for a file, which holds no frames: it is not opened, so that none is written.
std::vector<std::unique_ptr<io::Sink>> open_devices(const std::vector<std::string>& addresses, io::SinkSpec spec,
                                                    std::vector<std::string>& notes) {
  std::vector<std::unique_ptr<io::Sink>> sinks;
  for (const std::string& address : addresses) {
    const auto open = [&](bool device) {
      spec.open_device = device;
      return io::open_sink(address, spec);
    };
    sinks.push_back(io::is_device_sink(address) ? open_or_note(open, notes) : nullptr);
  }
  return sinks;
}

Plan make_plan(const PlanOptions& options) {
  const pipeline::PipelineConfig config = pipeline::load_pipeline_config(options.pipeline_file, options.overrides);
  check_budget(config);
  say_unused_clusters(options.pipeline_file, config.cuda);
  const pipeline::Model model = pipeline::load_model(config.model_file);
  Plan plan;
  plan.budget = config.latency;
  plan.chunk_frames = config.chunk_frames;
  plan.precision = config.precision;

  const auto open = [&](bool device) { return open_source(config, model, device); };
  std::unique_ptr<io::Source> source =
      io::is_device_source(config.source_uri) ? open_or_note(open, plan.notes) : open(true);
  const io::SourceInfo& info = source->info();
  plan.streams = info.streams;
  pipeline::PipelineSpec spec = pipeline_spec(config, info.streams, info.rate_hz);
  spec.fallback = pipeline::Fallback::kNone;  // what is timed is what was asked for
  pipeline::Pipeline pipeline(model, spec);
  say_choice(pipeline.engine(), card_settings_of(config));
  plan.device = pipeline.engine().device();
  std::vector<std::unique_ptr<io::Sink>> sinks =
      open_devices(config.sink_uris, sink_spec(pipeline, info, info.frames), plan.notes);
  plan.ledger = io::session_ledger(info, pipeline, sinks, needs_pace(info, sinks));
  // Their threads are not to disturb what is measured now.
  sinks.clear();
  source.reset();

  const pipeline::Calibration calibration = pipeline::calibrate(pipeline, kPlanTime);
  plan.chunks = calibration.chunk;
  plan.compute = pipeline::telling_time(calibration);
  plan.ledger.add(pipeline::measured_term(plan.compute));
  plan.misfits = pipeline::misfits(plan.ledger, plan.budget, plan.chunk_frames, plan.compute);
  return plan;
}

std::string text_of(const pipeline::LatencyTerm& term) {
  return term.key.name.empty() ? term.note : term.key.name + (term.note.empty() ? "" : "; " + term.note);
}

ordered_json json_of(const pipeline::LatencyTerm& term) {
  return {{"part", pipeline::to_string(term.part)},
          {"place", term.place},
          {"kind", pipeline::to_string(term.kind)},
          {"frames", term.rate_hz > 0 ? ordered_json(term.frames) : ordered_json()},
          {"rate_hz", term.rate_hz > 0 ? ordered_json(term.rate_hz) : ordered_json()},
          {"ms", ms_of(term.time())},
          {"key", term.key.name.empty() ? ordered_json() : ordered_json(term.key.name)},
          {"note", term.note.empty() ? ordered_json() : ordered_json(term.note)}};
}

void print_json(const Plan& plan) {
  ordered_json json;
  json["fits"] = plan.misfits.empty();
  json["budget_ms"] = plan.budget.budget_ms ? ordered_json(*plan.budget.budget_ms) : ordered_json();
  json["total_ms"] = ms_of(plan.ledger.total());
  json["algorithmic_frames"] = plan.ledger.frames(LatencyKind::kAlgorithmic);
  json["algorithmic_ms"] = ms_of(plan.ledger.total(LatencyKind::kAlgorithmic));
  json["buffering_ms"] = ms_of(plan.ledger.total(LatencyKind::kBuffering));
  json["measured_ms"] = ms_of(plan.ledger.total(LatencyKind::kMeasured));
  json["measured_quantile"] = plan.compute.quantile;
  json["chunks"] = plan.chunks.count();
  json["p50_us"] = microseconds(plan.chunks.quantile(0.5));
  json["p99_us"] = microseconds(plan.chunks.quantile(0.99));
  json["p999_us"] = microseconds(plan.chunks.quantile(0.999));
  json["max_us"] = microseconds(plan.chunks.max());
  json["engine_us"] = microseconds(plan.compute.engine);
  json["stages_us"] = microseconds(plan.compute.stages);
  json["rate_hz"] = plan.ledger.rate_hz();
  json["streams"] = plan.streams;
  json["chunk_frames"] = plan.chunk_frames;
  json["chunk_period_ms"] = static_cast<double>(plan.chunk_frames) / plan.ledger.rate_hz() * 1e3;
  json["terms"] = ordered_json::array();
  for (const pipeline::LatencyTerm& term : plan.ledger.terms()) json["terms"].push_back(json_of(term));
  json["misfits"] = ordered_json::array();
  for (const pipeline::Misfit& misfit : plan.misfits) {
    json["misfits"].push_back({{"text", misfit.text},
                               {"place", misfit.place},
                               {"key", misfit.key.empty() ? ordered_json() : ordered_json(misfit.key)},
                               {"at_most", misfit.at_most ? ordered_json(*misfit.at_most) : ordered_json()}});
  }
  json["notes"] = plan.notes;
  json["device"] = plan.device;
  json["precision"] = pipeline::to_string(plan.precision);
  std::cout << json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

void print_terms(const pipeline::LatencyLedger& ledger) {
  constexpr std::size_t kColumns = 6;
  using Row = std::array<std::string, kColumns>;
  std::vector<Row> rows{{"part", "place", "kind", "frames", "ms", "set by"}};
  for (const pipeline::LatencyTerm& term : ledger.terms()) {
    rows.push_back({std::string(pipeline::to_string(term.part)), term.place,
                    std::string(pipeline::to_string(term.kind)), term.rate_hz > 0 ? std::to_string(term.frames) : "-",
                    format_number(ms_of(term.time())), text_of(term)});
  }
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < kColumns; ++c) {
      const std::string space(widths[c] - row[c].size(), ' ');
      const bool is_number = c == 3 || c == 4;
      line += (c == 0 ? "" : "  ") + (is_number ? space + row[c] : row[c] + space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    std::cout << line << '\n';
  }
}

void print_text(const Plan& plan) {
  const auto ms_text = [](std::chrono::duration<double> time) { return format_number(ms_of(time)) + " ms"; };
  const auto quantile = [&plan](double fraction) { return pipeline::duration_text(plan.chunks.quantile(fraction)); };
  const std::chrono::duration<double> period(static_cast<double>(plan.chunk_frames) / plan.ledger.rate_hz());
  print_terms(plan.ledger);
  std::cout << "\nalgorithmic  " << plan.ledger.frames(LatencyKind::kAlgorithmic) << " frames at "
            << format_number(plan.ledger.rate_hz(), 9) << " Hz, "
            << ms_text(plan.ledger.total(LatencyKind::kAlgorithmic)) << "\nbuffering    "
            << ms_text(plan.ledger.total(LatencyKind::kBuffering)) << "\nmeasured     "
            << ms_text(plan.ledger.total(LatencyKind::kMeasured)) << ", the " << plan.compute.quantile << " of "
            << plan.chunks.count() << " chunks (p50 " << quantile(0.5) << ", p99 " << quantile(0.99) << ", p99.9 "
            << quantile(0.999) << ", max " << pipeline::duration_text(plan.chunks.max()) << "); engine "
            << pipeline::duration_text(plan.compute.engine) << ", stages "
            << pipeline::duration_text(plan.compute.stages) << "\nin all       " << ms_text(plan.ledger.total())
            << ": algorithmic + buffering + measured " << plan.compute.quantile << "; "
            << ms_text(plan.ledger.total() - plan.compute.chunk + plan.compute.chunk_p50) << " with p50\nbudget       ";
  if (plan.budget.budget_ms) {
    const double left_ms = *plan.budget.budget_ms - ms_of(plan.ledger.total());
    std::cout << format_number(*plan.budget.budget_ms) << " ms: " << format_number(std::abs(left_ms))
              << (left_ms < 0 ? " ms too little\n" : " ms left\n");
  } else {
    std::cout << "none: latency.budget_ms is not given\n";
  }
  std::cout << "pace         " << plan.chunk_frames
            << (plan.chunk_frames == 1 ? " frame arrives in " : " frames arrive in ") << ms_text(period)
            << ", computed in " << ms_text(plan.compute.chunk) << " (" << plan.compute.quantile << "), "
            << ms_text(plan.compute.chunk_p50) << " (p50)\n"
            << "device       " << plan.device << ", " << pipeline::to_string(plan.precision) << '\n';
}

ExitCode plan(const PlanOptions& options) {
  const Plan plan = make_plan(options);
  for (const std::string& note : plan.notes) say(note);
  if (options.json) {
    print_json(plan);
  } else {
    print_text(plan);
  }
  for (const pipeline::Misfit& misfit : plan.misfits) say(options.pipeline_file + ": " + misfit.text);
  return plan.misfits.empty() ? ExitCode::kDone : ExitCode::kCheckFailed;
}

}  // namespace

Trial try_out(pipeline::PipelineConfig& config, const pipeline::Model& model, std::int64_t streams) {
  pipeline::Pipeline pipeline(model, pipeline_spec(config, streams, model.frame_rate_hz));
  pipeline::Calibration calibration = pipeline::calibrate(pipeline, kTryOutTime);
  Trial trial;
  if (const pipeline::Failover* failover = pipeline.engine().failover()) {
    trial.failover = *failover;
    say("while the budget was tried: " + describe(*failover));
    // The run goes on as it would have had the card failed a little later; a card that has failed may take no engine.
    config.backend = pipeline::Backend::kCpu;
    config.precision = pipeline::Precision::kFp32;
    calibration = pipeline::calibrate(pipeline, kTryOutTime);
  }
  trial.compute = pipeline::median_time(calibration);
  return trial;
}

void add_plan(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<PlanOptions>();
  CLI::App* command = app.add_subcommand("plan", "Add up a pipeline file's latency, against its budget");
  command->add_option("pipeline", options->pipeline_file, "Pipeline file")->required()->type_name("PIPELINE.yaml");
  command->add_option("--set", options->overrides, "Replace a value of the file: dotted key=value; repeatable")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Every wait of a frame from its instant to its result: algorithmic (in frames, on any machine), buffering (in\n"
      "devices and rings) and measured (noise through the real pipeline for 0.3 s). The exit code is 1 when they do "
      "not\n"
      "fit latency.budget_ms or a chunk is computed more slowly than it arrives; a line then names what to change.\n"
      "A sound device is opened to ask it; where there is none, the address says what it can. No sink is written.\n\n"
      "Example:\n"
      "  halotap plan configs/live-cochlea.yaml --set latency.budget_ms=20");
  command->callback([options, &chosen] { chosen = [options] { return plan(*options); }; });
}

}  // namespace halotap::apps
