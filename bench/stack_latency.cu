// Times a stack's way to the card and back, chunk after chunk, by the host's clock around Executor::process:
//
//     stack_latency [--calls N] [--streams N] [--layers N] [--channels N] [--kernel N] [--chunk N]... [--as WAY]...
//                   [--samples executor|caller]
//
// Samples are in memory of Executor::allocate_samples, which the card reads and writes where it is, or in the caller's.
// For each chunk and each WAY (resident, launched, layers, cpu; else all of them) a chunk of every stream in one call,
// and how many frames a second that makes. For one stream, beside it, what no stack can beat: a kernel that copies as
// many bytes from and to the host's memory, launched, and staying and waiting for a word; and the longest gaps of a
// loop that only reads the clock.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "halotap/kernels/executor.hpp"

namespace {

using halotap::kernels::CudaInvocation;
using halotap::kernels::Executor;
using halotap::kernels::ExecutorSpec;
using halotap::kernels::Layer;
using halotap::kernels::SlotChunk;
using halotap::kernels::Stack;

struct Way {
  const char* name;
  bool on_card;
  CudaInvocation invocation;
};
constexpr Way kWays[] = {{"resident", true, CudaInvocation::kResident},
                         {"launched", true, CudaInvocation::kLaunch},
                         {"layers", true, CudaInvocation::kLayers},
                         {"cpu", false, {}}};

struct Options {
  std::int64_t calls = 100000;
  std::int64_t streams = 1;
  std::int64_t layers = 8;
  std::int64_t channels = 128;
  std::int64_t kernel_size = 5;
  std::vector<std::int64_t> chunks;
  std::vector<Way> ways;
  bool in_place = true;
};

std::int64_t now_ns() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void require(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(cudaGetErrorString(result));
}

std::vector<double> random_numbers(std::int64_t count, double deviation, std::mt19937_64& random) {
  std::normal_distribution<float> normal(0.0f, static_cast<float>(deviation));
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) number = normal(random);
  return numbers;
}

// As `halotap bench stack` draws it: causal SiLU layers with biases, dilations 1, 2, 4, 8.
std::shared_ptr<const Stack> random_stack(const Options& options) {
  std::mt19937_64 random(1);
  std::vector<Layer> layers;
  const double tap_deviation = 1 / std::sqrt(static_cast<double>(options.kernel_size));
  const double mix_deviation = 1 / std::sqrt(static_cast<double>(options.channels));
  for (std::int64_t l = 0; l < options.layers; ++l) {
    Layer layer;
    layer.spec.name = "layers." + std::to_string(l);
    layer.spec.in_channels = options.channels;
    layer.spec.out_channels = options.channels;
    layer.spec.kernel_size = options.kernel_size;
    layer.spec.dilation = std::int64_t{1} << l % 4;
    layer.weights.dw_weight = random_numbers(options.channels * options.kernel_size, tap_deviation, random);
    layer.weights.dw_bias = random_numbers(options.channels, tap_deviation, random);
    layer.weights.pw_weight = random_numbers(options.channels * options.channels, mix_deviation, random);
    layer.weights.pw_bias = random_numbers(options.channels, mix_deviation, random);
    layers.push_back(std::move(layer));
  }
  return std::make_shared<const Stack>(std::move(layers));
}

// Calls `work` so often, and a tenth of that before, and prints how long it took; and, of `frames` a call, how many a
// second.
template <typename Work>
void time_calls(const char* what, std::int64_t chunk, std::int64_t calls, std::int64_t frames, const Work& work) {
  for (std::int64_t i = 0; i < calls / 10; ++i) work();
  std::vector<std::int64_t> times(static_cast<std::size_t>(calls));
  for (std::int64_t& time : times) {
    const std::int64_t begun = now_ns();
    work();
    time = now_ns() - begun;
  }
  const double sum_us = 1e-3 * static_cast<double>(std::accumulate(times.begin(), times.end(), std::int64_t{0}));
  std::sort(times.begin(), times.end());
  const auto quantile_us = [&](double q) {
    return 1e-3 * static_cast<double>(times[static_cast<std::size_t>(q * static_cast<double>(calls - 1))]);
  };
  std::printf("%-22s %6lld %9lld %8.2f %8.2f %8.2f %9.2f %12.2f\n", what, static_cast<long long>(chunk),
              static_cast<long long>(calls), quantile_us(0.5), quantile_us(0.99), quantile_us(0.999), quantile_us(1),
              static_cast<double>(calls * frames) / sum_us);
  std::fflush(stdout);
}

