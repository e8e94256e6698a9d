#include "inspect.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iomanip>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/model.hpp"
#include "latency_json.hpp"
#include "message.hpp"
#include "option_values.hpp"
#include "processing.hpp"

namespace halotap::apps {
namespace {

struct InspectOptions {
  std::string model_file;
  std::int64_t chunk_frames = kDefaultChunkFrames;
  std::int64_t streams = 1;
  CudaOptions cuda;
  bool json = false;
};

double milliseconds(std::int64_t frames, const pipeline::Model& model) {
  return static_cast<double>(frames) / model.frame_rate_hz * 1e3;
}

void print_json(const pipeline::Model& model, const pipeline::Engine& engine, const CudaOptions& cuda) {
  using nlohmann::ordered_json;
  const kernels::Stack& stack = *model.stack;
  ordered_json json;
  json["name"] = model.name;
  json["frame_rate_hz"] = model.frame_rate_hz;
  json["in_channels"] = stack.in_channels();
  json["out_channels"] = stack.out_channels();
  json["input_channels"] = model.input_channels;
  json["output_channels"] = model.output_channels;
  json["receptive_field_frames"] = stack.receptive_field();
  json["receptive_field_ms"] = milliseconds(stack.receptive_field(), model);
  json["lookahead_frames"] = stack.lookahead_frames();
  json["lookahead_ms"] = milliseconds(stack.lookahead_frames(), model);
  json["parameters"] = stack.parameters();
  json["macs_per_frame"] = stack.macs_per_frame();
  json["state_bytes_per_stream"] = engine.state_bytes();
  const std::optional<pipeline::BackendFigures>& figures = engine.choice().figures;
  json["device"] = engine.device();
  json["backend"] = {{"auto", pipeline::to_string(engine.backend())},
                     {"reason", engine.choice().reason},
                     {"cpu_p999_us", figures ? ordered_json(microseconds(figures->cpu_p999)) : ordered_json()},
                     {"cuda_p999_us", figures ? ordered_json(microseconds(figures->cuda_p999)) : ordered_json()},
                     {"unused", unused_settings(engine, cuda.names())}};
  const std::string why_layers = kernels::one_kernel_refusal(stack, pipeline::Precision::kFp32);
  json["one_kernel"] = {{"fits", why_layers.empty()},
                        {"reason", why_layers.empty() ? ordered_json() : ordered_json(why_layers)}};
  json["layers"] = ordered_json::array();
  for (const kernels::Layer& layer : stack.layers()) {
    const kernels::LayerSpec& spec = layer.spec;
    ordered_json row;
    row["name"] = spec.name;
    row["type"] = kernels::to_string(spec.type);
    row["in_channels"] = spec.in_channels;
    row["out_channels"] = spec.out_channels;
    row["kernel_size"] = spec.kernel_size;
    row["dilation"] = spec.dilation;
    row["padding"] = kernels::to_string(spec.padding);
    row["activation"] = kernels::to_string(spec.activation);
    row["residual"] = spec.residual;
    row["batch_norm"] = layer.weights.batch_norm.has_value();
    row["halo_frames"] = spec.halo_frames();
    row["lookahead_frames"] = spec.right_frames();
    row["parameters"] = layer.weights.parameters();
    row["macs_per_frame"] = layer.macs_per_frame();
    json["layers"].push_back(row);
  }
  std::cout << json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

void print_layers(const kernels::Stack& stack) {
  constexpr std::size_t kColumns = 12;
  constexpr std::size_t kTextColumns = 2;  // aligned left; numbers and flags to the right
  using Row = std::array<std::string, kColumns>;
  std::vector<Row> rows{{"layer", "type", "in", "out", "kernel", "dilation", "padding", "activation", "residual",
                         "batch norm", "parameters", "MACs"}};
  for (const kernels::Layer& layer : stack.layers()) {
    const kernels::LayerSpec& spec = layer.spec;
    const bool conv = spec.type == kernels::LayerType::kTemporalConv;
    rows.push_back({spec.name, std::string(kernels::to_string(spec.type)), std::to_string(spec.in_channels),
                    std::to_string(spec.out_channels), conv ? std::to_string(spec.kernel_size) : "-",
                    conv ? std::to_string(spec.dilation) : "-",
                    conv ? std::string(kernels::to_string(spec.padding)) : "-",
                    std::string(kernels::to_string(spec.activation)), spec.residual ? "yes" : "-",
                    layer.weights.batch_norm ? "yes" : "-", std::to_string(layer.weights.parameters()),
                    std::to_string(layer.macs_per_frame())});
  }
  std::array<std::size_t, kColumns> widths{};
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < kColumns; ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  for (const Row& row : rows) {
    for (std::size_t c = 0; c < kColumns; ++c) {
      std::cout << (c == 0 ? "" : "  ") << (c < kTextColumns ? std::left : std::right)
                << std::setw(static_cast<int>(widths[c])) << row[c];
    }
    std::cout << '\n';
  }
}

std::string one_kernel(const kernels::Stack& stack) {
  const std::string why = kernels::one_kernel_refusal(stack, pipeline::Precision::kFp32);
  return why.empty() ? "one kernel for the whole stack (fp32, from Hopper on), or a kernel a layer where asked for"
                     : "a kernel a layer alone: " + why;
}

void print_text(const pipeline::Model& model, const pipeline::Engine& engine, const CudaOptions& cuda) {
  const kernels::Stack& stack = *model.stack;
  const auto frames = [&model](std::int64_t count) {
    return std::to_string(count) + " frames (" + format_number(milliseconds(count, model)) + " ms)";
  };
  const double gmacs_per_s = static_cast<double>(stack.macs_per_frame()) * model.frame_rate_hz / 1e9;
  std::cout << "name             " << model.name << '\n'
            << "frame rate       " << format_number(model.frame_rate_hz, 9) << " Hz\n"
            << "channels         " << stack.in_channels() << " in, " << stack.out_channels() << " out\n";
  if (!model.input_channels.empty()) std::cout << "inputs           " << join(model.input_channels) << '\n';
  if (!model.output_channels.empty()) std::cout << "outputs          " << join(model.output_channels) << '\n';
  std::cout << "receptive field  " << frames(stack.receptive_field()) << '\n'
            << "lookahead        " << frames(stack.lookahead_frames()) << '\n'
            << "parameters       " << stack.parameters() << '\n'
            << "MACs a frame     " << stack.macs_per_frame() << " (" << format_number(gmacs_per_s)
            << " GMAC/s a stream in real time)\n"
            << "state            " << engine.state_bytes() << " bytes a stream\n"
            << "backend          auto is " << engine.device() << ": " << describe_choice(engine, cuda.names()) << '\n'
            << "on a card        " << one_kernel(stack) << "\n\n";
  print_layers(stack);
}

ExitCode inspect(const InspectOptions& options) {
  const pipeline::Model model = pipeline::load_model(options.model_file);
  pipeline::Engine engine;
  engine.prepare(model, {.max_streams = options.streams,
                         .max_chunk_frames = options.chunk_frames,
                         .cuda = options.cuda.over({}, pipeline::Backend::kAuto)});
  if (options.json) {
    print_json(model, engine, options.cuda);
  } else {
    print_text(model, engine, options.cuda);
  }
  return ExitCode::kDone;
}

}  // namespace

void add_inspect(CLI::App& app, Command& chosen) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a model is and what it costs");
  command->add_option("model", options->model_file, "Model file")->required()->type_name("M.yaml");
  add_count(*command, "--chunk", options->chunk_frames, {1, kMaxChunkFrames},
            "Frames a chunk, for what backend auto is")
      ->default_str(std::to_string(options->chunk_frames));
  add_count(*command, "--streams", options->streams, {1, std::int64_t{1} << 20}, "Streams side by side, likewise")
      ->default_str(std::to_string(options->streams));
  add_cuda_options(*command, options->cuda);
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(
      "Receptive field: frames of input that reach one output frame. Lookahead: frames of future input among them.\n"
      "MACs: multiply-accumulates an output frame costs.\n\n"
      "Example:\n"
      "  halotap inspect configs/cochlea/model.yaml");
  command->callback([options, &chosen] { chosen = [options] { return inspect(*options); }; });
}

}  // namespace halotap::apps
