// How many streams one machine carries: threads that produce data at its pace, the asynchronous engine, and how long
// after its last frame was due every chunk's result was there. bench/README.md says how to run and read it.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "build_info.hpp"
#include "halotap/pipeline/async_engine.hpp"
#include "halotap/pipeline/latency.hpp"

namespace halotap::bench {
namespace {

using pipeline::AsyncCounters;
using pipeline::AsyncEngine;
using pipeline::AsyncResult;
using pipeline::Instant;
using pipeline::LatencyFigures;
using pipeline::LatencyHistogram;
using pipeline::Status;
using std::chrono::nanoseconds;
using SteadyClock = std::chrono::steady_clock;

struct Options {
  std::int64_t streams = 100;
  std::int64_t channels = 54;
  double rate_hz = 1000;
  std::int64_t chunk = 4;
  std::int64_t layers = 8;
  std::int64_t width = 128;
  std::int64_t kernel_size = 5;
  std::int64_t outputs = 0;
  double seconds = 5;
  double warm_up_seconds = 1;
  std::int64_t producers = 1;
  std::int64_t engines = 1;
  std::int64_t in_flight = 2;
  std::int64_t workers = 0;
  std::int64_t deadline_us = 0;  // 0: half the period
  std::int64_t margin_us = 50;
  std::int64_t max_wait_us = 1'000'000;
  std::int64_t poll_us = 0;
  pipeline::Backend backend = pipeline::Backend::kCpu;
  pipeline::Precision precision = pipeline::Precision::kFp32;
  std::string phases = "spread";
  bool json = false;
};

constexpr const char* kUsage =
    "fleet_bench [--streams N] [--channels N] [--rate HZ] [--chunk FRAMES] [--layers N] [--width CHANNELS]\n"
    "            [--kernel TAPS] [--outputs N] [--seconds S] [--warm-up S] [--producers THREADS] [--engines N]\n"
    "            [--in-flight N] [--workers THREADS] [--deadline-us US] [--margin-us US] [--max-wait-us US] [--poll-us "
    "US] [--backend "
    "cpu|cuda]\n"
    "            [--precision fp32|tf32|bf16|fp16] [--phases spread|together] [--json]\n";

template <typename Number>
Number number(const std::string& option, const std::string& text, Number least) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least)) {
    throw std::invalid_argument(option + ": expected a number from " + std::to_string(least) + " on, got '" + text +
                                "'");
  }
  return value;
}

struct WholeOption {
  std::string_view name;
  std::int64_t Options::*field;
  std::int64_t least;
};

constexpr WholeOption kWholeOptions[] = {
    {"--streams", &Options::streams, 1},
    {"--channels", &Options::channels, 1},
    {"--chunk", &Options::chunk, 1},
    {"--layers", &Options::layers, 0},
    {"--width", &Options::width, 1},
    {"--kernel", &Options::kernel_size, 1},
    {"--outputs", &Options::outputs, 0},
    {"--producers", &Options::producers, 1},
    {"--engines", &Options::engines, 1},
    {"--in-flight", &Options::in_flight, 1},
    {"--workers", &Options::workers, 0},
    {"--margin-us", &Options::margin_us, 0},
    {"--deadline-us", &Options::deadline_us, 0},
    {"--max-wait-us", &Options::max_wait_us, 0},
    {"--poll-us", &Options::poll_us, 0},
};

void take(Options& options, const std::string& option, const std::string& value) {
  for (const WholeOption& whole : kWholeOptions) {
    if (whole.name == option) {
      options.*whole.field = number(option, value, whole.least);
      return;
    }
  }
  if (option == "--rate") {
    options.rate_hz = number(option, value, 0.001);
  } else if (option == "--seconds") {
    options.seconds = number(option, value, 0.01);
  } else if (option == "--warm-up") {
    options.warm_up_seconds = number(option, value, 0.0);
  } else if (option == "--backend" && pipeline::parse_backend(value)) {
    options.backend = *pipeline::parse_backend(value);
  } else if (option == "--precision" && pipeline::parse_precision(value)) {
    options.precision = *pipeline::parse_precision(value);
  } else if (option == "--phases" && (value == "spread" || value == "together")) {
    options.phases = value;
  } else {
    throw std::invalid_argument("no such option or value: " + option + " " + value + "\n" + kUsage);
  }
}

Options parse(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string option = words[i];
    if (option == "--json") {
      options.json = true;
    } else if (i + 1 < count) {
      take(options, option, words[++i]);
    } else {
      throw std::invalid_argument(option + ": expected a value\n" + kUsage);
    }
  }
  if (options.producers > options.streams || options.engines > options.streams) {
    throw std::invalid_argument("--streams: expected at least as many as producers and engines");
  }
  return options;
}

