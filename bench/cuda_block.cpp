// Times the CUDA block beside a device copy of the same bytes, in one run.
//
//   cuda_block k1       the batch shape of docs/performance.md in every precision
//   cuda_block scaling  how it scales with frames, channels, taps, dilation and batch
//   cuda_block B C O K D T [fp32|tf32|bf16|fp16] [f32|bf16|fp16]
//
// A time is the median over replays of a CUDA graph of one launch after another, divided by the launches. Cold:
// launches rotate over inputs and outputs that together are several times the second-level cache. Warm: one input, one
// output. The error is the relative L2 error against a double computation of columns drawn at random.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cuda/block.hpp"

namespace {

using namespace halotap::kernels;
using namespace halotap::kernels::cuda;

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}
#define REQUIRE(call) require(call, #call)

struct Case {
  std::int64_t batch, in_channels, out_channels, kernel_size, dilation, frames;
  BlockOptions options;
};

// The card's own dense rate for 16-bit operands: an 8192^3 product through PyTorch on random data, 788 TFLOP/s.
constexpr double kMatrixFlops = 788e12;

std::vector<char> to_storage(const std::vector<float>& values, Element element) {
  std::vector<char> bytes(values.size() * static_cast<std::size_t>(element_bytes(element)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (element == Element::kFloat32) {
      std::memcpy(bytes.data() + i * 4, &values[i], 4);
    } else {
      // Truncated bfloat16 numbers of 8 significant bits: float16 holds those near one exactly too.
      std::uint32_t bits;
      std::memcpy(&bits, &values[i], 4);
      std::uint16_t half = static_cast<std::uint16_t>(bits >> 16);
      if (element == Element::kFloat16) {
        const std::uint32_t exponent = (bits >> 23) & 255;
        half = static_cast<std::uint16_t>(
            exponent < 113 ? 0 : ((bits >> 16) & 0x8000) | ((exponent - 112) << 10) | ((bits >> 13) & 0x3f8));
      }
      std::memcpy(bytes.data() + i * 2, &half, 2);
    }
  }
  return bytes;
}

float from_storage(const char* bytes, std::size_t i, Element element) {
  if (element == Element::kFloat32) {
    float value;
    std::memcpy(&value, bytes + i * 4, 4);
    return value;
  }
  std::uint16_t half;
  std::memcpy(&half, bytes + i * 2, 2);
  if (element == Element::kBfloat16) {
    const std::uint32_t bits = static_cast<std::uint32_t>(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  const int exponent = (half >> 10) & 31;
  const double magnitude =
      exponent == 0 ? std::ldexp(half & 1023, -24) : std::ldexp(1024 + (half & 1023), exponent - 25);
  return static_cast<float>((half & 0x8000) != 0 ? -magnitude : magnitude);
}

template <typename Launch>
double median_us(const Launch& launch, int launches, cudaStream_t stream) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) launch(i);
  REQUIRE(cudaStreamEndCapture(stream, &graph));
  REQUIRE(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t start;
  cudaEvent_t stop;
  REQUIRE(cudaEventCreate(&start));
  REQUIRE(cudaEventCreate(&stop));
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    REQUIRE(cudaEventRecord(start, stream));
    REQUIRE(cudaGraphLaunch(exec, stream));
    REQUIRE(cudaEventRecord(stop, stream));
    REQUIRE(cudaEventSynchronize(stop));
    float ms;
    REQUIRE(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 5) times.push_back(1e3 * static_cast<double>(ms) / launches);
  }
  std::sort(times.begin(), times.end());
  REQUIRE(cudaEventDestroy(start));
  REQUIRE(cudaEventDestroy(stop));
  REQUIRE(cudaGraphExecDestroy(exec));
  REQUIRE(cudaGraphDestroy(graph));
  return times[times.size() / 2];
}

const char* name(Math math) {
  constexpr const char* kNames[] = {"fp32", "tf32", "bf16", "fp16"};
  return kNames[static_cast<int>(math)];
}
const char* name(Element element) {
  constexpr const char* kNames[] = {"f32", "bf16", "fp16"};
  return kNames[static_cast<int>(element)];
}

Layer make_layer(const Case& c, std::mt19937_64& random) {
  std::normal_distribution<double> normal;
  const auto draw = [&](std::int64_t count, double deviation) {
    std::vector<double> values(static_cast<std::size_t>(count));
    for (double& value : values) value = static_cast<float>(deviation * normal(random));
    return values;
  };
  Layer layer;
  layer.spec.name = "layer";
  layer.spec.in_channels = c.in_channels;
  layer.spec.out_channels = c.out_channels;
  layer.spec.kernel_size = c.kernel_size;
  layer.spec.dilation = c.dilation;
  layer.weights.dw_weight = draw(c.in_channels * c.kernel_size, 1 / std::sqrt(static_cast<double>(c.kernel_size)));
  layer.weights.dw_bias = draw(c.in_channels, 0.1);
  layer.weights.pw_weight = draw(c.in_channels * c.out_channels, 1 / std::sqrt(static_cast<double>(c.in_channels)));
  layer.weights.pw_bias = draw(c.out_channels, 0.1);
  return layer;
}

double error_of(const Case& c, const Layer& layer, const std::vector<char>& x, const std::vector<char>& y,
                std::mt19937_64& random) {
  double difference = 0;
  double norm = 0;
  std::vector<double> a(static_cast<std::size_t>(c.in_channels));
  for (int sample = 0; sample < 200; ++sample) {
    const std::int64_t b = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(c.batch));
    const std::int64_t t = sample < 8 ? std::min<std::int64_t>(sample, c.frames - 1)
                                      : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(c.frames));
    for (std::int64_t ch = 0; ch < c.in_channels; ++ch) {
      double z = layer.weights.dw_bias[static_cast<std::size_t>(ch)];
      for (std::int64_t k = 0; k < c.kernel_size; ++k) {
        const std::int64_t source = t + k * c.dilation - layer.spec.left_frames();
        if (source < 0) continue;
        z += layer.weights.dw_weight[static_cast<std::size_t>(ch * c.kernel_size + k)] *
             static_cast<double>(from_storage(
                 x.data(), static_cast<std::size_t>((b * c.in_channels + ch) * c.frames + source), c.options.x));
      }
      a[static_cast<std::size_t>(ch)] = z / (1 + std::exp(-z));
    }
    for (std::int64_t o = 0; o < c.out_channels; ++o) {
      double expected = layer.weights.pw_bias[static_cast<std::size_t>(o)];
      for (std::int64_t ch = 0; ch < c.in_channels; ++ch) {
        expected +=
            layer.weights.pw_weight[static_cast<std::size_t>(o * c.in_channels + ch)] * a[static_cast<std::size_t>(ch)];
      }
      const double got = static_cast<double>(
          from_storage(y.data(), static_cast<std::size_t>((b * c.out_channels + o) * c.frames + t), c.options.y));
      difference += (got - expected) * (got - expected);
      norm += expected * expected;
    }
  }
  return std::sqrt(difference / norm);
}