void time_stack(const Options& options, std::int64_t chunk_frames, const Way& way) {
  const auto stack = random_stack(options);
  ExecutorSpec spec;
  spec.max_streams = options.streams;
  spec.max_chunk_frames = chunk_frames;
  spec.now_ns = now_ns;
  spec.cuda_invocation = way.invocation;
  const std::unique_ptr<Executor> executor = way.on_card ? halotap::kernels::make_cuda_executor(stack, spec)
                                                         : halotap::kernels::make_cpu_executor(stack, spec);
  if (chunk_frames == options.chunks.front()) std::printf("%s\n", executor->description().c_str());
  std::mt19937_64 random(2);
  std::normal_distribution<float> normal;
  const std::int64_t floats = options.channels * chunk_frames;
  const std::int64_t count = options.streams * floats;
  std::vector<float> of_caller(options.in_place ? 0 : static_cast<std::size_t>(2 * count));
  float* const input = options.in_place ? executor->allocate_samples(2 * count) : of_caller.data();
  float* const output = input + count;
  std::generate_n(input, count, [&] { return normal(random); });
  std::vector<SlotChunk> chunks;
  for (std::int64_t slot = 0; slot < options.streams; ++slot) {
    executor->reset(slot, {});
    chunks.push_back({slot,
                      halotap::kernels::planar<const float>(input + slot * floats, options.channels, chunk_frames),
                      halotap::kernels::planar(output + slot * floats, options.channels, chunk_frames), 0});
  }
  time_calls(way.name, chunk_frames, options.calls, options.streams * chunk_frames, [&] {
    executor->process(chunks, 0);
    if (chunks.back().frames_emitted != chunk_frames) throw std::runtime_error("no result");
  });
}

__device__ void copy(const float4* from, float4* to, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) to[i] = __ldcv(from + i);
  __syncthreads();
}

__device__ void answer(std::uint32_t* done, std::uint32_t sequence) {
  __threadfence_system();
  *reinterpret_cast<volatile std::uint32_t*>(done) = sequence;
}

__global__ void launched_kernel(const float4* from, float4* to, int count, std::uint32_t* done,
                                std::uint32_t sequence) {
  copy(from, to, count);
  if (threadIdx.x == 0) answer(done, sequence);
}

// Stays until the word is kEnd, or for some seconds without another word.
constexpr std::uint32_t kEnd = ~std::uint32_t{0};
__global__ void resident_kernel(const float4* from, float4* to, int count, const std::uint32_t* word,
                                std::uint32_t* done) {
  __shared__ std::uint32_t s_sequence;
  std::uint32_t sequence = 0;
  for (;;) {
    if (threadIdx.x == 0) {
      std::uint32_t next = sequence;
      for (int looks = 0; next == sequence; ++looks) {
        asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(next) : "l"(word) : "memory");
        if (looks == 4000000) next = kEnd;
      }
      s_sequence = next;
    }
    __syncthreads();
    sequence = s_sequence;
    if (sequence == kEnd) return;
    copy(from, to, count);
    if (threadIdx.x == 0) answer(done, sequence);
  }
}

struct Pinned {
  Pinned() { require(cudaHostAlloc(&memory, kBytes, cudaHostAllocMapped)); }
  ~Pinned() { cudaFreeHost(memory); }
  static constexpr std::size_t kBytes = std::size_t{1} << 21;
  void* memory = nullptr;
};

