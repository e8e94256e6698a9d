#include "backend_contest.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "halotap/pipeline/build_info.hpp"
#include "halotap/pipeline/latency.hpp"
#include "noise.hpp"

namespace halotap::pipeline {
namespace {

using std::chrono::nanoseconds;

constexpr std::int64_t kMostSamples = std::int64_t{1} << 22;
constexpr std::chrono::milliseconds kTimeForAll{250};
constexpr std::chrono::milliseconds kTimeToWarmUp{50};
constexpr int kCallsToWarmUp = 3;
constexpr std::uint64_t kMostCalls = 1000;
// The CPU's calls can be cut off, between pieces of this many frames: some of its steps.
constexpr std::chrono::milliseconds kLongestCpuCall{100};
constexpr std::int64_t kCpuPieceFrames = 192;

// A chunk of every stream, for either executor.
class Calls {
 public:
  Calls(const kernels::Stack& stack, const Contest& contest) : frames_(contest.chunk_frames) {
    const std::int64_t in = stack.in_channels();
    const std::int64_t out = stack.out_channels();
    frames_ = std::min(frames_, std::max<std::int64_t>(kMostSamples / std::max(in, out), 1));
    const std::int64_t apart =
        std::clamp<std::int64_t>(kMostSamples / (frames_ * std::max(in, out)), 1, contest.streams);
    input_ = noise(apart * frames_ * in);
    output_.resize(static_cast<std::size_t>(apart * frames_ * out));
    for (std::int64_t s = 0; s < contest.streams; ++s) {
      chunks_.push_back({s, kernels::interleaved<const float>(&input_[index(s % apart * frames_ * in)], in, frames_),
                         kernels::interleaved(&output_[index(s % apart * frames_ * out)], out, frames_)});
    }
    scale_ = static_cast<double>(contest.chunk_frames) / static_cast<double>(frames_);
  }

  nanoseconds on_cuda(kernels::Executor& cuda, const Clock& clock) {
    const Instant begun = clock.now();
    cuda.process(chunks_, 0);
    return scaled(clock.now() - begun, scale_);
  }

  nanoseconds on_cpu(kernels::Executor& cpu, const Clock& clock) {
    const Instant begun = clock.now();
    nanoseconds spent{0};
    std::int64_t done = 0;  // frames of all streams
    const auto all = static_cast<double>(std::ssize(chunks_) * frames_);
    for (const kernels::SlotChunk& chunk : chunks_) {
      for (std::int64_t first = 0; first < frames_; first += kCpuPieceFrames) {
        const std::int64_t frames = std::min(frames_ - first, kCpuPieceFrames);
        kernels::SlotChunk piece{chunk.slot, chunk.input.slice(first, frames), chunk.output};
        cpu.process({&piece, 1}, 0);
        done += frames;
        spent = clock.now() - begun;
        if (spent > kLongestCpuCall) return scaled(spent, scale_ * all / static_cast<double>(done));
      }
    }
    return scaled(spent, scale_);
  }

  std::int64_t streams() const { return std::ssize(chunks_); }

 private:
  static std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }
  static nanoseconds scaled(nanoseconds time, double factor) {
    return nanoseconds(static_cast<std::int64_t>(static_cast<double>(time.count()) * factor));
  }

  std::int64_t frames_;  // of a chunk; of a very long one a part
  double scale_ = 1;     // what the part's time is multiplied by
  std::vector<float> input_;
  std::vector<float> output_;
  std::vector<kernels::SlotChunk> chunks_;
};

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0xBF58476D1CE4E5B9u;
  return hash ^ (hash >> 29);
}

std::uint64_t mix(std::uint64_t hash, const std::vector<double>& values) {
  hash = mix(hash, values.size());
  for (const double value : values) hash = mix(hash, std::bit_cast<std::uint64_t>(value));
  return hash;
}

