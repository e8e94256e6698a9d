// How many streams one machine carries: threads that produce data at its pace, the asynchronous engine, and how long
// after its last frame was due every chunk's result was there. bench/README.md says how to run and read it.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "halotap/pipeline/async_engine.hpp"
#include "halotap/pipeline/build_info.hpp"
#include "halotap/pipeline/errors.hpp"
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
  std::int64_t cards = 1;
  std::int64_t in_flight = 2;
  std::int64_t workers = 0;
  std::int64_t deadline_us = 0;  // 0: half the period
  std::int64_t margin_us = 50;
  std::int64_t max_wait_us = 1'000'000;
  std::int64_t max_call_us = 0;
  std::int64_t poll_us = 0;
  pipeline::Backend backend = pipeline::Backend::kCpu;
  pipeline::Precision precision = pipeline::Precision::kFp32;
  pipeline::CudaInvocation invocation = pipeline::CudaInvocation::kLayers;
  std::string phases = "spread";
  bool json = false;
  bool help = false;
};

constexpr const char* kUsage =
    "fleet_bench [--streams N] [--channels N] [--rate HZ] [--chunk FRAMES] [--layers N] [--width CHANNELS]\n"
    "            [--kernel TAPS] [--outputs N] [--seconds S] [--warm-up S] [--producers THREADS] [--engines N]\n"
    "            [--in-flight N] [--workers THREADS] [--deadline-us US] [--margin-us US] [--max-wait-us US]\n"
    "            [--max-call-us US] [--poll-us US] [--backend auto|cpu|cuda] [--precision fp32|tf32|bf16|fp16]\n"
    "            [--invocation layers|launch|resident] [--cards N] [--phases spread|together] [--json]\n";

template <typename Number>
Number number(const std::string& option, const std::string& text, Number least, Number most) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= least && value <= most)) {
    throw std::invalid_argument(option + ": expected a number from " + std::to_string(least) + " to " +
                                std::to_string(most) + ", got '" + text + "'");
  }
  return value;
}

struct WholeOption {
  std::string_view name;
  std::int64_t Options::*field;
  std::int64_t least;
  std::int64_t most;
};

constexpr std::int64_t kMostStreams = std::int64_t{1} << 20;
constexpr std::int64_t kMostChannels = 65'536;
constexpr std::int64_t kMostThreads = 256;
constexpr std::int64_t kHourUs = 3'600'000'000;
constexpr double kWeekSeconds = 604'800;