void wait_for(std::uint32_t& word, std::uint32_t sequence) {
  const std::int64_t begun = now_ns();
  while (std::atomic_ref<std::uint32_t>(word).load(std::memory_order_acquire) != sequence) {
    if (now_ns() - begun > 1'000'000'000) throw std::runtime_error("no answer within a second");
  }
}

void time_floors(const Options& options, std::int64_t chunk_frames) {
  const Pinned pinned;
  auto* bytes = static_cast<char*>(pinned.memory);
  std::memset(bytes, 0, Pinned::kBytes);
  auto& word = *reinterpret_cast<std::uint32_t*>(bytes);
  auto& done = *reinterpret_cast<std::uint32_t*>(bytes + 128);
  const auto* from = reinterpret_cast<const float4*>(bytes + 4096);
  auto* to = reinterpret_cast<float4*>(bytes + Pinned::kBytes / 2);
  const int count = static_cast<int>((options.channels * chunk_frames + 3) / 4);
  const std::int64_t calls = std::min<std::int64_t>(options.calls, 100'000);
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  std::uint32_t sequence = 0;
  time_calls("copy, launched", chunk_frames, calls, chunk_frames, [&] {
    launched_kernel<<<1, 1024, 0, stream>>>(from, to, count, &done, ++sequence);
    wait_for(done, sequence);
  });
  require(cudaStreamSynchronize(stream));
  done = 0;
  sequence = 0;
  resident_kernel<<<1, 1024, 0, stream>>>(from, to, count, &word, &done);
  require(cudaGetLastError());
  time_calls("copy, resident", chunk_frames, calls, chunk_frames, [&] {
    std::atomic_ref<std::uint32_t>(word).store(++sequence, std::memory_order_release);
    wait_for(done, sequence);
  });
  std::atomic_ref<std::uint32_t>(word).store(kEnd, std::memory_order_release);
  require(cudaStreamSynchronize(stream));
  require(cudaStreamDestroy(stream));
}

std::int64_t parse(const char* option, const char* text, std::int64_t most) {
  char* end = nullptr;
  const long long value = text != nullptr ? std::strtoll(text, &end, 10) : 0;
  if (text == nullptr || *end != '\0' || value < 1 || value > most) {
    throw std::invalid_argument(std::string(option) + ": expected 1 to " + std::to_string(most));
  }
  return value;
}

Options parse(char** arguments) {
  Options options;
  for (char** argument = arguments + 1; *argument != nullptr; argument += 2) {
    const std::string option = *argument;
    const char* value = argument[1];
    if (option == "--calls") {
      options.calls = parse("--calls", value, 100'000'000);
    } else if (option == "--streams") {
      options.streams = parse("--streams", value, 1 << 20);
    } else if (option == "--layers") {
      options.layers = parse("--layers", value, 1000);
    } else if (option == "--channels") {
      options.channels = parse("--channels", value, 1024);
    } else if (option == "--kernel") {
      options.kernel_size = parse("--kernel", value, 100);
    } else if (option == "--chunk") {
      options.chunks.push_back(parse("--chunk", value, 1024));
    } else if (option == "--as") {
      const auto* way = std::find_if(std::begin(kWays), std::end(kWays), [&](const Way& known) {
        return value != nullptr && std::strcmp(value, known.name) == 0;
      });
      if (way == std::end(kWays)) throw std::invalid_argument("--as: expected resident, launched, layers or cpu");
      options.ways.push_back(*way);
    } else if (option == "--samples") {
      if (value == nullptr || (std::strcmp(value, "executor") != 0 && std::strcmp(value, "caller") != 0)) {
        throw std::invalid_argument("--samples: expected executor or caller");
      }
      options.in_place = std::strcmp(value, "executor") == 0;
    } else {
      throw std::invalid_argument("unknown option " + option +
                                  "; usage: stack_latency [--calls N] [--streams N] [--layers N] [--channels N] "
                                  "[--kernel N] [--chunk N]... [--as resident|launched|layers|cpu]... "
                                  "[--samples executor|caller]");
    }
  }
  if (options.chunks.empty()) options.chunks = {1, 16, 64};
  if (options.ways.empty()) options.ways.assign(std::begin(kWays), std::end(kWays));
  return options;
}

}  // namespace

int main(int, char** arguments) {
  try {
    const Options options = parse(arguments);
    std::printf("%-22s %6s %9s %8s %8s %8s %9s %12s\n", "", "chunk", "calls", "p50 us", "p99", "p99.9", "max",
                "frames/us");
    for (const Way& way : options.ways) {
      for (const std::int64_t chunk : options.chunks) time_stack(options, chunk, way);
    }
    if (options.streams == 1) {
      for (const std::int64_t chunk : options.chunks) time_floors(options, chunk);
    }
    time_calls("nothing", 0, options.calls, 0, [] {});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stack_latency: %s\n", error.what());
    return 1;
  }
}