void bench(const Case& c, cudaStream_t stream) {
  std::mt19937_64 random(7);
  const Layer layer = make_layer(c, random);
  const PackedBlock block(layer, c.options);
  const std::int64_t x_samples = c.batch * c.in_channels * c.frames;
  const std::int64_t y_samples = c.batch * c.out_channels * c.frames;
  const std::int64_t x_bytes = x_samples * element_bytes(c.options.x);
  const std::int64_t y_bytes = y_samples * element_bytes(c.options.y);
  const std::int64_t bytes = x_bytes + y_bytes;

  cudaDeviceProp properties;
  REQUIRE(cudaGetDeviceProperties(&properties, 0));
  const std::int64_t sets = std::clamp<std::int64_t>(5 * properties.l2CacheSize / bytes + 1, 2, 2000);
  char* d_x;
  char* d_y;
  const std::int64_t x_pitch = (x_bytes + 255) / 256 * 256;
  const std::int64_t y_pitch = (y_bytes + 255) / 256 * 256;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&d_x), static_cast<std::size_t>(sets * x_pitch)));
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&d_y), static_cast<std::size_t>(sets * y_pitch)));

  // Normal numbers, a prime many, repeated: drawing every sample would take longer than all else.
  constexpr std::int64_t kDrawn = 999983;
  std::vector<float> drawn(kDrawn);
  std::normal_distribution<float> normal;
  for (float& sample : drawn) sample = normal(random);
  std::vector<float> samples(static_cast<std::size_t>(x_samples));
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = drawn[i % kDrawn];
  const std::vector<char> x = to_storage(samples, c.options.x);
  for (std::int64_t s = 0; s < sets; ++s) {
    REQUIRE(cudaMemcpy(d_x + s * x_pitch, s == 0 ? static_cast<const void*>(x.data()) : d_x,
                       static_cast<std::size_t>(x_bytes), cudaMemcpyDefault));
  }
  REQUIRE(cudaMemset(d_y, 0xff, static_cast<std::size_t>(sets * y_pitch)));

  const auto launch = [&](std::int64_t set) {
    Items items;
    items.count = c.batch;
    items.first = {d_x + set * x_pitch, d_y + set * y_pitch, c.frames, c.frames, c.frames, 0, c.frames, 0, c.frames};
    items.x_stride = c.in_channels * c.frames;
    items.y_stride = c.out_channels * c.frames;
    REQUIRE(launch_block(block, items, stream));
  };
  const int launches = static_cast<int>(std::clamp<std::int64_t>(sets * ((39 + sets) / sets), 8, 4000));
  const double cold = median_us([&](int i) { launch(i % sets); }, launches, stream);
  const double warm = median_us([&](int) { launch(0); }, 40, stream);
  // The same bytes in all: half read, half written.
  const auto half = static_cast<std::size_t>(std::min(x_bytes, y_bytes));
  const double copy = median_us(
                          [&](int i) {
                            REQUIRE(cudaMemcpyAsync(d_y + (i % sets) * y_pitch, d_x + (i % sets) * x_pitch, half,
                                                    cudaMemcpyDeviceToDevice, stream));
                          },
                          launches, stream) *
                      static_cast<double>(bytes) / (2.0 * static_cast<double>(half));
  launch(0);
  REQUIRE(cudaStreamSynchronize(stream));
  std::vector<char> y(static_cast<std::size_t>(y_bytes));
  REQUIRE(cudaMemcpy(y.data(), d_y, y.size(), cudaMemcpyDefault));
  const double products = c.options.math == Math::kFp32 ? 3 : 1;
  const double matrix_us = products * 2e6 * static_cast<double>(c.batch * c.frames) *
                           static_cast<double>(c.in_channels * c.out_channels) / kMatrixFlops;
  const double floor_us = std::max(copy, matrix_us);
  std::printf("| %lld | %lld | %lld | %lld | %lld | %lld | %s | %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.1e | %s |\n",
              static_cast<long long>(c.batch), static_cast<long long>(c.in_channels),
              static_cast<long long>(c.out_channels), static_cast<long long>(c.kernel_size),
              static_cast<long long>(c.dilation), static_cast<long long>(c.frames), name(c.options.math),
              name(c.options.x), cold, warm, copy, matrix_us, cold / floor_us, error_of(c, layer, x, y, random),
              block.kernel_name().c_str());
  std::fflush(stdout);
  REQUIRE(cudaFree(d_x));
  REQUIRE(cudaFree(d_y));
}