std::uint64_t hash_of(const kernels::Stack& stack) {
  std::uint64_t hash = 0x9E3779B97F4A7C15u;
  for (const auto& [spec, weights] : stack.layers()) {
    for (const std::int64_t field :
         {static_cast<std::int64_t>(spec.type), spec.in_channels, spec.out_channels, spec.kernel_size, spec.dilation,
          static_cast<std::int64_t>(spec.padding), static_cast<std::int64_t>(spec.activation),
          std::int64_t{spec.residual}, std::int64_t{weights.batch_norm.has_value()}}) {
      hash = mix(hash, static_cast<std::uint64_t>(field));
    }
    for (const auto* values : {&weights.dw_weight, &weights.dw_bias, &weights.pw_weight, &weights.pw_bias}) {
      hash = mix(hash, *values);
    }
    if (!weights.batch_norm) continue;
    const kernels::BatchNorm& norm = *weights.batch_norm;
    for (const auto* values : {&norm.weight, &norm.bias, &norm.running_mean, &norm.running_var}) {
      hash = mix(hash, *values);
    }
    hash = mix(hash, std::bit_cast<std::uint64_t>(norm.eps));
  }
  return hash;
}

std::string hex(std::uint64_t hash) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof digits, hash, 16).ptr;
  const std::string text(digits, end);
  return std::string(sizeof digits - text.size(), '0') + text;
}