std::vector<double> weights(std::int64_t count, double deviation, std::mt19937_64& random) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<float>(normal(random));
  return values;
}

kernels::Layer layer(const Options& options, kernels::LayerType type, std::int64_t in, std::int64_t out,
                     std::mt19937_64& random) {
  kernels::Layer made;
  made.spec.name = "layer";
  made.spec.type = type;
  made.spec.in_channels = in;
  made.spec.out_channels = out;
  if (type == kernels::LayerType::kTemporalConv) {
    made.spec.kernel_size = options.kernel_size;
    made.spec.residual = in == out;
    made.weights.dw_weight =
        weights(in * options.kernel_size, 1 / std::sqrt(static_cast<double>(options.kernel_size)), random);
    made.weights.dw_bias = weights(in, 0.5, random);
  }
  made.weights.pw_weight = weights(out * in, 1 / std::sqrt(static_cast<double>(in)), random);
  made.weights.pw_bias = weights(out, 0.5, random);
  return made;
}

// The input layer from `channels` to `width`, the stack of `layers`, and with `outputs` the mix down to them.
pipeline::Model make_model(const Options& options) {
  std::mt19937_64 random(1);
  std::vector<kernels::Layer> layers;
  const auto conv = kernels::LayerType::kTemporalConv;
  layers.push_back(layer(options, conv, options.channels, options.width, random));
  for (std::int64_t l = 0; l < options.layers; ++l) {
    layers.push_back(layer(options, conv, options.width, options.width, random));
  }
  if (options.outputs > 0) {
    layers.push_back(layer(options, kernels::LayerType::kPointwise, options.width, options.outputs, random));
  }
  for (std::size_t l = 0; l < layers.size(); ++l) layers[l].spec.name += std::to_string(l);
  pipeline::Model model;
  model.name = "fleet";
  model.frame_rate_hz = options.rate_hz;
  model.stack = std::make_shared<const kernels::Stack>(std::move(layers));
  return model;
}

// What the machine does to a thread that only looks at the clock, for a tenth of a second.
LatencyFigures noise() {
  LatencyHistogram gaps;
  const Instant end = SteadyClock::now() + std::chrono::milliseconds(100);
  for (Instant last = SteadyClock::now(); last < end;) {
    const Instant now = SteadyClock::now();
    gaps.record(now - last);
    last = now;
  }
  return gaps.figures();
}

struct Member {
  AsyncEngine* engine = nullptr;
  pipeline::StreamId stream;
  Instant first_due;          // of its first chunk, so far as the run's begin
  std::uint64_t answers = 0;  // collected
  std::uint64_t out_of_order = 0;
};

// One producer's figures.
struct Tally {
  LatencyHistogram output;    // due to computed
  LatencyHistogram produced;  // due to submitted: how far the producer itself is behind
  std::uint64_t chunks = 0;   // due in the measured time
  std::uint64_t missed = 0;   // not there within a period
  std::uint64_t refused = 0;  // their stream was full; missed, too
  std::uint64_t wrong = 0;    // answered with anything but kOk, or out of order
  float heard = 0;            // keeps the compiler from leaving the outputs unread
};

class Producer {
 public:
  Producer(const Options& options, std::vector<Member> members, const std::vector<float>& signal)
      : options_(options),
        members_(std::move(members)),
        signal_(signal),
        period_(static_cast<std::int64_t>(std::llround(1e9 * static_cast<double>(options.chunk) / options.rate_hz))) {}

  nanoseconds period() const { return period_; }
  const Tally& tally() const { return tally_; }

  // Every stream's chunk when it is due, until `end`; what is due from `measured` on counts.
  void run(Instant measured, Instant end) {
    for (std::int64_t chunk = 0;; ++chunk) {
      for (std::size_t m = 0; m < members_.size(); ++m) {
        const Instant due = members_[m].first_due + chunk * period_;
        if (due >= end) return drain(measured);
        wait_until(due);
        collect(members_[m], measured);
        produce(members_[m], due, measured, static_cast<std::size_t>(chunk) + 31 * m);
      }
    }
  }

 private:
  static void wait_until(Instant due) {
    for (Instant now = SteadyClock::now(); now < due; now = SteadyClock::now()) {
      if (due - now > std::chrono::microseconds(200))
        std::this_thread::sleep_for(due - now - std::chrono::microseconds(100));
    }
  }

  void produce(Member& member, Instant due, Instant measured, std::size_t where) {
    const bool counts = due >= measured;
    tally_.chunks += counts;
    kernels::FrameView view;
    Status status = member.engine->begin_chunk(member.stream, options_.chunk, view);
    if (status == Status::kOk) {
      const auto samples = static_cast<std::size_t>(view.channels * view.frames);  // dense: chunks of full length
      std::memcpy(view.data, signal_.data() + where % 1024 * 16, samples * sizeof(float));
      status = member.engine->submit(member.stream, due + deadline_);
    }
    if (status == Status::kOk) {
      if (counts) tally_.produced.record(SteadyClock::now() - due);
    } else if (counts) {
      ++tally_.missed;
      if (status == Status::kStreamFull)
        ++tally_.refused;
      else
        ++tally_.wrong;
    }
  }

