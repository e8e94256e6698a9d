#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/answer.hpp"
#include "cuda/block.hpp"
#include "cuda/device.hpp"
#include "cuda/injected_failure.hpp"
#include "cuda/lockstep_kernels.hpp"
#include "cuda/pass.hpp"
#include "cuda/pass_executor.hpp"
#include "cuda/pass_kernels.hpp"
#include "cuda/precision.hpp"
#include "cuda/stack_device.hpp"
#include "cuda/stack_plan.hpp"
#include "cuda/tiles.hpp"
#include "float_mode.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels {
namespace cuda {
namespace {

// A pass is layers + 2 kernels on one stream: the first reads the input out of the host's memory and the last writes
// the output there. Entries, which every block of these two reads, are brought over in front of them, unless they are
// so few that it would take longer than it saves.
//
// Where many streams have equally many new frames, few each, the pass is in lockstep (lockstep_kernels.hpp), with other
// kernels at both ends and the layers packed once more for its dilations. A frame's bits are the same.
class CudaPassDevice final : public PassDevice {
 public:
  // `why` not one kernel for the stack.
  CudaPassDevice(const Stack& stack, const PassShape& shape, const ExecutorSpec& spec, std::string why)
      : name_(require_device()),
        why_(std::move(why)),
        shape_(shape),
        now_ns_(spec.now_ns),
        pause_(spec.pause),
        stream_(make_stream()) {
    require(cudaGetDevice(&device_), "cudaGetDevice");
    for (const Layer& layer : stack.layers())
      blocks_.emplace_back(layer, BlockOptions{.math = math_of(spec.precision)});

    const std::vector<PassLayer>& layers = shape.layers;
    d_layers_ = allocate_on_device<PassLayer>(std::ssize(layers));
    require(cudaMemcpy(d_layers_.get(), layers.data(), layers.size() * sizeof(PassLayer), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    pack_for_lockstep(stack, spec);
    arrays_.window_items = shape.max_items;
    if (arrays_.group > 0) arrays_.window_items = (shape.max_items + arrays_.group - 1) / arrays_.group * arrays_.group;
    d_windows_ = allocate_on_device<float>(arrays_.window_items * shape.window_floats);
    d_state_ = allocate_on_device<float>(shape.max_slots * shape.state_floats);
    entries_ = allocate_pinned<PassEntry>(shape.max_items);
    d_entries_ = allocate_on_device<PassEntry>(shape.max_items);
    input_ = allocate_pinned<float>(shape.max_items * layers.front().channels * shape.in_stride);
    frames_to_hold_ = allocate_pinned<float>(shape.max_items * layers.front().channels);
    output_ = allocate_pinned<float>(shape.max_items * layers.back().channels * shape.out_stride);
    const std::vector<Item> items = items_of(shape);
    d_items_ = allocate_on_device<Item>(std::ssize(items));
    require(cudaMemcpy(d_items_.get(), items.data(), items.size() * sizeof(Item), cudaMemcpyHostToDevice),
            "cudaMemcpy");

    arrays_.d_layers = d_layers_.get();
    arrays_.layer_count = std::ssize(layers) - 1;
    arrays_.window_floats = shape.window_floats;
    arrays_.state_floats = shape.state_floats;
    for (const PassLayer& layer : layers) {
      arrays_.most_channels = std::max(arrays_.most_channels, layer.channels);
      arrays_.longest_halo = std::max(arrays_.longest_halo, layer.halo_frames);
      arrays_.most_halo_samples = std::max(arrays_.most_halo_samples, layer.channels * layer.halo_frames);
    }
    arrays_.max_items = shape.max_items;
    arrays_.frames_to_hold = frames_to_hold_.get();
    arrays_.d_given_up = give_up_.d_word();
    arrays_.d_items = d_items_.get();
    arrays_.d_windows = d_windows_.get();
    arrays_.d_state = d_state_.get();
    input_floats_ = layers.front().channels * shape.in_stride;
    in_channels_ = layers.front().channels;
    output_floats_ = layers.back().channels * shape.out_stride;

    // Memory was set on the default stream, which ours does not wait for.
    require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    // Every kernel that there will be, so that none is loaded later: slots count as fresh until a stream has run.
    warm_up(1, true);
    if (arrays_.group > 0) warm_up(kLeastLockstepItems, false);
  }

  ~CudaPassDevice() override {
    const CurrentDevice current(device_);
    cudaStreamSynchronize(stream_.get());
  }

  float* input(std::int64_t item) noexcept override { return input_.get() + item * input_floats_; }
  float* frame_to_hold(std::int64_t item) noexcept override { return frames_to_hold_.get() + item * in_channels_; }
  float* output(std::int64_t item) noexcept override { return output_.get() + item * output_floats_; }

  float* allocate_samples(std::int64_t count) override {
    const CurrentDevice current(device_);
    return samples_.allocate(count);
  }

  std::int64_t lockstep_items() const noexcept override { return arrays_.group > 0 ? kLeastLockstepItems : 0; }

  bool run(std::span<const PassEntry> entries) noexcept override {
    start(entries);
    return finish();
  }

  void start(std::span<const PassEntry> entries) noexcept override {
    if (failure_ != nullptr) return;
    const CurrentDevice current(device_);
    std::copy(entries.begin(), entries.end(), entries_.get());
    launched_ = launch(entries);
    limit_ns_ = answer_limit_ns(shape_, entries);
  }

  bool finish() noexcept override {
    if (failure_ != nullptr) return false;
    const CurrentDevice current(device_);
    cudaError_t ended = cudaSuccess;
    is_silent_ = !answers(now_ns_, limit_ns_, [&] {
      ended = cudaStreamQuery(stream_.get());
      if (ended == cudaErrorNotReady && pause_ != nullptr) pause_();
      return ended != cudaErrorNotReady;
    });
    if (is_silent_) {
      failure_ = silence_.text(limit_ns_);
      give_up_.tell();
    } else if (const cudaError_t result = launched_ != cudaSuccess ? launched_ : ended; result != cudaSuccess) {
      failure_ = cudaGetErrorString(result);
    }
    return failure_ == nullptr;
  }

  const char* failure() const noexcept override { return failure_; }
  bool is_silent() const noexcept override { return is_silent_; }
  std::string description() const override {
    return "cuda (" + name_ + ", one kernel a layer" + (why_.empty() ? "" : ": " + why_) + ")";
  }

 private:
  static constexpr std::int64_t kFewEntries = 16;
  // Of fewer items, a group's may be missing for the most part; and longer steps fill tiles by themselves.
  static constexpr std::int64_t kLeastLockstepItems = Tile::kFrames;
  static constexpr std::int64_t kMostLockstepFrames = 16;

  void warm_up(std::int64_t items, bool hold) {
    std::vector<PassEntry> entries;
    for (std::int64_t item = 0; item < items; ++item) {
      entries.push_back({.slot = item,
                         .frames = 1,
                         .fresh = true,
                         .held = hold,
                         .start_hold = hold,
                         .input = input(item),
                         .output = output(item),
                         .in_stride = shape_.in_stride,
                         .out_stride = shape_.out_stride});
    }
    if (!run(entries)) throw BackendUnavailable("backend cuda: the first run failed: " + std::string(failure_));
  }

  // Where lockstep is of use, and every layer has the kernel then that it has otherwise: so do its bits stay.
  void pack_for_lockstep(const Stack& stack, const ExecutorSpec& spec) {
    if (shape_.max_items < kLeastLockstepItems || shape_.step_frames > kMostLockstepFrames) return;
    const auto group =
        static_cast<std::int64_t>(Tile::kFrames / std::bit_ceil(static_cast<std::uint64_t>(shape_.step_frames)));
    for (const PassLayer& layer : shape_.layers) {
      if (layer.channels * layer.halo_frames > kMostLockstepHaloSamples) return;
    }
    std::vector<PackedBlock> blocks;
    for (std::size_t l = 0; l < blocks_.size(); ++l) {
      Layer layer = stack.layers()[l];
      if (layer.spec.type == LayerType::kTemporalConv) layer.spec.dilation *= group;
      if (layer.spec.halo_frames() > kMaxHaloFrames) return;
      blocks.emplace_back(layer, BlockOptions{.math = math_of(spec.precision)});
      const auto is_generic = [](const PackedBlock& block) { return block.kernel_name() == "generic"; };
      if (is_generic(blocks.back()) != is_generic(blocks_[l])) return;
    }
    lockstep_blocks_ = std::move(blocks);
    arrays_.group = group;
  }

  bool is_in_lockstep(std::span<const PassEntry> entries) const {
    if (arrays_.group == 0 || std::ssize(entries) < kLeastLockstepItems) return false;
    const std::int64_t most_lag = shape_.layers.back().lag_frames;
    return std::all_of(entries.begin(), entries.end(), [&](const PassEntry& entry) {
      return entry.frames == entries.front().frames && !entry.start_hold && real_frames(entry, most_lag).begin == 0 &&
             real_frames(entry, 0).end == entry.frames;
    });
  }

  // What never changes of an item; frames, and the ranges that follow from them, are written by the kernels.
  std::vector<Item> items_of(const PassShape& shape) const {
    std::vector<Item> items;
    for (std::size_t l = 0; l + 1 < shape.layers.size(); ++l) {
      const PassLayer& x = shape.layers[l];
      const PassLayer& y = shape.layers[l + 1];
      for (std::int64_t i = 0; i < shape.max_items; ++i) {
        float* windows = d_windows_.get() + i * shape.window_floats;
        Item item;
        // Output frame 0 is right_frames behind the newest frame that it needs, which is the first new one.
        item.x = windows + x.window_offset + x.lead_frames - x.right_frames;
        item.y = windows + y.window_offset + y.lead_frames;
        item.x_channel_stride = x.window_stride;
        item.y_channel_stride = y.window_stride;
        item.x_begin = x.right_frames - x.halo_frames;
        items.push_back(item);
      }
    }
    return items;
  }

  Items layer_items(std::int64_t layer, std::int64_t count, std::int64_t max_frames) const {
    Items items;
    items.count = count;
    items.table = d_items_.get() + layer * arrays_.max_items;
    items.max_frames = max_frames;
    return items;
  }

  // A layer's items in lockstep: a group each.
  Items lockstep_items(std::size_t layer, std::int64_t count, std::int64_t frames) const {
    const PassLayer& x = shape_.layers[layer];
    const PassLayer& y = shape_.layers[layer + 1];
    const std::int64_t group = arrays_.group;
    const std::int64_t groups = (count + group - 1) / group;
    const LockstepStrides x_strides = lockstep_strides(x, group, groups, frames);
    const LockstepStrides y_strides = lockstep_strides(y, group, groups, frames);
    Items items;
    items.count = groups;
    items.x_stride = x_strides.group;
    items.y_stride = y_strides.group;
    items.first.x =
        d_windows_.get() + x.window_offset * arrays_.window_items + (x.halo_frames - x.right_frames) * group;
    items.first.y = d_windows_.get() + y.window_offset * arrays_.window_items + y.halo_frames * group;
    items.first.x_channel_stride = x_strides.channel;
    items.first.y_channel_stride = y_strides.channel;
    items.first.frames = frames * group;
    items.first.x_begin = (x.right_frames - x.halo_frames) * group;
    items.first.x_end = (x.right_frames + frames) * group;
    items.first.y_end = frames * group;
    return items;
  }

  cudaError_t launch(std::span<const PassEntry> entries) noexcept {
    const std::int64_t count = std::ssize(entries);
    cudaError_t result = cudaSuccess;
    arrays_.entries = entries_.get();
    if (count > kFewEntries) {
      arrays_.entries = d_entries_.get();
      result = cudaMemcpyAsync(d_entries_.get(), entries_.get(), entries.size_bytes(), cudaMemcpyHostToDevice,
                               stream_.get());
    }
    if (result != cudaSuccess) return result;
    return is_in_lockstep(entries) ? launch_in_lockstep(count, entries.front().frames) : launch_apart(entries);
  }

  cudaError_t launch_in_lockstep(std::int64_t count, std::int64_t frames) noexcept {
    cudaStream_t stream = stream_.get();
    cudaError_t result = begin_lockstep(arrays_, count, frames, stream);
    for (std::size_t l = 0; l < lockstep_blocks_.size() && result == cudaSuccess; ++l) {
      result = launch_block(lockstep_blocks_[l], lockstep_items(l, count, frames), stream);
    }
    return result == cudaSuccess ? end_lockstep(arrays_, count, frames, stream) : result;
  }

  cudaError_t launch_apart(std::span<const PassEntry> entries) noexcept {
    const std::int64_t count = std::ssize(entries);
    std::int64_t max_frames = 0;
    bool holds = false;
    for (const PassEntry& entry : entries) {
      max_frames = std::max(max_frames, entry.frames);
      holds = holds || entry.start_hold;
    }
    cudaStream_t stream = stream_.get();
    const std::int64_t layers = arrays_.layer_count;
    cudaError_t result = cudaSuccess;
    for (std::int64_t l = 0; holds && l < layers && result == cudaSuccess; ++l) {
      result = hold_layer(arrays_, l, count, stream);
      // The last layer's output has no halo to fill.
      if (result == cudaSuccess && l + 1 < layers) result = launch_layer(l, count, 1);
    }
    if (result == cudaSuccess) result = begin_pass(arrays_, count, max_frames, stream);
    for (std::int64_t l = 0; l < layers && result == cudaSuccess; ++l) result = launch_layer(l, count, max_frames);
    if (result == cudaSuccess) result = end_pass(arrays_, count, max_frames, stream);
    return result;
  }

  cudaError_t launch_layer(std::int64_t layer, std::int64_t count, std::int64_t max_frames) noexcept {
    return launch_block(blocks_[static_cast<std::size_t>(layer)], layer_items(layer, count, max_frames), stream_.get());
  }

  const std::string name_;
  const std::string why_;
  const PassShape shape_;
  const NowNs now_ns_;
  const Pause pause_;
  int device_ = 0;
  OwnedStream stream_;
  std::vector<PackedBlock> blocks_;
  std::vector<PackedBlock> lockstep_blocks_;  // none: no pass is
  DeviceArray<PassLayer> d_layers_;
  DeviceArray<float> d_windows_;
  DeviceArray<float> d_state_;
  DeviceArray<Item> d_items_;
  DeviceArray<PassEntry> d_entries_;
  PinnedArray<PassEntry> entries_;
  PinnedArray<float> input_;
  PinnedArray<float> frames_to_hold_;
  PinnedArray<float> output_;
  GiveUp give_up_;
  PinnedSamples samples_;
  PassArrays arrays_;
  std::int64_t input_floats_ = 0;   // an item
  std::int64_t output_floats_ = 0;  // an item
  std::int64_t in_channels_ = 0;
  cudaError_t launched_ = cudaSuccess;  // of the pass that was started, as the next
  std::int64_t limit_ns_ = 0;
  bool is_silent_ = false;
  NoAnswer silence_;
  const char* failure_ = nullptr;
};

void check_devices(const std::vector<int>& devices) {
  int count = 0;
  require(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (const int device : devices) {
    if (device >= 0 && device < count && std::count(devices.begin(), devices.end(), device) == 1) continue;
    throw std::invalid_argument("cuda_devices: expected numbers from 0 to " + std::to_string(count - 1) +
                                ", each once, got " + std::to_string(device));
  }
}

// The streams of several devices, a kernel a layer.
std::unique_ptr<Executor> make_sharded_executor(const Stack& stack, const ExecutorSpec& spec) {
  if (spec.cuda_invocation != CudaInvocation::kLayers) {
    throw std::invalid_argument("cuda_devices: expected one where cuda_invocation is not layers, got " +
                                std::to_string(spec.cuda_devices.size()));
  }
  const std::int64_t count = std::ssize(spec.cuda_devices);
  ExecutorSpec share = spec;
  share.max_streams = (spec.max_streams + count - 1) / count;
  const PassShape shape = make_pass_shape(stack, share);
  std::vector<std::unique_ptr<PassDevice>> devices;
  std::string first;
  for (const int number : spec.cuda_devices) {
    const CurrentDevice current(number);
    const std::string name = require_device();
    if (devices.empty()) first = name;
    if (name != first) {
      // Or a stream's bits would depend on its slot.
      throw std::invalid_argument("cuda_devices: expected cards of one kind, got " + first + " and " + name);
    }
    auto device = std::make_unique<CudaPassDevice>(stack, shape, share, "");
    devices.push_back(with_injected_failure(std::move(device), shape, spec.now_ns));
  }
  return make_pass_executor(shape, std::move(devices));
}

}  // namespace
}  // namespace cuda

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack> stack, const ExecutorSpec& spec) {
  const FloatMode mode;  // weights are rounded below
  cuda::PassShape shape = cuda::make_pass_shape(*stack, spec);
  if (spec.resident_clusters < 1) {
    throw std::invalid_argument("resident_clusters: expected at least 1, got " +
                                std::to_string(spec.resident_clusters));
  }
  cuda::require_device();
  cuda::check_devices(spec.cuda_devices);
  if (spec.cuda_devices.size() > 1) return cuda::make_sharded_executor(*stack, spec);
  std::optional<cuda::CurrentDevice> current;
  if (!spec.cuda_devices.empty()) {
    current.emplace(spec.cuda_devices.front());
    cuda::require_device();
  }
  const bool by_layers = spec.cuda_invocation == CudaInvocation::kLayers;
  cuda::StackPlan plan;
  std::string why;
  if (!by_layers) why = cuda::plan_stack(*stack, spec.precision, plan);
  if (!by_layers && why.empty()) why = cuda::stack_refusal(plan);
  std::unique_ptr<cuda::PassDevice> device;
  if (!by_layers && why.empty()) {
    shape = cuda::make_stack_shape(*stack, plan, spec);
    device = cuda::make_stack_device(*stack, plan, shape, spec);
  } else if (spec.cuda_invocation == CudaInvocation::kResident) {
    throw std::invalid_argument("cuda_invocation resident: expected a stack that one kernel runs, got one where " +
                                why);
  } else {
    device = std::make_unique<cuda::CudaPassDevice>(*stack, shape, spec, why);
  }
  return cuda::make_pass_executor(shape, cuda::with_injected_failure(std::move(device), shape, spec.now_ns));
}

}  // namespace halotap::kernels
