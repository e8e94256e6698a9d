#include "verify.hpp"

#include <atomic>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comparison.hpp"
#include "halotap/io/endpoint.hpp"
#include "interrupt.hpp"
#include "message.hpp"
#include "option_values.hpp"
#include "processing.hpp"
#include "progress_bar.hpp"

namespace halotap::apps {
namespace {

constexpr Tolerances kDefaultTolerances{1e-6, 1e-30};

struct VerifyOptions {
  ProcessingOptions processing;
  std::string expectation;  // an address
  std::optional<double> rel_l2;
  std::optional<double> abs;
  bool json = false;

  // Asking for an absolute tolerance alone asks for that check: a default beside it could pass what it refuses.
  Tolerances tolerances() const {
    return {rel_l2.value_or(abs ? 0 : kDefaultTolerances.rel_l2), abs.value_or(kDefaultTolerances.abs)};
  }
};

std::string describe(const std::optional<double>& figure) { return figure ? format_number(*figure, 6) : "undefined"; }

void print_json(const VerifyOptions& options, const Comparison& comparison, const io::SourceInfo& info,
                std::int64_t channels, const Processed& processed, bool pass, const std::optional<Mismatch>& mismatch) {
  using nlohmann::ordered_json;
  const auto number = [](const std::optional<double>& figure) {
    return figure ? ordered_json(*figure) : ordered_json();
  };
  ordered_json json;
  json["rel_l2"] = number(comparison.rel_l2());
  json["max_abs"] = number(comparison.max_abs());
  json["frames"] = comparison.frames();
  json["streams"] = info.streams;
  json["channels"] = channels;
  json["pass"] = pass;
  json["rel_l2_tolerance"] = options.tolerances().rel_l2;
  json["abs_tolerance"] = options.tolerances().abs;
  json["non_finite_mismatches"] = comparison.non_finite_mismatches();
  if (mismatch) {
    json["first_mismatch"] = {{"stream", mismatch->stream},
                              {"channel", mismatch->channel},
                              {"frame", mismatch->frame},
                              {"got", mismatch->got},
                              {"expected", mismatch->expected}};
  } else {
    json["first_mismatch"] = nullptr;
  }
  json["device"] = processed.device;
  json["precision"] = pipeline::to_string(options.processing.precision);
  std::cout << json.dump() << '\n';
}

void print_text(const VerifyOptions& options, const Comparison& comparison, const io::SourceInfo& info,
                std::int64_t channels, const Processed& processed, bool pass) {
  const Tolerances tolerances = options.tolerances();
  std::cout << (pass ? "pass" : "FAIL") << '\n'
            << "rel_l2   " << describe(comparison.rel_l2()) << " (tolerance " << format_number(tolerances.rel_l2, 6)
            << ")\n"
            << "max_abs  " << describe(comparison.max_abs()) << " (tolerance " << format_number(tolerances.abs, 6)
            << ")\n"
            << "over     streams " << info.streams << ", channels " << channels << ", frames " << comparison.frames()
            << '\n'
            << "device   " << processed.device << ", " << pipeline::to_string(options.processing.precision) << '\n';
}

ExitCode verify(VerifyOptions options) {
  const std::atomic<bool>* stop = watch_for_interrupt();
  // What is to be verified is not to be computed by another.
  options.processing.fallback = pipeline::Fallback::kNone;
  const Subject subject = load_subject(options.processing);
  const std::unique_ptr<io::Source> source = open_input(options.processing, subject.model);
  const io::SourceInfo& info = source->info();

  std::vector<std::unique_ptr<io::Sink>> sinks;
  const Comparison* made = nullptr;
  std::int64_t channels = 0;
  const auto open_sinks = [&](const io::SinkSpec& spec) -> const std::vector<std::unique_ptr<io::Sink>>& {
    channels = spec.channels;
    auto comparison = std::make_unique<Comparison>(
        io::open_source(options.expectation, {spec.channels, spec.channel_names, spec.rate_hz}), options.expectation,
        spec, stop);
    made = comparison.get();
    sinks.push_back(std::move(comparison));
    return sinks;
  };

  Processed processed;
  {
    ProgressBar bar(info.frames, info.rate_hz);
    io::SessionSpec spec;
    spec.stop = stop;
    spec.on_progress = [&bar](std::int64_t frames) { bar.update(frames); };
    processed = process_recording(*source, subject, options.processing, open_sinks, spec);
  }

  const Comparison& comparison = *made;
  const Tolerances tolerances = options.tolerances();
  const bool stopped = processed.report.stopped;
  const bool equal = comparison.passes(tolerances);
  const bool pass = equal && !stopped;
  const std::optional<Mismatch> mismatch = comparison.first_mismatch(tolerances);
  if (options.json) {
    print_json(options, comparison, info, channels, processed, pass, mismatch);
  } else {
    print_text(options, comparison, info, channels, processed, pass);
  }
  if (mismatch) {
    say(options.expectation + ": mismatch, first at stream " + std::to_string(mismatch->stream) + ", channel " +
        std::to_string(mismatch->channel) + ", frame " + std::to_string(mismatch->frame) + ": expected " +
        format_number(mismatch->expected, 9) + ", got " + format_number(mismatch->got, 9) + "; rel_l2 " +
        describe(comparison.rel_l2()) + ", max_abs " + describe(comparison.max_abs()) +
        (comparison.non_finite_mismatches() > 0
             ? ", " + std::to_string(comparison.non_finite_mismatches()) + " samples finite on one side only"
             : ""));
  }
  if (stopped) say("stopped early: only the first " + std::to_string(comparison.frames()) + " frames were compared");
  return pass ? ExitCode::kDone : ExitCode::kCheckFailed;
}

}  // namespace

void add_verify(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand("verify", "Compare what the engine computes with an expected result");
  add_processing_options(*command, options->processing, false);
  command->add_option("--expect", options->expectation, "Expected result, float64 kept as it is")
      ->required()
      ->type_name("ADDRESS");
  add_value(*command, "--rel-l2", options->rel_l2, parse_tolerance, "TOL", "a finite number, at least 0",
            "Largest ||result - expected|| / ||expected||; 0 when only --abs is given")
      ->default_str(format_number(kDefaultTolerances.rel_l2))
      ->group("Tolerances (either one holding is enough)");
  add_value(*command, "--abs", options->abs, parse_tolerance, "TOL", "a finite number, at least 0",
            "Largest |result - expected|")
      ->default_str(format_number(kDefaultTolerances.abs))
      ->group("Tolerances (either one holding is enough)");
  command->add_flag("--json", options->json, "Print the result as one JSON object");
  command->footer(
      "NaN equals NaN and an infinity itself; a sample finite on one side only fails, whatever the tolerances.\n"
      "Exit code 0: equal within a tolerance. 1: not equal, or stopped before the end.\n\n"
      "Example:\n"
      "  halotap verify --model tests/data/golden/stack_same/model.yaml --input tests/data/golden/stack_same/x.npy \\\n"
      "      --expect tests/data/golden/stack_same/y.npy --chunk random:3");
  command->callback([options, &chosen] { chosen = [options] { return verify(*options); }; });
}

}  // namespace halotap::apps