constexpr WholeOption kWholeOptions[] = {
    {"--streams", &Options::streams, 1, kMostStreams},    {"--channels", &Options::channels, 1, kMostChannels},
    {"--chunk", &Options::chunk, 1, kMostStreams},        {"--layers", &Options::layers, 0, 1000},
    {"--width", &Options::width, 1, kMostChannels},       {"--kernel", &Options::kernel_size, 1, kMostChannels},
    {"--outputs", &Options::outputs, 0, kMostChannels},   {"--producers", &Options::producers, 1, kMostThreads},
    {"--engines", &Options::engines, 1, kMostThreads},    {"--in-flight", &Options::in_flight, 1, 1024},
    {"--workers", &Options::workers, 0, kMostThreads},    {"--margin-us", &Options::margin_us, 0, kHourUs},
    {"--deadline-us", &Options::deadline_us, 0, kHourUs}, {"--max-wait-us", &Options::max_wait_us, 0, kHourUs},
    {"--max-call-us", &Options::max_call_us, 0, kHourUs}, {"--poll-us", &Options::poll_us, 0, 100'000},
    {"--cards", &Options::cards, 1, kMostThreads},
};

void take(Options& options, const std::string& option, const std::string& value) {
  for (const WholeOption& whole : kWholeOptions) {
    if (whole.name == option) {
      options.*whole.field = number(option, value, whole.least, whole.most);
      return;
    }
  }
  if (option == "--rate") {
    options.rate_hz = number(option, value, 0.001, 1e6);
  } else if (option == "--seconds") {
    options.seconds = number(option, value, 0.01, kWeekSeconds);
  } else if (option == "--warm-up") {
    options.warm_up_seconds = number(option, value, 0.0, kWeekSeconds);
  } else if (option == "--backend" && pipeline::parse_backend(value)) {
    options.backend = *pipeline::parse_backend(value);
  } else if (option == "--precision" && pipeline::parse_precision(value)) {
    options.precision = *pipeline::parse_precision(value);
  } else if (option == "--invocation" && pipeline::parse_cuda_invocation(value)) {
    options.invocation = *pipeline::parse_cuda_invocation(value);
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
    } else if (option == "--help") {
      options.help = true;
    } else if (i + 1 < count) {
      take(options, option, words[++i]);
    } else {
      throw std::invalid_argument(option + ": no such option, or one that expects a value\n" + kUsage);
    }
  }
  if (options.producers > options.streams || options.engines > options.streams) {
    throw std::invalid_argument("--streams: expected at least as many as producers and engines");
  }
  if (options.cards > 1 && options.backend == pipeline::Backend::kCpu) {
    throw std::invalid_argument("--cards: not with --backend cpu");
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

// What of this program is in memory now.
double resident_megabytes() {
  std::uint64_t mapped = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> mapped >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

nanoseconds period_of(const Options& options) {
  return nanoseconds(std::llround(1e9 * static_cast<double>(options.chunk) / options.rate_hz));
}

struct Member {
  AsyncEngine* engine = nullptr;
  pipeline::StreamId stream;
  Instant first_due;  // of its first chunk
  std::uint64_t submitted = 0;
  std::uint64_t answers = 0;  // collected
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

  void add(const Tally& other) {
    output.add(other.output);
    produced.add(other.produced);
    chunks += other.chunks;
    missed += other.missed;
    refused += other.refused;
    wrong += other.wrong;
    heard += other.heard;
  }
};

// Chunks are cut out of one random signal, from as many places so far apart.
constexpr std::size_t kSignalStarts = 1024;
constexpr std::size_t kSignalStep = 16;

// A thread's streams: writes their chunks when they fall due, and collects their results.
class Producer {
 public:
  // `has_failed` is set once a card has.
  Producer(const Options& options, std::vector<Member> members, const std::vector<float>& signal,
           std::atomic<bool>& has_failed)
      : options_(options),
        members_(std::move(members)),
        signal_(signal),
        has_failed_(has_failed),
        period_(period_of(options)) {}

  const Tally& tally() const { return tally_; }

  // Every stream's chunk when it is due, until `end` or a card fails; what is due from `measured` on counts.
  void run(Instant measured, Instant end) {
    for (std::int64_t chunk = 0;; ++chunk) {
      for (std::size_t m = 0; m < members_.size(); ++m) {
        const Instant due = members_[m].first_due + chunk * period_;
        if (due >= end) return drain(measured);
        wait_until(due);
        collect(members_[m], measured);
        produce(members_[m], due, measured, static_cast<std::size_t>(chunk) + 31 * m);
        if (has_failed_.load(std::memory_order_relaxed)) return;
      }
    }
  }

 private:
  static void wait_until(Instant due) {
    for (Instant now = SteadyClock::now(); now < due; now = SteadyClock::now()) {
      const nanoseconds left = due - now;
      if (left > std::chrono::microseconds(200)) std::this_thread::sleep_for(left - std::chrono::microseconds(100));
    }
  }

  void produce(Member& member, Instant due, Instant measured, std::size_t where) {
    const bool counts = due >= measured;
    tally_.chunks += counts;
    kernels::FrameView view;
    Status status = member.engine->begin_chunk(member.stream, options_.chunk, view);
    if (status == Status::kOk) {
      const auto samples = static_cast<std::size_t>(view.channels * view.frames);  // dense: chunks of full length
      std::memcpy(view.data, signal_.data() + where % kSignalStarts * kSignalStep, samples * sizeof(float));
      status = member.engine->submit(member.stream, due + deadline_);
    }
    if (status == Status::kDeviceFailed) {
      fail();
    } else if (status == Status::kOk) {
      ++member.submitted;
      if (counts) tally_.produced.record(SteadyClock::now() - due);
    } else if (counts) {
      ++tally_.missed;
      ++(status == Status::kStreamFull ? tally_.refused : tally_.wrong);
    }
  }

  void collect(Member& member, Instant measured) {
    AsyncResult result;
    for (Status status; (status = member.engine->try_collect(member.stream, Instant{}, result)) != Status::kNotYet;) {
      if (status == Status::kDeviceFailed) return fail();
      if (status != Status::kOk || result.sequence != member.answers) ++tally_.wrong;
      ++member.answers;
      if (result.fresh) tally_.heard += result.output(0, 0);
      const Instant due = result.deadline - deadline_;
      if (due < measured) continue;
      tally_.output.record(result.computed - due);
      tally_.missed += result.computed - due > period_;
    }
  }

  // What is still under way when the last was due; nothing that works takes so long.
  void drain(Instant measured) {
    const Instant limit = SteadyClock::now() + std::chrono::seconds(10);
    for (Member& member : members_) {
      while (member.answers != member.submitted && SteadyClock::now() < limit) {
        collect(member, measured);
        if (has_failed_.load(std::memory_order_relaxed)) return;
        std::this_thread::yield();
      }
    }
  }

  // For the other producers and the thread that waits for all to see; they only end earlier by it.
  void fail() { has_failed_.store(true, std::memory_order_relaxed); }

  const Options& options_;
  std::vector<Member> members_;
  const std::vector<float>& signal_;
  std::atomic<bool>& has_failed_;
  const nanoseconds period_;
  const nanoseconds deadline_ = options_.deadline_us > 0 ? std::chrono::microseconds(options_.deadline_us)
                                                         : period_ / 2;
  Tally tally_;
};

// What a run showed.
struct Report {
  std::string device;
  nanoseconds period{0};
  Tally all;
  AsyncCounters counters;
  LatencyFigures idle;
  std::uint64_t unaccounted = 0;  // chunks that never came out
  double ring_bytes = 0;          // a stream
  std::size_t state_bytes = 0;    // likewise
  double resident_mb = 0;         // of the program, at the beginning of the measured time
  double grown_mb = 0;            // since then

  bool in_time() const { return is_sound() && all.output.figures().p999_ns <= period.count() && all.refused == 0; }
  bool is_sound() const { return all.wrong == 0 && unaccounted == 0 && std::isfinite(all.heard); }
  double streams_a_call() const {
    return static_cast<double>(counters.chunks) / static_cast<double>(std::max<std::uint64_t>(counters.calls, 1));
  }
};

// Item `part` of so many that share `all` in blocks begins here.
std::int64_t begin_of(std::int64_t part, std::int64_t parts, std::int64_t all) { return all * part / parts; }

std::unique_ptr<AsyncEngine> make_engine(const Options& options, const pipeline::Model& model, std::int64_t streams) {
  std::vector<int> cards;
  for (int card = 0; card < options.cards; ++card) cards.push_back(card);
  return std::make_unique<AsyncEngine>(model,
                                       pipeline::AsyncSpec{.engine = {.backend = options.backend,
                                                                      .precision = options.precision,
                                                                      .max_streams = streams,
                                                                      .max_chunk_frames = options.chunk,
                                                                      .worker_threads = options.workers,
                                                                      .fallback = pipeline::Fallback::kNone,
                                                                      .cuda = {.invocation = options.invocation},
                                                                      .cuda_devices = cards},
                                                           .in_flight = options.in_flight,
                                                           .max_wait = std::chrono::microseconds(options.max_wait_us),
                                                           .max_call = std::chrono::microseconds(options.max_call_us),
                                                           .margin = std::chrono::microseconds(options.margin_us),
                                                           .poll = std::chrono::microseconds(options.poll_us)});
}

Report measure(const Options& options) {
  Report report;
  report.period = period_of(options);
  const pipeline::Model model = make_model(options);
  // Streams lie in blocks of engines, and of producers.
  std::vector<std::unique_ptr<AsyncEngine>> engines;
  std::vector<Member> members;
  for (std::int64_t e = 0; e < options.engines; ++e) {
    const std::int64_t streams =
        begin_of(e + 1, options.engines, options.streams) - begin_of(e, options.engines, options.streams);
    engines.push_back(make_engine(options, model, streams));
    for (std::int64_t s = 0; s < streams; ++s) {
      Member member;
      member.engine = engines.back().get();
      if (engines.back()->open(member.stream) != Status::kOk) throw std::runtime_error("a stream cannot be opened");
      members.push_back(member);
    }
  }
  report.idle = noise();

  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  std::vector<float> signal(static_cast<std::size_t>(options.channels * options.chunk) + kSignalStarts * kSignalStep);
  for (float& sample : signal) sample = normal(random);

  const auto seconds = [](double s) { return nanoseconds(static_cast<std::int64_t>(s * 1e9)); };
  const Instant begin = SteadyClock::now() + std::chrono::milliseconds(20);
  const Instant measured = begin + seconds(options.warm_up_seconds);
  const Instant end = measured + seconds(options.seconds);
  std::atomic<bool> has_failed{false};
  std::vector<std::unique_ptr<Producer>> producers;
  for (std::int64_t p = 0; p < options.producers; ++p) {
    const auto first = members.begin() + begin_of(p, options.producers, options.streams);
    const auto last = members.begin() + begin_of(p + 1, options.producers, options.streams);
    for (auto member = first; member != last; ++member) {
      const nanoseconds phase = report.period * (member - first) / (last - first);
      member->first_due = begin + (options.phases == "spread" ? phase : nanoseconds(0));
    }
    producers.push_back(std::make_unique<Producer>(options, std::vector<Member>(first, last), signal, has_failed));
  }
  std::vector<std::thread> threads;
  for (const auto& producer : producers) threads.emplace_back([&] { producer->run(measured, end); });
  const auto wait_until = [&has_failed](Instant instant) {
    constexpr std::chrono::milliseconds kLook{20};
    while (SteadyClock::now() < instant && !has_failed.load(std::memory_order_relaxed)) {
      std::this_thread::sleep_until(std::min<Instant>(instant, SteadyClock::now() + kLook));
    }
  };
  wait_until(measured);
  report.resident_mb = resident_megabytes();
  wait_until(end);
  report.grown_mb = resident_megabytes() - report.resident_mb;
  for (std::thread& thread : threads) thread.join();

  for (const auto& producer : producers) report.all.add(producer->tally());
  for (const auto& engine : engines) {
    engine->stop();
    if (const std::string failure = engine->engine().failure(); !failure.empty()) throw pipeline::DeviceError(failure);
    const AsyncCounters one = engine->counters();
    report.counters.chunks += one.chunks;
    report.counters.calls += one.calls;
    report.counters.calls_pressed += one.calls_pressed;
    report.counters.calls_cut += one.calls_cut;
    report.counters.largest_call = std::max(report.counters.largest_call, one.largest_call);
    report.ring_bytes += static_cast<double>(engine->ring_bytes()) / static_cast<double>(options.streams);
  }
  report.unaccounted = report.all.chunks - report.all.output.count() - report.all.refused;
  report.device = engines.front()->engine().device();
  report.state_bytes = engines.front()->engine().state_bytes();
  return report;
}

double us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

void print(const Options& options, const Report& report) {
  std::cout << std::fixed << std::setprecision(1) << report.device << "; " << pipeline::kCompiler << "; "
            << pipeline::kCommit << '\n'
            << options.streams << " streams x " << options.channels << " channels x " << options.rate_hz
            << " Hz, chunks of " << options.chunk << " every " << us(report.period.count()) << " us (" << options.phases
            << "); engines " << options.engines << ", producers " << options.producers << "; " << options.seconds
            << " s\n";
  const auto row = [](const char* name, const LatencyFigures& figures) {
    std::cout << std::left << std::setw(17) << name << std::right << " p50 " << std::setw(10) << us(figures.p50_ns)
              << "  p99 " << std::setw(10) << us(figures.p99_ns) << "  p99.9 " << std::setw(10) << us(figures.p999_ns)
              << "  max " << std::setw(10) << us(figures.max_ns) << " us\n";
  };
  row("due to computed", report.all.output.figures());
  row("due to submitted", report.all.produced.figures());
  row("idle loop", report.idle);
  std::cout << "chunks " << report.all.chunks << ": missed " << report.all.missed << " (stream full "
            << report.all.refused << "), unaccounted " << report.unaccounted << ", wrong " << report.all.wrong << '\n'
            << "calls " << report.counters.calls << ": " << report.streams_a_call() << " streams each, "
            << report.counters.largest_call << " at most; " << report.counters.calls_pressed
            << " pressed by a deadline, " << report.counters.calls_cut << " cut\n"
            << "memory: a stream " << report.ring_bytes << " bytes of rings, " << report.state_bytes
            << " of state; the program " << report.resident_mb << " MB, grown by " << report.grown_mb << '\n'
            << "p99.9 within the period: " << (report.in_time() ? "yes" : "no") << '\n';
}

void print_json(const Options& options, const Report& report) {
  const auto figures = [](const char* name, const LatencyFigures& of) {
    std::cout << '"' << name << "\": {\"p50_us\": " << us(of.p50_ns) << ", \"p99_us\": " << us(of.p99_ns)
              << ", \"p999_us\": " << us(of.p999_ns) << ", \"max_us\": " << us(of.max_ns) << "}, ";
  };
  const auto field = [](const char* name, const auto& value) { std::cout << '"' << name << "\": " << value << ", "; };
  const auto text = [](const char* name, const std::string& value) {
    std::cout << '"' << name << "\": \"" << value << "\", ";
  };
  std::cout << std::setprecision(10) << '{';
  text("device", report.device);
  text("compiler", pipeline::kCompiler);
  text("commit", pipeline::kCommit);
  field("streams", options.streams);
  field("channels", options.channels);
  field("rate_hz", options.rate_hz);
  field("chunk_frames", options.chunk);
  field("period_us", us(report.period.count()));
  text("phases", options.phases);
  field("engines", options.engines);
  field("producers", options.producers);
  field("seconds", options.seconds);
  figures("output", report.all.output.figures());
  figures("produced", report.all.produced.figures());
  figures("idle_loop", report.idle);
  field("chunks", report.all.chunks);
  field("missed", report.all.missed);
  field("refused", report.all.refused);
  field("unaccounted", report.unaccounted);
  field("wrong", report.all.wrong);
  field("calls", report.counters.calls);
  field("streams_a_call", report.streams_a_call());
  field("largest_call", report.counters.largest_call);
  field("calls_pressed", report.counters.calls_pressed);
  field("calls_cut", report.counters.calls_cut);
  field("ring_bytes_a_stream", report.ring_bytes);
  field("state_bytes_a_stream", report.state_bytes);
  field("resident_mb", report.resident_mb);
  field("grown_mb", report.grown_mb);
  std::cout << "\"in_time\": " << (report.in_time() ? "true" : "false") << "}\n";
}

int run(const Options& options) {
  const Report report = measure(options);
  if (options.json) {
    print_json(options, report);
  } else {
    print(options, report);
  }
  return report.is_sound() ? 0 : 1;
}

}  // namespace
}  // namespace halotap::bench

int main(int count, char** words) {
  try {
    const halotap::bench::Options options = halotap::bench::parse(count, words);
    if (options.help) {
      std::cout << halotap::bench::kUsage;
      return 0;
    }
    return halotap::bench::run(options);
  } catch (const halotap::pipeline::ConfigError& error) {
    std::cerr << "fleet_bench: " << error.what() << '\n';
    return 2;
  } catch (const std::invalid_argument& error) {
    std::cerr << "fleet_bench: " << error.what() << '\n';
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "fleet_bench: the model or the streams do not fit in memory\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << "fleet_bench: " << error.what() << '\n';
    return 3;
  }
}