// "model name	: ..." in the system's list of processors.
std::string processor() {
  std::ifstream list("/proc/cpuinfo");
  for (std::string line; std::getline(list, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

// Takes "name N\n" off the front of the text, N from 1.
bool take_number(std::string_view& text, std::string_view name, std::int64_t& number) {
  if (!text.starts_with(name)) return false;
  text.remove_prefix(name.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 1) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (!text.starts_with('\n')) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

nanoseconds time_kept_waiting() {
  // Nanoseconds on a processor, and waiting for one.
  std::ifstream told("/proc/thread-self/schedstat");
  std::int64_t run_ns = 0;
  std::int64_t waited_ns = 0;
  told >> run_ns >> waited_ns;
  return nanoseconds(told ? waited_ns : 0);
}

BackendFigures time_backends(kernels::Executor& cpu, kernels::Executor& cuda, const kernels::Stack& stack,
                             const Contest& contest, const Clock& clock, nanoseconds (*kept_waiting)()) {
  Calls calls(stack, contest);
  const Instant begun = clock.now();
  const nanoseconds waited_before = kept_waiting();
  nanoseconds cpu_time{0};
  for (int call = 0; call < kCallsToWarmUp && (call == 0 || clock.now() - begun < kTimeToWarmUp); ++call) {
    cpu_time = calls.on_cpu(cpu, clock);
    calls.on_cuda(cuda, clock);
  }
  LatencyHistogram cpu_times;
  LatencyHistogram cuda_times;
  const bool is_cut_off = cpu_time > kLongestCpuCall;  // once is enough
  if (is_cut_off) cpu_times.record(cpu_time);
  while (cuda_times.count() == 0 || (cuda_times.count() < kMostCalls && clock.now() - begun < kTimeForAll)) {
    if (!is_cut_off) cpu_times.record(calls.on_cpu(cpu, clock));
    cuda_times.record(calls.on_cuda(cuda, clock));
  }
  // One turn of another's is some milliseconds and enough to be the figure, of either; what the system itself does now
  // and then is much less.
  const bool is_disturbed = kept_waiting() - waited_before > (clock.now() - begun) / 100;
  for (std::int64_t slot = 0; slot < contest.streams; ++slot) {
    cpu.reset(slot, {});
    cuda.reset(slot, {});
  }
  BackendFigures figures;
  figures.cpu_p999 = cpu_times.quantile(0.999);
  figures.cuda_p999 = cuda_times.quantile(0.999);
  figures.calls = static_cast<std::int64_t>(cuda_times.count());
  figures.is_disturbed = is_disturbed;
  return figures;
}

std::string contest_key(const kernels::Stack& stack, const std::string& cpu, const std::string& cuda,
                        const Contest& contest) {
  return std::string("halotap-backend/1\nversion ") + kVersion + "\ncommit " + kCommit + "\nmodel " +
         hex(hash_of(stack)) + "\ncpu " + cpu + ", " + processor() + "\ncuda " + cuda + "\nchunk_frames " +
         std::to_string(contest.chunk_frames) + "\nstreams " + std::to_string(contest.streams) + "\n";
}

std::optional<std::filesystem::path> figures_file(const std::string& key) {
  if (const char* cache = std::getenv("HALOTAP_BACKEND_CACHE")) {
    if (std::string_view(cache) == "off") return std::nullopt;
    throw std::invalid_argument(std::string("HALOTAP_BACKEND_CACHE: expected off, or not to be set, got '") + cache +
                                "'");
  }
  std::uint64_t hash = 0;
  for (const char c : key) hash = mix(hash, static_cast<unsigned char>(c));
  const auto name = std::filesystem::path("halotap") / ("backend-" + hex(hash) + ".txt");
  // The convention has relative paths ignored.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && std::filesystem::path(cache).is_absolute()) return cache / name;
  const char* home = std::getenv("HOME");
  if (home != nullptr && std::filesystem::path(home).is_absolute()) return home / (".cache" / name);
  return std::nullopt;
}

std::optional<BackendFigures> load_figures(const std::filesystem::path& file, const std::string& key) {
  // What the file may hold besides the key, and a byte that tells that there is more.
  constexpr std::size_t kMostBytesBehind = 128;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return std::nullopt;  // nothing that a reader may wait for
  std::ifstream stream(file, std::ios::binary);
  std::string whole(key.size() + kMostBytesBehind, '\0');
  stream.read(whole.data(), static_cast<std::streamsize>(whole.size()));
  whole.resize(static_cast<std::size_t>(std::max<std::streamsize>(stream.gcount(), 0)));
  std::string_view text = whole;
  if (!text.starts_with(key)) return std::nullopt;
  text.remove_prefix(key.size());
  std::int64_t cpu_ns = 0;
  std::int64_t cuda_ns = 0;
  BackendFigures figures;
  if (!take_number(text, "cpu_p999_ns ", cpu_ns) || !take_number(text, "cuda_p999_ns ", cuda_ns) ||
      !take_number(text, "calls ", figures.calls) || !text.empty()) {
    return std::nullopt;
  }
  figures.cpu_p999 = nanoseconds(cpu_ns);
  figures.cuda_p999 = nanoseconds(cuda_ns);
  figures.is_remembered = true;
  return figures;
}

void store_figures(const std::filesystem::path& file, const std::string& key, const BackendFigures& figures) noexcept {
  try {
    static std::atomic<unsigned> count{0};
    std::filesystem::create_directories(file.parent_path());
    std::filesystem::path beside = file;
    beside += "." + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1, std::memory_order_relaxed));
    std::ofstream stream(beside, std::ios::binary);
    stream << key << "cpu_p999_ns " << figures.cpu_p999.count() << "\ncuda_p999_ns " << figures.cuda_p999.count()
           << "\ncalls " << figures.calls << '\n';
    stream.close();
    std::error_code error;
    if (stream) std::filesystem::rename(beside, file, error);
    if (!stream || error) std::filesystem::remove(beside, error);
  } catch (const std::exception&) {
  }
}

BackendFigures find_figures(const std::string& key, const std::function<BackendFigures()>& time) {
  static std::mutex mutex;
  static std::map<std::string, BackendFigures> known;
  const auto file = figures_file(key);
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(key); found != known.end()) return found->second;
  std::optional<BackendFigures> figures;
  if (file) figures = load_figures(*file, key);
  if (!figures) {
    figures = time();
    if (file && !figures->is_disturbed) store_figures(*file, key, *figures);
  }
  BackendFigures& remembered = known[key] = *figures;
  remembered.is_remembered = true;
  return *figures;
}

}  // namespace halotap::pipeline
