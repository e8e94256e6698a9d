#include "bench.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "halotap/pipeline/build_info.hpp"
#include "halotap/pipeline/device_timing.hpp"
#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/latency.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/roofline.hpp"
#include "message.hpp"
#include "option_values.hpp"
#include "processing.hpp"

namespace halotap::apps {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::ordered_json;
using pipeline::SampleType;

constexpr std::uint64_t kSeed = 1;
// 2^28 numbers: 2 GiB of weights in double, 1 GiB of input and output.
constexpr std::int64_t kMaxNumbers = std::int64_t{1} << 28;
constexpr std::uint64_t kLeastCalls = 10;
constexpr double kRooflineSeconds = 0.01;  // timed calls between two samples of the roof

struct BenchOptions {
  std::string model_file;  // stack only; not empty: instead of a random model of the shape below
  std::int64_t layers = 8;
  std::int64_t channels = 128;
  std::int64_t out_channels = 0;  // block only; 0: as channels
  std::int64_t kernel_size = 5;
  std::vector<std::int64_t> dilations;  // one a layer, repeated from the front
  std::int64_t streams = 1;
  std::int64_t chunk_frames = 64;
  pipeline::Backend backend = pipeline::Backend::kAuto;
  pipeline::Precision precision = pipeline::Precision::kFp32;
  CudaOptions cuda;
  SampleType samples = SampleType::kFloat32;  // in a card's memory; block only
  double seconds = 2;
  bool json = false;
};

// Normal numbers of standard deviation `deviation`.
template <typename Sample>
std::vector<Sample> random_samples(std::int64_t count, double deviation, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<Sample> samples(static_cast<std::size_t>(count));
  for (Sample& sample : samples) sample = static_cast<Sample>(normal(random));
  return samples;
}

// Bytes of the weights as the engine reads them: float32, batch norm folded, every layer with its biases, no padding.
std::int64_t weight_bytes(const kernels::Stack& stack) {
  std::int64_t numbers = 0;
  for (const kernels::Layer& layer : stack.layers()) {
    const kernels::LayerSpec& spec = layer.spec;
    numbers += (spec.in_channels + 1) * spec.out_channels;
    if (spec.type == kernels::LayerType::kTemporalConv) numbers += (spec.kernel_size + 1) * spec.in_channels;
  }
  return numbers * static_cast<std::int64_t>(sizeof(float));
}

void require_at_most(double count, const std::string& what) {
  if (count <= static_cast<double>(kMaxNumbers)) return;
  throw pipeline::ConfigError("bench: " + what + ": expected at most " + std::to_string(kMaxNumbers) + ", got " +
                              format_number(count, 12));
}

void require_reasonable_weights(const BenchOptions& options) {
  require_at_most(static_cast<double>(options.layers) * static_cast<double>(options.channels) *
                      static_cast<double>(options.kernel_size + options.out_channels),
                  "weights");
}

// Causal SiLU layers whose weights keep the signal's size through the stack: 1/sqrt(fan-in), with biases.
pipeline::Model random_model(const BenchOptions& options, std::mt19937_64& random) {
  require_reasonable_weights(options);
  std::vector<kernels::Layer> layers;
  for (std::int64_t i = 0; i < options.layers; ++i) {
    const std::int64_t in = options.channels;
    const std::int64_t out = options.out_channels;
    kernels::Layer layer;
    layer.spec.name = "layers." + std::to_string(i);
    layer.spec.in_channels = in;
    layer.spec.out_channels = out;
    layer.spec.kernel_size = options.kernel_size;
    layer.spec.dilation = options.dilations[static_cast<std::size_t>(i) % options.dilations.size()];
    const double dw_deviation = 1 / std::sqrt(static_cast<double>(options.kernel_size));
    const double pw_deviation = 1 / std::sqrt(static_cast<double>(in));
    layer.weights.dw_weight = random_samples<double>(in * options.kernel_size, dw_deviation, random);
    layer.weights.dw_bias = random_samples<double>(in, dw_deviation, random);
    layer.weights.pw_weight = random_samples<double>(out * in, pw_deviation, random);
    layer.weights.pw_bias = random_samples<double>(out, pw_deviation, random);
    layers.push_back(std::move(layer));
  }
  pipeline::Model model;
  model.name = "bench";
  model.frame_rate_hz = 1;
  try {
    model.stack = std::make_shared<const kernels::Stack>(std::move(layers));
  } catch (const std::invalid_argument& error) {
    throw pipeline::ConfigError(std::string("bench: ") + error.what());
  }
  return model;
}

double microseconds(std::chrono::nanoseconds duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Calls `work` for `seconds`, at least `least_calls` times, and records how long each call took.
template <typename Work>
void time_calls(double seconds, int least_calls, Work work, pipeline::LatencyHistogram& times) {
  const Clock::time_point end = Clock::now() + duration(seconds);
  for (int calls = 0; calls < least_calls || Clock::now() < end; ++calls) {
    const Clock::time_point start = Clock::now();
    work();
    times.record(Clock::now() - start);
  }
}

// Median time of a copy that reads and writes `bytes` together: no computation over these inputs and outputs in memory
// can be faster on this thread.
double measure_copy_us(std::int64_t bytes, std::mt19937_64& random) {
  const std::int64_t samples = std::max<std::int64_t>(1, bytes / 2 / static_cast<std::int64_t>(sizeof(float)));
  const std::vector<float> from = random_samples<float>(samples, 1, random);
  std::vector<float> to(from.size());
  pipeline::LatencyHistogram times;
  const auto copy = [&from, &to] {
    std::memcpy(to.data(), from.data(), from.size() * sizeof(float));
    asm volatile("" : : "r"(to.data()) : "memory");  // the copy counts as read, so that it is not left out
  };
  time_calls(0.1, 15, copy, times);
  return microseconds(times.quantile(0.5));
}

// The longest time this thread was kept from running in a tenth of a second of doing nothing: what of max_us may be the
// machine's and not ours.
double measure_noise_us() {
  Clock::duration longest{0};
  const Clock::time_point end = Clock::now() + std::chrono::milliseconds(100);
  for (Clock::time_point last = Clock::now(); last < end;) {
    const Clock::time_point now = Clock::now();
    longest = std::max(longest, now - last);
    last = now;
  }
  return microseconds(longest);
}

void require_reasonable_samples(const BenchOptions& options, const kernels::Stack& stack) {
  require_at_most(static_cast<double>(options.streams) * static_cast<double>(options.chunk_frames) *
                      static_cast<double>(stack.in_channels() + stack.out_channels()),
                  "input and output samples");
}

void require_samples_of(pipeline::Backend backend, const BenchOptions& options) {
  if (backend == pipeline::Backend::kCpu && options.samples != SampleType::kFloat32) {
    throw pipeline::ConfigError("--samples: expected fp32, which is what the cpu backend takes, got " +
                                std::string(pipeline::to_string(options.samples)));
  }
}

// The kernels alone, on the card, beside a copy there of the same bytes.
void measure_on_device(const BenchOptions& options, const pipeline::Model& model, ordered_json& json) {
  const pipeline::DeviceTiming timing =
      pipeline::time_on_device(model, {options.streams, options.chunk_frames, options.precision, options.samples});
  json["kernels"] = timing.kernels;
  json["kernel_cold_us"] = timing.cold_us;
  json["kernel_warm_us"] = timing.warm_us;
  json["generic_cold_us"] = timing.generic_cold_us;
  json["kernel_bytes"] = timing.bytes;
  json["device_copy_cold_us"] = timing.copy_cold_us;
  json["device_copy_warm_us"] = timing.copy_warm_us;
  json["copy_ratio"] = timing.cold_us / timing.copy_cold_us;
  json["rel_l2"] = timing.rel_l2;
}

// Measures `model` and adds the figures to `json`, which holds the arguments already.
void measure(const BenchOptions& options, const pipeline::Model& model, std::mt19937_64& random, ordered_json& json) {
  const kernels::Stack& stack = *model.stack;
  require_reasonable_samples(options, stack);
  const pipeline::CudaSpec cuda = options.cuda.over({}, options.backend);
  pipeline::Engine engine;
  engine.prepare(model, {.backend = options.backend,
                         .precision = options.precision,
                         .max_streams = options.streams,
                         .max_chunk_frames = options.chunk_frames,
                         .fallback = pipeline::Fallback::kNone,
                         .cuda = cuda});
  say_choice(engine, options.cuda.names());
  const bool on_cpu = engine.backend() == pipeline::Backend::kCpu;
  require_samples_of(engine.backend(), options);

  const std::int64_t in_samples = stack.in_channels() * options.chunk_frames;
  const std::int64_t out_samples = stack.out_channels() * options.chunk_frames;
  const std::vector<float> input = random_samples<float>(options.streams * in_samples, 1, random);
  std::vector<float> output(static_cast<std::size_t>(options.streams * out_samples));
  std::vector<pipeline::StreamChunk> chunks(static_cast<std::size_t>(options.streams));
  pipeline::Status status = pipeline::Status::kOk;
  for (std::int64_t s = 0; s < options.streams && status == pipeline::Status::kOk; ++s) {
    pipeline::StreamChunk& chunk = chunks[static_cast<std::size_t>(s)];
    status = engine.open(chunk.stream);
    chunk.input = kernels::planar(input.data() + s * in_samples, stack.in_channels(), options.chunk_frames);
    chunk.output = kernels::planar(output.data() + s * out_samples, stack.out_channels(), options.chunk_frames);
  }
  const auto process = [&engine, &chunks, &status] {
    const pipeline::Status outcome = engine.process(chunks);
    if (outcome != pipeline::Status::kOk) status = outcome;
  };
  pipeline::LatencyHistogram untimed;
  pipeline::LatencyHistogram times;
  pipeline::Roofline roofline;
  time_calls(options.seconds / 10, 3, process, untimed);  // caches, branch predictors and the clock rate settle
  const Clock::time_point end = Clock::now() + duration(options.seconds);
  while (times.count() < kLeastCalls || Clock::now() < end) {
    if (on_cpu) roofline.sample();
    time_calls(0, 3, process, untimed);  // the samples leave other data in the caches
    time_calls(kRooflineSeconds, 1, process, times);
  }
  if (status == pipeline::Status::kDeviceFailed) throw pipeline::DeviceError(engine.failure());
  if (status != pipeline::Status::kOk) {
    throw pipeline::Error("bench: the engine refused a call: " + std::string(pipeline::to_string(status)));
  }

  const std::int64_t macs = stack.macs_per_frame() * options.chunk_frames * options.streams;
  const std::int64_t sample_bytes =
      static_cast<std::int64_t>(sizeof(float)) * options.streams * (in_samples + out_samples);
  const std::int64_t bytes = weight_bytes(stack) + sample_bytes;
  const double p50_us = microseconds(times.quantile(0.5));
  json["calls"] = times.count();
  json["p50_us"] = p50_us;
  json["p99_us"] = microseconds(times.quantile(0.99));
  json["p999_us"] = microseconds(times.quantile(0.999));
  json["max_us"] = microseconds(times.max());
  json["macs"] = macs;
  const double gflops = 2 * static_cast<double>(macs) / (p50_us * 1e3);
  const double gbytes_per_s = static_cast<double>(bytes) / (p50_us * 1e3);
  json["gflops"] = gflops;
  if (on_cpu) {
    const double peak_gflops = roofline.gflops();
    const double l2_gbytes_per_s = roofline.l2_gbytes_per_s();
    json["peak_gflops"] = peak_gflops;
    json["peak_fraction"] = gflops / peak_gflops;
    json["bytes"] = bytes;
    json["gbytes_per_s"] = gbytes_per_s;
    json["l2_gbytes_per_s"] = l2_gbytes_per_s;
    json["bytes_fraction"] = gbytes_per_s / l2_gbytes_per_s;
    json["copy_us"] = measure_copy_us(sample_bytes, random);
  } else {
    json["bytes"] = bytes;
    json["gbytes_per_s"] = gbytes_per_s;
    json["cuda_wait"] = to_string(cuda.wait);
    measure_on_device(options, model, json);
  }
  json["noise_max_us"] = measure_noise_us();
  json["device"] = engine.device();
  json["compiler"] = pipeline::kCompiler;
  json["commit"] = pipeline::kCommit;
}

void print(const ordered_json& json, bool as_json) {
  if (as_json) {
    std::cout << json.dump() << '\n';
    return;
  }
  for (const auto& [key, value] : json.items()) {
    const std::string text = value.is_number_float() ? format_number(value.get<double>())
                             : value.is_string()     ? value.get<std::string>()
                                                     : value.dump();
    std::cout << key << std::string(key.size() < 20 ? 20 - key.size() : 1, ' ') << text << '\n';
  }
}

ExitCode bench_block(BenchOptions options) {
  require_samples_of(options.backend, options);
  if (options.out_channels == 0) options.out_channels = options.channels;
  ordered_json json;
  json["bench"] = "block";
  json["batch"] = options.streams;
  json["channels"] = options.channels;
  json["out_channels"] = options.out_channels;
  json["kernel"] = options.kernel_size;
  json["dilation"] = options.dilations.front();
  json["frames"] = options.chunk_frames;
  json["precision"] = pipeline::to_string(options.precision);
  json["samples"] = pipeline::to_string(options.samples);
  std::mt19937_64 random(kSeed);
  measure(options, random_model(options, random), random, json);
  print(json, options.json);
  return ExitCode::kDone;
}

ExitCode bench_stack(BenchOptions options) {
  options.out_channels = options.channels;
  std::mt19937_64 random(kSeed);
  const bool from_file = !options.model_file.empty();
  const pipeline::Model model = from_file ? pipeline::load_model(options.model_file) : random_model(options, random);
  ordered_json json;
  json["bench"] = "stack";
  if (from_file) {
    json["model"] = options.model_file;
    json["layers"] = model.stack->layers().size();
    json["channels"] = model.stack->in_channels();
    json["out_channels"] = model.stack->out_channels();
  } else {
    json["layers"] = options.layers;
    json["channels"] = options.channels;
    json["kernel"] = options.kernel_size;
    json["dilations"] = options.dilations;
  }
  json["chunk"] = options.chunk_frames;
  json["streams"] = options.streams;
  json["precision"] = pipeline::to_string(options.precision);
  measure(options, model, random, json);
  print(json, options.json);
  return ExitCode::kDone;
}

CLI::Option* add_shape(CLI::App& app, const std::string& name, std::int64_t& count, std::int64_t most,
                       const std::string& help) {
  return add_count(app, name, count, {1, most}, help)->default_str(std::to_string(count))->group("Shape");
}

void add_measuring_options(CLI::App& app, BenchOptions& options) {
  add_backend_options(app, options.backend, options.precision);
  add_cuda_options(app, options.cuda);
  add_value(app, "--seconds", options.seconds, parse_seconds, "S", "a number from 0.001 to 3600",
            "Time to measure for, after a tenth of it as warm-up")
      ->default_str(format_number(options.seconds));
  app.add_flag("--json", options.json, "Print one JSON object");
}

constexpr const char* kFigures =
    "Times are those of one call of the engine, from the caller's memory and back into it; p50_us is the median.\n"
    "macs: multiply-accumulates a call; gflops: 2 macs / p50_us; bytes: weights, input and output, each once;\n"
    "gbytes_per_s: bytes / p50_us. noise_max_us: the longest time this machine kept an idle loop from running.\n"
    "On the CPU: peak_gflops: what a loop of multiply-adds reaches on this core in the same run; l2_gbytes_per_s: "
    "what\n"
    "a loop reaches that reads 512 KiB again and again; copy_us: median time of copying as many bytes as the call "
    "reads\n"
    "and writes. On a card: kernel_cold_us, kernel_warm_us: the kernels alone over the whole batch, with inputs that "
    "the\n"
    "card's cache does not hold and with one that it may; generic_cold_us: by the kernel that takes any layer;\n"
    "kernel_bytes: those of input and output; device_copy_cold_us, device_copy_warm_us: a copy there of as many "
    "bytes;\n"
    "copy_ratio: kernel_cold_us / device_copy_cold_us; rel_l2: error against the reference, in double.\n"
    "Input is random, from a fixed seed, and so are the weights of a model that is not from a file.\n\n";

}  // namespace

void add_bench(CLI::App& app, Command& chosen) {
  CLI::App* command = app.add_subcommand("bench", "Measure the engine, on random weights or a model file");
  command->require_subcommand(1);
  command->footer(std::string(kFigures) +
                  "Examples:\n"
                  "  halotap bench block --batch 16 --channels 128 --kernel 5 --dilation 2 --frames 2048\n"
                  "  halotap bench stack --layers 8 --channels 128 --kernel 5 --chunk 64 --backend cpu --json");

  const auto block = std::make_shared<BenchOptions>();
  block->layers = 1;
  block->streams = 16;
  block->chunk_frames = 2048;
  block->dilations = {2};
  CLI::App* block_command = command->add_subcommand("block", "One layer over a batch, each recording as one chunk");
  add_shape(*block_command, "--batch", block->streams, std::int64_t{1} << 20, "Recordings");
  add_shape(*block_command, "--channels", block->channels, kernels::kMaxChannels, "Input channels");
  add_count(*block_command, "--out-channels", block->out_channels, {1, kernels::kMaxChannels},
            "Output channels; as many as --channels when not given")
      ->group("Shape");
  add_shape(*block_command, "--kernel", block->kernel_size, kernels::kMaxKernelSize, "Taps");
  add_shape(*block_command, "--dilation", block->dilations.front(), kernels::kMaxHaloFrames, "Frames between taps");
  add_shape(*block_command, "--frames", block->chunk_frames, kMaxNumbers, "Frames a recording");
  add_measuring_options(*block_command, *block);
  add_value(*block_command, "--samples", block->samples, pipeline::parse_sample_type, "fp32|bf16|fp16",
            "fp32, bf16 or fp16", "Samples in the card's memory, for kernel_cold_us and what is beside it")
      ->default_str("fp32")
      ->group("Engine");
  block_command->footer(std::string(kFigures) +
                        "Example:\n"
                        "  halotap bench block --batch 16 --channels 128 --kernel 5 --dilation 2 --frames 2048");
  block_command->callback([block, &chosen] { chosen = [block] { return bench_block(*block); }; });

  const auto stack = std::make_shared<BenchOptions>();
  stack->dilations = {1, 2, 4, 8};
  CLI::App* stack_command = command->add_subcommand("stack", "A stack of layers, streaming chunk after chunk");
  CLI::Option* layers = add_shape(*stack_command, "--layers", stack->layers, kernels::kMaxLayers, "Layers");
  CLI::Option* channels =
      add_shape(*stack_command, "--channels", stack->channels, kernels::kMaxChannels, "Channels of every layer");
  CLI::Option* kernel = add_shape(*stack_command, "--kernel", stack->kernel_size, kernels::kMaxKernelSize, "Taps");
  CLI::Option* dilations = add_value(*stack_command, "--dilations", stack->dilations, parse_dilations, "N,N,...",
                                     "whole numbers above 0 with commas between",
                                     "Frames between taps, a layer each, repeated from the front")
                               ->default_str("1,2,4,8")
                               ->group("Shape");
  stack_command->add_option("--model", stack->model_file, "Model file, instead of a stack of random weights")
      ->type_name("M.yaml")
      ->excludes(layers)
      ->excludes(channels)
      ->excludes(kernel)
      ->excludes(dilations)
      ->group("Shape");
  add_shape(*stack_command, "--chunk", stack->chunk_frames, kMaxChunkFrames, "Frames a chunk");
  add_shape(*stack_command, "--streams", stack->streams, std::int64_t{1} << 20, "Streams in one call");
  add_measuring_options(*stack_command, *stack);
  stack_command->footer(std::string(kFigures) +
                        "Example:\n"
                        "  halotap bench stack --layers 8 --channels 128 --kernel 5 --chunk 64 --backend cpu --json\n"
                        "  halotap bench stack --model configs/cochlea/model.yaml --chunk 480");
  stack_command->callback([stack, &chosen] { chosen = [stack] { return bench_stack(*stack); }; });
}

}  // namespace halotap::apps
