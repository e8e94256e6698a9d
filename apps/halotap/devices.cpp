#include "devices.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "halotap/io/devices.hpp"
#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/model.hpp"
#include "message.hpp"

namespace halotap::apps {
namespace {

using nlohmann::ordered_json;

struct Backend {
  pipeline::Backend backend;
  std::string device;   // "cuda (NVIDIA H200, one kernel a layer)"; empty when it cannot compute
  std::string problem;  // why it cannot; empty when it can
};

// y[t] = x[t], one channel: the least that an engine can be prepared with.
pipeline::Model least_model() {
  kernels::Layer layer;
  layer.spec.name = "identity";
  layer.spec.type = kernels::LayerType::kPointwise;
  layer.spec.in_channels = layer.spec.out_channels = 1;
  layer.spec.activation = kernels::Activation::kIdentity;
  layer.weights.pw_weight = {1};
  pipeline::Model model;
  model.name = "least";
  model.frame_rate_hz = 1;
  model.stack = std::make_shared<kernels::Stack>(std::vector<kernels::Layer>{std::move(layer)});
  return model;
}

// Each backend is asked to compute: only then is it known that its driver and its card are there.
std::vector<Backend> list_backends() {
  const pipeline::Model model = least_model();
  std::vector<Backend> backends;
  for (const pipeline::Backend backend : {pipeline::Backend::kCpu, pipeline::Backend::kCuda}) {
    Backend entry{backend, {}, {}};
    try {
      pipeline::Engine engine;
      engine.prepare(model, {.backend = backend, .fallback = pipeline::Fallback::kNone});
      entry.device = engine.device();
    } catch (const pipeline::DeviceError& error) {
      entry.problem = error.what();
    }
    backends.push_back(std::move(entry));
  }
  return backends;
}

double milliseconds(std::chrono::duration<double> time) { return time.count() * 1e3; }

ordered_json json_of(const io::AudioDirection& direction) {
  if (direction.channels == 0) return nullptr;
  return {{"channels", direction.channels},
          {"default", direction.is_default},
          {"low_latency_ms", milliseconds(direction.low_latency)},
          {"high_latency_ms", milliseconds(direction.high_latency)},
          {"problem", direction.problem.empty() ? ordered_json() : ordered_json(direction.problem)}};
}

void print_json(const io::AudioDevices& audio, const std::vector<Backend>& backends) {
  ordered_json json;
  json["hosts"] = audio.hosts;
  json["devices"] = ordered_json::array();
  for (const io::AudioDevice& device : audio.devices) {
    json["devices"].push_back({{"index", device.index},
                               {"name", device.name},
                               {"host", device.host},
                               {"default_rate_hz", device.default_rate_hz},
                               {"input", json_of(device.input)},
                               {"output", json_of(device.output)}});
  }
  json["problem"] = audio.problem.empty() ? ordered_json() : ordered_json(audio.problem);
  json["backends"] = ordered_json::array();
  for (const Backend& entry : backends) {
    json["backends"].push_back({{"backend", pipeline::to_string(entry.backend)},
                                {"device", entry.device.empty() ? ordered_json() : ordered_json(entry.device)},
                                {"problem", entry.problem.empty() ? ordered_json() : ordered_json(entry.problem)}});
  }
  std::cout << json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

void print_direction(const char* name, const io::AudioDirection& direction) {
  if (direction.channels == 0) return;
  std::cout << "     " << name << "  ";
  if (!direction.problem.empty()) {
    std::cout << "unusable: " << direction.problem << '\n';
    return;
  }
  std::cout << (direction.channels == 1 ? "1 channel" : "up to " + std::to_string(direction.channels) + " channels")
            << ", latency " << format_number(milliseconds(direction.low_latency), 3) << " (low) to "
            << format_number(milliseconds(direction.high_latency), 3) << " ms (high)"
            << (direction.is_default ? "; the default" : "") << '\n';
}

void print_text(const io::AudioDevices& audio, const std::vector<Backend>& backends) {
  if (!audio.problem.empty()) std::cout << "sound    " << audio.problem << '\n';
  for (const io::AudioDevice& device : audio.devices) {
    std::cout << "sound " << device.index << "  " << device.name << " (" << device.host << "), "
              << format_number(device.default_rate_hz, 9) << " Hz\n";
    print_direction("in ", device.input);
    print_direction("out", device.output);
  }
  for (const Backend& entry : backends) {
    std::cout << "compute  " << (entry.problem.empty() ? entry.device : entry.problem) << '\n';
  }
}

ExitCode list_devices(bool json) {
  const io::AudioDevices audio = io::list_audio_devices();
  const std::vector<Backend> backends = list_backends();
  if (json) {
    print_json(audio, backends);
  } else {
    print_text(audio, backends);
  }
  return ExitCode::kDone;
}

}  // namespace

void add_devices(CLI::App& app, Command& chosen) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("devices", "List sound devices, and what can compute");
  command->add_flag("--json", *json, "Print one JSON object");
  command->footer(
      "Rates and latencies are what a device claims; each direction is opened for an instant to see whether it can "
      "be.\n"
      "An address names a device by its number or its name.\n\n"
      "Example:\n"
      "  halotap devices");
  command->callback([json, &chosen] { chosen = [json] { return list_devices(*json); }; });
}

}  // namespace halotap::apps
