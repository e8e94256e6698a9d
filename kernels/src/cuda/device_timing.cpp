#include "halotap/kernels/device_timing.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

#include "cuda/bfloat16.hpp"
#include "cuda/block.hpp"
#include "cuda/device.hpp"
#include "cuda/float16.hpp"
#include "cuda/precision.hpp"
#include "halotap/kernels/reference.hpp"

namespace halotap::kernels {
namespace cuda {
namespace {

constexpr std::uint64_t kSeed = 7;
constexpr std::int64_t kLineBytes = 256;
// Multiply-accumulates of the reference: about a second.
constexpr std::int64_t kReferenceMacs = 300'000'000;
constexpr int kReplays = 20;
constexpr int kWarmUps = 5;

Element element_of(SampleType type) {
  switch (type) {
    case SampleType::kBfloat16:
      return Element::kBfloat16;
    case SampleType::kFloat16:
      return Element::kFloat16;
    case SampleType::kFloat32:
      break;
  }
  return Element::kFloat32;
}

void store(float value, Element element, std::byte* memory) {
  if (element == Element::kFloat32) {
    std::memcpy(memory, &value, sizeof value);
    return;
  }
  const auto wide = static_cast<double>(value);
  const std::uint16_t half = element == Element::kBfloat16 ? bfloat16_bits(wide) : float16_bits(wide);
  std::memcpy(memory, &half, sizeof half);
}

double load(const std::byte* memory, Element element) {
  if (element == Element::kFloat32) {
    float value = 0;
    std::memcpy(&value, memory, sizeof value);
    return value;
  }
  std::uint16_t half = 0;
  std::memcpy(&half, memory, sizeof half);
  return element == Element::kFloat16 ? float16_value(half) : static_cast<double>(bfloat16_value(half));
}

struct EventDestroy {
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
};
struct GraphDestroy {
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
};
struct GraphExecDestroy {
  void operator()(cudaGraphExec_t graph) const noexcept { cudaGraphExecDestroy(graph); }
};
template <typename Handle, typename Destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;

// Median time of one of `runs` calls of `launch(run)`, which queue on `stream`, by replays of all of them as one graph.
template <typename Launch>
double median_us(cudaStream_t stream, std::int64_t runs, const Launch& launch) {
  require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaError_t launched = cudaSuccess;
  for (std::int64_t run = 0; run < runs && launched == cudaSuccess; ++run) launched = launch(run);
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  const Owned<cudaGraph_t, GraphDestroy> graph(captured);
  require(launched, "launch");
  require(ended, "cudaStreamEndCapture");
  cudaGraphExec_t instance = nullptr;
  require(cudaGraphInstantiate(&instance, captured, 0), "cudaGraphInstantiate");
  const Owned<cudaGraphExec_t, GraphExecDestroy> executable(instance);
  cudaEvent_t events[2] = {};
  for (cudaEvent_t& event : events) require(cudaEventCreate(&event), "cudaEventCreate");
  const Owned<cudaEvent_t, EventDestroy> start(events[0]);
  const Owned<cudaEvent_t, EventDestroy> stop(events[1]);
  std::vector<double> times_us;
  for (int i = -kWarmUps; i < kReplays; ++i) {
    require(cudaEventRecord(start.get(), stream), "cudaEventRecord");
    require(cudaGraphLaunch(instance, stream), "cudaGraphLaunch");
    require(cudaEventRecord(stop.get(), stream), "cudaEventRecord");
    require(cudaEventSynchronize(stop.get()), "cudaEventSynchronize");
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()), "cudaEventElapsedTime");
    if (i >= 0) times_us.push_back(1e3 * static_cast<double>(milliseconds) / static_cast<double>(runs));
  }
  std::nth_element(times_us.begin(), times_us.begin() + kReplays / 2, times_us.end());
  return times_us[kReplays / 2];
}

// A stack and its memory: sets of input and output to take turns over, and float32 between the layers.
class Subject {
 public:
  Subject(const Stack& stack, const DeviceTimingSpec& spec)
      : stack_(stack),
        spec_(spec),
        name_(require_device()),
        element_(element_of(spec.samples)),
        stream_(make_stream()) {
    const std::int64_t item_bytes = spec.frames * element_bytes(element_);
    input_bytes_ = spec.batch * stack.in_channels() * item_bytes;
    output_bytes_ = spec.batch * stack.out_channels() * item_bytes;
    int device = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    int cache_bytes = 0;
    require(cudaDeviceGetAttribute(&cache_bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    sets_ = std::clamp<std::int64_t>(5 * std::int64_t{cache_bytes} / bytes() + 1, 2, 2000);

    const std::vector<Layer>& layers = stack.layers();
    std::int64_t widest = 0;
    for (std::size_t l = 0; l < layers.size(); ++l) {
      BlockOptions options{.math = math_of(spec.precision)};
      if (l == 0) options.x = element_;
      if (l + 1 == layers.size()) options.y = element_;
      blocks_.emplace_back(layers[l], options);
      options.generic = true;
      generic_blocks_.emplace_back(layers[l], options);
      if (l + 1 < layers.size()) widest = std::max(widest, layers[l].spec.out_channels);
    }
    input_pitch_ = pitch(input_bytes_);
    output_pitch_ = pitch(output_bytes_);
    d_input_ = allocate_on_device<std::byte>(sets_ * input_pitch_);
    d_output_ = allocate_on_device<std::byte>(sets_ * output_pitch_);
    for (auto& d_between : d_between_) d_between = allocate_on_device<float>(spec.batch * widest * spec.frames);
    fill();
  }

  std::int64_t bytes() const { return input_bytes_ + output_bytes_; }

  DeviceTiming time() {
    // Long enough that starting the graph does not count.
    const std::int64_t turns = sets_ * ((39 + sets_) / sets_);
    DeviceTiming timing;
    timing.generic_cold_us =
        median_us(stream_.get(), turns, [&](std::int64_t run) { return launch(generic_blocks_, run % sets_); });
    timing.cold_us = median_us(stream_.get(), turns, [&](std::int64_t run) { return launch(blocks_, run % sets_); });
    timing.warm_us = median_us(stream_.get(), 40, [&](std::int64_t) { return launch(blocks_, 0); });
    timing.copy_cold_us =
        median_us(stream_.get(), turns, [&](std::int64_t run) { return copy(run % sets_); }) * scale();
    timing.copy_warm_us = median_us(stream_.get(), 40, [&](std::int64_t) { return copy(0); }) * scale();
    require(launch(blocks_, 0), "launch");
    require(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    timing.rel_l2 = error();
    timing.kernels = kernels();
    timing.device = "cuda (" + name_ + ")";
    timing.bytes = bytes();
    return timing;
  }

 private:
  static std::int64_t pitch(std::int64_t bytes) { return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes; }

  // Normal numbers, a prime many and repeated: drawing every sample would take longer than all else. What goes into 16
  // bits is rounded to what both types hold, so that the reference reads the same numbers.
  void fill() {
    std::mt19937_64 random(kSeed);
    std::normal_distribution<float> normal;
    drawn_.resize(999'983);
    for (float& sample : drawn_) {
      sample = normal(random);
      if (element_ != Element::kFloat32) sample = std::clamp(std::round(sample * 32) / 32, -7.0f, 7.0f);
    }
    const std::int64_t size = element_bytes(element_);
    std::vector<std::byte> input(static_cast<std::size_t>(input_bytes_));
    for (std::int64_t i = 0; i < input_bytes_ / size; ++i)
      store(input_sample(i), element_, &input[static_cast<std::size_t>(i * size)]);
    for (std::int64_t set = 0; set < sets_; ++set) {
      require(cudaMemcpy(d_input_.get() + set * input_pitch_, set == 0 ? input.data() : d_input_.get(), input.size(),
                         cudaMemcpyDefault),
              "cudaMemcpy");
    }
    // Whatever is not written is NaN.
    require(cudaMemset(d_output_.get(), 0xff, static_cast<std::size_t>(sets_ * output_pitch_)), "cudaMemset");
    require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }

  float input_sample(std::int64_t i) const { return drawn_[static_cast<std::size_t>(i) % drawn_.size()]; }

  cudaError_t launch(const std::vector<PackedBlock>& blocks, std::int64_t set) noexcept {
    cudaError_t result = cudaSuccess;
    for (std::size_t l = 0; l < blocks.size() && result == cudaSuccess; ++l) {
      const LayerSpec& layer = blocks[l].spec();
      const std::int64_t frames = spec_.frames;
      Items items;
      items.count = spec_.batch;
      items.first = {l == 0 ? static_cast<const void*>(d_input_.get() + set * input_pitch_) : d_between_[l % 2].get(),
                     l + 1 == blocks.size() ? static_cast<void*>(d_output_.get() + set * output_pitch_)
                                            : d_between_[(l + 1) % 2].get(),
                     frames,
                     frames,
                     frames,
                     0,
                     frames,
                     0,
                     frames};
      items.x_stride = layer.in_channels * frames;
      items.y_stride = layer.out_channels * frames;
      result = launch_block(blocks[l], items, stream_.get());
    }
    return result;
  }

  // Half of the bytes are read and half written, so the smaller of input and output is copied, and scaled.
  std::int64_t copied_bytes() const { return std::min(input_bytes_, output_bytes_); }
  double scale() const { return static_cast<double>(bytes()) / (2 * static_cast<double>(copied_bytes())); }
  cudaError_t copy(std::int64_t set) noexcept {
    return cudaMemcpyAsync(d_output_.get() + set * output_pitch_, d_input_.get() + set * input_pitch_,
                           static_cast<std::size_t>(copied_bytes()), cudaMemcpyDeviceToDevice, stream_.get());
  }

  // Against the reference, over as many of the first frames as it does in a moment.
  double error() const {
    const std::int64_t frames = std::clamp<std::int64_t>(kReferenceMacs / 2 / stack_.macs_per_frame(), 1, spec_.frames);
    // Frames behind those that are compared reach into the last ones.
    const std::int64_t read = std::min(spec_.frames, frames + stack_.lookahead_frames());
    const std::int64_t inputs = stack_.in_channels();
    const std::int64_t outputs = stack_.out_channels();
    const std::int64_t size = element_bytes(element_);
    std::vector<std::byte> output(static_cast<std::size_t>(outputs * spec_.frames * size));
    double difference = 0;
    double norm = 0;
    for (const std::int64_t item : {std::int64_t{0}, spec_.batch - 1}) {
      require(cudaMemcpy(output.data(), d_output_.get() + item * outputs * spec_.frames * size, output.size(),
                         cudaMemcpyDeviceToHost),
              "cudaMemcpy");
      std::vector<float> input;
      for (std::int64_t c = 0; c < inputs; ++c) {
        for (std::int64_t t = 0; t < read; ++t) input.push_back(input_sample((item * inputs + c) * spec_.frames + t));
      }
      const std::vector<double> expected = run_reference(stack_, input, read);
      for (std::int64_t o = 0; o < outputs; ++o) {
        for (std::int64_t t = 0; t < frames; ++t) {
          const double wanted = expected[static_cast<std::size_t>(o * read + t)];
          const double got = load(&output[static_cast<std::size_t>((o * spec_.frames + t) * size)], element_);
          difference += (got - wanted) * (got - wanted);
          norm += wanted * wanted;
        }
      }
    }
    return difference == 0 ? 0 : std::sqrt(difference / norm);
  }

  std::string kernels() const {
    std::map<std::string, int> layers;
    for (const PackedBlock& block : blocks_) ++layers[block.kernel_name()];
    std::string text;
    for (const auto& [kernel, count] : layers) {
      text += (text.empty() ? "" : ", ") + (count > 1 ? std::to_string(count) + " x " : "") + kernel;
    }
    return text;
  }

  const Stack& stack_;
  const DeviceTimingSpec spec_;
  const std::string name_;
  const Element element_;
  const OwnedStream stream_;
  std::int64_t input_bytes_ = 0;  // of the whole batch
  std::int64_t output_bytes_ = 0;
  std::int64_t input_pitch_ = 0;  // bytes from one set to the next
  std::int64_t output_pitch_ = 0;
  std::int64_t sets_ = 0;
  std::vector<PackedBlock> blocks_;
  std::vector<PackedBlock> generic_blocks_;
  DeviceArray<std::byte> d_input_;
  DeviceArray<std::byte> d_output_;
  DeviceArray<float> d_between_[2];
  std::vector<float> drawn_;
};

}  // namespace
}  // namespace cuda

DeviceTiming time_on_device(const Stack& stack, const DeviceTimingSpec& spec) {
  if (spec.batch < 1 || spec.frames < 1) {
    throw std::invalid_argument("batch and frames: expected at least 1 of each, got " + std::to_string(spec.batch) +
                                " and " + std::to_string(spec.frames));
  }
  return cuda::Subject(stack, spec).time();
}

}  // namespace halotap::kernels