BlockOptions options_of(const std::string& math, const std::string& element) {
  BlockOptions options;
  options.math = math == "tf32"   ? Math::kTf32
                 : math == "bf16" ? Math::kBf16
                 : math == "fp16" ? Math::kFp16
                                  : Math::kFp32;
  options.x = element == "bf16" ? Element::kBfloat16 : element == "fp16" ? Element::kFloat16 : Element::kFloat32;
  options.y = options.x;
  return options;
}

std::vector<Case> k1_cases() {
  std::vector<Case> cases;
  for (const auto& [math, element] :
       {std::pair{"fp32", "f32"}, {"tf32", "f32"}, {"bf16", "bf16"}, {"fp16", "fp16"}, {"fp32", "bf16"}}) {
    cases.push_back({16, 128, 128, 5, 2, 2048, options_of(math, element)});
  }
  return cases;
}

std::vector<Case> scaling_cases() {
  std::vector<Case> cases;
  for (const std::int64_t frames : {64, 256, 1024, 2048, 8192, 65536})
    cases.push_back({16, 128, 128, 5, 2, frames, {}});
  cases.push_back({1, 128, 128, 5, 2, 1 << 20, {}});
  for (const std::int64_t channels : {16, 32, 48, 64, 96, 192, 256, 384, 512}) {
    cases.push_back({16, channels, channels, 5, 2, 2048 * 128 / channels / 32 * 32, {}});
  }
  for (const std::int64_t kernel_size : {1, 3, 7, 9, 15, 31}) cases.push_back({16, 128, 128, kernel_size, 2, 2048, {}});
  for (const std::int64_t dilation : {1, 3, 4, 8, 16, 32, 64}) cases.push_back({16, 128, 128, 5, dilation, 2048, {}});
  for (const std::int64_t batch : {1, 4, 64, 256}) cases.push_back({batch, 128, 128, 5, 2, 2048, {}});
  return cases;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Case> cases;
  const std::string mode = argc > 1 ? argv[1] : "k1";
  if (mode == "k1") cases = k1_cases();
  if (mode == "scaling") cases = scaling_cases();
  if (argc >= 7) {
    cases.push_back({std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4]),
                     std::atoll(argv[5]), std::atoll(argv[6]),
                     options_of(argc > 7 ? argv[7] : "fp32", argc > 8 ? argv[8] : "f32")});
  }
  cudaStream_t stream;
  REQUIRE(cudaStreamCreate(&stream));
  std::printf(
      "| B | C | O | k | d | T | math | in, out | cold us | warm us | copy us | products us | cold / floor | rel L2 | "
      "kernel |\n");
  std::printf("|---:|---:|---:|---:|---:|---:|---|---|---:|---:|---:|---:|---:|---:|---|\n");
  for (const Case& c : cases) bench(c, stream);
  REQUIRE(cudaStreamDestroy(stream));
  return 0;
}