  void collect(Member& member, Instant measured) {
    AsyncResult result;
    for (Status status; (status = member.engine->try_collect(member.stream, Instant{}, result)) != Status::kNotYet;) {
      if (status != Status::kOk || result.sequence != member.answers) ++tally_.wrong;
      if (status == Status::kDeviceFailed) return;
      ++member.answers;
      if (result.fresh) tally_.heard += result.output(0, 0);
      const Instant due = result.deadline - deadline_;
      if (due < measured) continue;
      tally_.output.record(result.computed - due);
      tally_.missed += result.computed - due > period_;
    }
  }

  // What is still under way when the last was due.
  void drain(Instant measured) {
    for (int pass = 0; pass < 20; ++pass) {
      for (Member& member : members_) collect(member, measured);
      std::this_thread::sleep_for(period_ / 4 + std::chrono::milliseconds(1));
    }
  }

  const Options& options_;
  std::vector<Member> members_;
  const std::vector<float>& signal_;
  const nanoseconds period_;
  const nanoseconds deadline_ = options_.deadline_us > 0 ? std::chrono::microseconds(options_.deadline_us)
                                                         : period_ / 2;
  Tally tally_;
};

double us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

void print(const char* name, const LatencyFigures& figures, bool json) {
  std::printf(json ? "\"%s\": {\"p50_us\": %.2f, \"p99_us\": %.2f, \"p999_us\": %.2f, \"max_us\": %.2f}, "
                   : "%-22s p50 %10.1f   p99 %10.1f   p99.9 %10.1f   max %10.1f us\n",
              name, us(figures.p50_ns), us(figures.p99_ns), us(figures.p999_ns), us(figures.max_ns));
}

int run(const Options& options) {
  const pipeline::Model model = make_model(options);
  // Streams lie in blocks of engines, and of producers.
  const auto share = [](std::int64_t all, std::int64_t parts, std::int64_t part) { return all * part / parts; };
  std::vector<std::unique_ptr<AsyncEngine>> engines;
  std::vector<Member> members;
  const nanoseconds period{
      static_cast<std::int64_t>(std::llround(1e9 * static_cast<double>(options.chunk) / options.rate_hz))};
  for (std::int64_t e = 0; e < options.engines; ++e) {
    const std::int64_t streams =
        share(options.streams, options.engines, e + 1) - share(options.streams, options.engines, e);
    engines.push_back(std::make_unique<AsyncEngine>(
        model, pipeline::AsyncSpec{.engine = {.backend = options.backend,
                                              .precision = options.precision,
                                              .max_streams = streams,
                                              .max_chunk_frames = options.chunk,
                                              .worker_threads = options.workers},
                                   .in_flight = options.in_flight,
                                   .max_wait = std::chrono::microseconds(options.max_wait_us),
                                   .margin = std::chrono::microseconds(options.margin_us),
                                   .poll = std::chrono::microseconds(options.poll_us)}));
    for (std::int64_t s = 0; s < streams; ++s) {
      Member member;
      member.engine = engines.back().get();
      if (engines.back()->open(member.stream) != Status::kOk) throw std::runtime_error("a stream cannot be opened");
      members.push_back(member);
    }
  }
  const LatencyFigures idle = noise();

  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> signal(static_cast<std::size_t>(options.channels * options.chunk + 1024 * 16));
  for (float& sample : signal) sample = normal(random);

  const Instant begin = SteadyClock::now() + std::chrono::milliseconds(20);
  const auto seconds = [](double s) { return nanoseconds(static_cast<std::int64_t>(s * 1e9)); };
  const Instant measured = begin + seconds(options.warm_up_seconds);
  const Instant end = measured + seconds(options.seconds);
  std::vector<std::unique_ptr<Producer>> producers;
  for (std::int64_t p = 0; p < options.producers; ++p) {
    const auto first = members.begin() + share(options.streams, options.producers, p);
    const auto last = members.begin() + share(options.streams, options.producers, p + 1);
    for (auto member = first; member != last; ++member) {
      const double phase = static_cast<double>(member - first) / static_cast<double>(last - first);
      member->first_due =
          begin + (options.phases == "spread"
                       ? nanoseconds(static_cast<std::int64_t>(phase * static_cast<double>(period.count())))
                       : nanoseconds(0));
    }
    producers.push_back(std::make_unique<Producer>(options, std::vector<Member>(first, last), signal));
  }
  std::vector<std::thread> threads;
  for (const auto& producer : producers) threads.emplace_back([&] { producer->run(measured, end); });
  for (std::thread& thread : threads) thread.join();

  Tally all;
  for (const auto& producer : producers) {
    const Tally& one = producer->tally();
    all.output.add(one.output);
    all.produced.add(one.produced);
    all.chunks += one.chunks;
    all.missed += one.missed;
    all.refused += one.refused;
    all.wrong += one.wrong;
    all.heard += one.heard;
  }
  AsyncCounters counters;
  std::size_t ring_bytes = 0;
  for (const auto& engine : engines) {
    engine->stop();
    const AsyncCounters one = engine->counters();
    counters.chunks += one.chunks;
    counters.calls += one.calls;
    counters.calls_pressed += one.calls_pressed;
    counters.calls_cut += one.calls_cut;
    counters.largest_call = std::max(counters.largest_call, one.largest_call);
    ring_bytes += engine->ring_bytes();
  }
  // A chunk that never came out, or came when nobody collected any more.
  const std::uint64_t unaccounted = all.chunks - all.output.count() - all.refused;
  const bool good = all.wrong == 0 && unaccounted == 0;
  const pipeline::Engine& engine = engines.front()->engine();
  const double streams = static_cast<double>(options.streams);
  const double in_a_call =
      static_cast<double>(counters.chunks) / static_cast<double>(std::max<std::uint64_t>(counters.calls, 1));
  const LatencyFigures output = all.output.figures();
  if (options.json) {
    std::printf(
        "{\"device\": \"%s\", \"compiler\": \"%s\", \"commit\": \"%s\", \"streams\": %lld, \"channels\": %lld, "
        "\"rate_hz\": %g, \"chunk_frames\": %lld, \"period_us\": %.1f, \"phases\": \"%s\", \"engines\": %lld, "
        "\"producers\": %lld, \"seconds\": %g, ",
        engine.device().c_str(), apps::kCompiler, apps::kCommit, static_cast<long long>(options.streams),
        static_cast<long long>(options.channels), options.rate_hz, static_cast<long long>(options.chunk),
        us(period.count()), options.phases.c_str(), static_cast<long long>(options.engines),
        static_cast<long long>(options.producers), options.seconds);
  } else {
    std::printf(
        "%s; %s; %s\n%lld streams x %lld channels x %g Hz, chunks of %lld every %.0f us (%s), %lld engines, "
        "%lld producers, %g s\n",
        engine.device().c_str(), apps::kCompiler, apps::kCommit, static_cast<long long>(options.streams),
        static_cast<long long>(options.channels), options.rate_hz, static_cast<long long>(options.chunk),
        us(period.count()), options.phases.c_str(), static_cast<long long>(options.engines),
        static_cast<long long>(options.producers), options.seconds);
  }
  print(options.json ? "output" : "due to computed", output, options.json);
  print(options.json ? "produced" : "due to submitted", all.produced.figures(), options.json);
  print(options.json ? "noise" : "idle loop", idle, options.json);
  std::printf(
      options.json
          ? "\"chunks\": %llu, \"missed\": %llu, \"refused\": %llu, \"unaccounted\": %llu, \"wrong\": %llu, "
            "\"calls\": %llu, \"streams_a_call\": %.1f, \"largest_call\": %llu, \"calls_pressed\": %llu, "
            "\"calls_cut\": %llu, \"ring_bytes_a_stream\": %.0f, \"state_bytes_a_stream\": %zu, \"in_time\": %s}\n"
          : "chunks %llu: missed %llu (stream full %llu), unaccounted %llu, wrong %llu\n"
            "calls %llu: %.1f streams each, %llu at most, %llu pressed by a deadline, %llu cut\n"
            "a stream: %.0f bytes of rings, %zu of state; p99.9 within the period: %s\n",
      static_cast<unsigned long long>(all.chunks), static_cast<unsigned long long>(all.missed),
      static_cast<unsigned long long>(all.refused), static_cast<unsigned long long>(unaccounted),
      static_cast<unsigned long long>(all.wrong), static_cast<unsigned long long>(counters.calls), in_a_call,
      static_cast<unsigned long long>(counters.largest_call), static_cast<unsigned long long>(counters.calls_pressed),
      static_cast<unsigned long long>(counters.calls_cut), static_cast<double>(ring_bytes) / streams,
      engine.state_bytes(),
      output.p999_ns <= period.count() && all.refused == 0 ? (options.json ? "true" : "yes")
                                                           : (options.json ? "false" : "no"));
  return good && std::isfinite(all.heard) ? 0 : 1;
}

}  // namespace
}  // namespace halotap::bench

int main(int count, char** words) {
  try {
    return halotap::bench::run(halotap::bench::parse(count, words));
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "fleet_bench: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fleet_bench: %s\n", error.what());
    return 3;
  }
}
