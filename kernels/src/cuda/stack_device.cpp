#include "cuda/stack_device.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "cuda/answer.hpp"
#include "cuda/device.hpp"
#include "cuda/stack_kernel.hpp"
#include "cuda/stack_pack.hpp"

namespace halotap::kernels::cuda {
namespace {

class StackPassDevice final : public PassDevice {
 public:
  StackPassDevice(const Stack& stack, const StackPlan& plan, const PassShape& shape, const ExecutorSpec& spec,
                  const ResidentLife& life)
      : name_(require_device()), shape_(shape), spec_(spec), stream_(make_stream()) {
    require(cudaGetDevice(&device_), "cudaGetDevice");
    require(prepare_stack(plan, room_), "cudaOccupancyMaxActiveClusters");
    if (is_resident()) {
      // It keeps the processors of a second team only where a chunk may be split between two.
      if (room_.clusters_of_two > 0 && plan.splits(size_of(shape.step_frames), 1, false, 1)) args_.teams = 2;
      room_.clusters = args_.teams == 2 ? room_.clusters_of_two : room_.clusters;
      if (spec.resident_clusters > room_.clusters) {
        throw std::invalid_argument("resident_clusters: expected at most " + std::to_string(room_.clusters) +
                                    " on this card, got " + std::to_string(spec.resident_clusters));
      }
      room_.clusters = static_cast<int>(spec.resident_clusters);
    }
    const std::vector<std::byte> images = pack_stack(stack, plan);
    d_images_ = allocate_on_device<std::byte>(std::ssize(images));
    require(cudaMemcpy(d_images_.get(), images.data(), images.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    d_state_ = allocate_on_device<float>(shape.max_slots * shape.state_floats);
    d_done_ = allocate_on_device<std::uint32_t>(room_.clusters);
    entries_ = allocate_pinned<StackEntry>(shape.max_items);
    input_ = allocate_pinned<float>(shape.max_items * plan.in_channels * shape.in_stride);
    frames_to_hold_ = allocate_pinned<float>(shape.max_items * plan.in_channels);
    output_ = allocate_pinned<float>(shape.max_items * plan.out_channels * shape.out_stride);
    done_ = allocate_pinned<std::uint32_t>(std::int64_t{2} * room_.clusters * StackTile::kMostBlocks);
    out_words_ = allocate_pinned<TaggedWord>(std::int64_t{plan.blocks} * StackTile::kBlockChannels);
    in_words_ = allocate_pinned<TaggedWord>(std::int64_t{plan.blocks} * StackTile::kBlockChannels);
    mailbox_ = allocate_pinned<TaggedWord>(kEntryWords);
    gone_ = allocate_pinned<std::uint32_t>(room_.clusters);

    args_.plan = plan;
    args_.d_image = d_images_.get();
    args_.d_state = d_state_.get();
    args_.entries = entries_.get();
    args_.frames_to_hold = frames_to_hold_.get();
    args_.done = done_.get();
    args_.out_words = out_words_.get();
    args_.d_given_up = give_up_.d_word();
    args_.mailbox = mailbox_.get();
    args_.in_words = in_words_.get();
    args_.gone = gone_.get();
    args_.d_done = d_done_.get();
    args_.idle_ns = life.idle_ns;
    args_.life_ns = life.most_ns;

    // Memory was set on the default stream, which ours does not wait for.
    require(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    if (is_resident()) require(start_resident(), "cudaLaunchKernelExC");
    // The first launch takes longer than others. Slot 0 counts as fresh until a stream has run.
    const PassEntry warm_up{.frames = 1,
                            .fresh = true,
                            .held = true,
                            .start_hold = true,
                            .input = input(0),
                            .output = output(0),
                            .in_stride = shape.in_stride,
                            .out_stride = shape.out_stride};
    if (!run({&warm_up, 1})) throw BackendUnavailable("backend cuda: the first run failed: " + std::string(failure_));
  }

  ~StackPassDevice() override {
    const CurrentDevice current(device_);
    // An epoch that no kernel has ends the one that runs.
    if (is_resident()) {
      args_.entry.command = StackCommand::pack(sequence_, next_epoch(), false, false, 0, 0);
      post(args_.entry);
    }
    cudaStreamSynchronize(stream_.get());
  }

  float* input(std::int64_t item) noexcept override {
    return input_.get() + item * args_.plan.in_channels * shape_.in_stride;
  }
  float* frame_to_hold(std::int64_t item) noexcept override {
    return frames_to_hold_.get() + item * args_.plan.in_channels;
  }
  float* output(std::int64_t item) noexcept override {
    return output_.get() + item * args_.plan.out_channels * shape_.out_stride;
  }

  float* allocate_samples(std::int64_t count) override {
    const CurrentDevice current(device_);
    return samples_.allocate(count);
  }

  bool run(std::span<const PassEntry> entries) noexcept override {
    if (failure_ != nullptr) return false;
    std::int64_t most_frames = 1;
    bool holds = false;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const PassEntry& entry = entries[i];
      most_frames = std::max(most_frames, entry.frames);
      holds = holds || entry.start_hold;
      // What a stream that starts to hold has before is made by the same pass.
      const bool is_fresh = entry.fresh && !entry.start_hold;
      entries_[i] = {.received = entry.received,
                     .end = entry.end,
                     .input = entry.input,
                     .output = entry.output,
                     .in_stride = entry.in_stride,
                     .out_stride = entry.out_stride,
                     .slot = static_cast<std::int32_t>(entry.slot),
                     .frames = static_cast<std::int16_t>(entry.frames),
                     .flags = static_cast<std::int16_t>((is_fresh ? StackEntry::kFresh : 0) |
                                                        (entry.held ? StackEntry::kHeld : 0) |
                                                        (entry.start_hold ? StackEntry::kStartHold : 0))};
    }
    const int size = size_of(most_frames);
    const int count = static_cast<int>(entries.size());
    args_.entry = entries_[0];
    // Of several resident clusters another may have the stream's next pass, and a pass with words is over for the host
    // before its rings are stored.
    const bool words = count == 1 && size == 0 && !holds && (!is_resident() || room_.clusters == 1);
    args_.entry.command = StackCommand::pack(++sequence_, epoch_, words, holds, size, count);
    int clusters = room_.clusters;
    if (!is_resident()) {
      args_.teams = args_.plan.splits(size, count, holds, room_.clusters_of_two) ? 2 : 1;
      clusters = std::min(clusters, count);
    }

    error_ = cudaSuccess;
    words_there_ = 0;
    if (is_resident()) {
      if (has_words()) post_words(entries[0]);
      post(args_.entry);
    } else {
      const CurrentDevice current(device_);
      error_ = launch_stack(args_, false, clusters, stream_.get());
    }
    const std::int64_t limit_ns = answer_limit_ns(shape_, entries);
    std::uint32_t looks = 0;
    is_silent_ = !answers(spec_.now_ns, limit_ns, [&] {
      if (error_ != cudaSuccess || has_run(clusters)) return true;
      // Asking CUDA takes longer than looking; only now and then.
      if (++looks % kLooksAQuery == 0) check_device(clusters);
      if (spec_.pause != nullptr) spec_.pause();
      return false;
    });
    if (is_silent_) {
      give_up(silence_.text(limit_ns));
    } else if (error_ != cudaSuccess) {
      give_up(cudaGetErrorString(error_));  // part of a resident kernel may run on
    } else {
      if (has_words()) take_words(entries[0]);
      if (is_resident() && spec_.now_ns != nullptr && is_old()) {
        if (const cudaError_t error = start_resident(); error != cudaSuccess) failure_ = cudaGetErrorString(error);
      }
    }
    return failure_ == nullptr;
  }

  const char* failure() const noexcept override { return failure_; }
  bool is_silent() const noexcept override { return is_silent_; }
  std::string description() const override {
    return "cuda (" + name_ + ", one " + (is_resident() ? "resident " : "") + "kernel a stack)";
  }

 private:
  static constexpr std::uint32_t kLooksAQuery = 256;

  bool is_resident() const { return spec_.cuda_invocation == CudaInvocation::kResident; }

  // Items of so many frames have 2^size columns.
  static int size_of(std::int64_t frames) { return std::bit_width(static_cast<std::uint64_t>(frames - 1)); }

  std::uint32_t next_epoch() const { return epoch_ % StackCommand::kMostEpoch + 1; }

  void give_up(const char* why) noexcept {
    const CurrentDevice current(device_);
    failure_ = why;
    give_up_.tell();
  }

  bool has_words() const { return StackCommand::words(args_.entry.command); }

  // What was written before is there when the device has read the last word.
  void post(const StackEntry& entry) noexcept {
    const auto words = std::bit_cast<std::array<std::uint32_t, kEntryWords>>(entry);
    for (std::size_t i = 0; i < words.size(); ++i) {
      std::atomic_ref<TaggedWord>(mailbox_[i]).store(tagged(words[i], sequence_), std::memory_order_release);
    }
  }

  // The input of a pass with words.
  void post_words(const PassEntry& entry) noexcept {
    const std::int64_t words = std::int64_t{args_.plan.layers[0].in_blocks} * StackTile::kBlockChannels;
    for (std::int64_t c = 0; c < words; ++c) {
      const float sample = c < args_.plan.in_channels ? entry.input[c * entry.in_stride] : 0.0f;
      std::atomic_ref<TaggedWord>(in_words_[static_cast<std::size_t>(c)])
          .store(tagged(std::bit_cast<std::uint32_t>(sample), sequence_), std::memory_order_relaxed);
    }
  }

  // And its output.
  void take_words(const PassEntry& entry) noexcept {
    for (std::int64_t c = 0; c < args_.plan.out_channels; ++c) {
      std::atomic_ref<TaggedWord> word(out_words_[static_cast<std::size_t>(c)]);
      entry.output[c * entry.out_stride] =
          std::bit_cast<float>(static_cast<std::uint32_t>(word.load(std::memory_order_relaxed)));
    }
  }

  // Whether the results are in memory: all blocks have said so, or all words of its output have come. [worker]
  bool has_run(int clusters) noexcept {
    if (has_words()) {
      for (; words_there_ < args_.plan.out_channels; ++words_there_) {
        std::atomic_ref<TaggedWord> word(out_words_[static_cast<std::size_t>(words_there_)]);
        if (tag_of(word.load(std::memory_order_relaxed)) != sequence_) return false;
      }
      return true;
    }
    for (int team = 0; team < clusters * args_.teams; ++team) {
      for (int block = 0; block < args_.plan.blocks; ++block) {
        std::uint32_t& word = done_[static_cast<std::size_t>(team * StackTile::kMostBlocks + block)];
        if (std::atomic_ref<std::uint32_t>(word).load(std::memory_order_acquire) != sequence_) return false;
      }
    }
    return true;
  }

  // A device that has failed says so here; a resident kernel that has ended is followed by another.
  void check_device(int clusters) noexcept {
    const cudaError_t state = cudaStreamQuery(stream_.get());
    if (state != cudaSuccess && state != cudaErrorNotReady) {
      error_ = state;
    } else if (is_resident()) {
      for (int cluster = 0; cluster < clusters && error_ == cudaSuccess; ++cluster) {
        std::uint32_t& word = gone_[static_cast<std::size_t>(cluster)];
        if (std::atomic_ref<std::uint32_t>(word).load(std::memory_order_acquire) == epoch_) error_ = start_resident();
      }
    }
  }

  bool is_old() const noexcept { return spec_.now_ns() - started_ns_ > static_cast<std::int64_t>(args_.life_ns / 2); }

  // Ends the resident kernel, if one runs, and queues the next one behind it: it goes on with what the other has left,
  // the last command included, if that has not run.
  cudaError_t start_resident() noexcept {
    const CurrentDevice current(device_);
    epoch_ = next_epoch();
    const std::uint64_t last = args_.entry.command;
    args_.entry.command = StackCommand::pack(sequence_, epoch_, StackCommand::words(last), StackCommand::holds(last),
                                             StackCommand::size(last), StackCommand::count(last));
    post(args_.entry);
    args_.epoch = epoch_;
    if (spec_.now_ns != nullptr) started_ns_ = spec_.now_ns();
    return launch_stack(args_, true, room_.clusters, stream_.get());
  }

  const std::string name_;
  const PassShape shape_;
  const ExecutorSpec spec_;
  int device_ = 0;
  StackRoom room_;  // clusters: the most of a pass
  OwnedStream stream_;
  DeviceArray<std::byte> d_images_;
  DeviceArray<float> d_state_;
  DeviceArray<std::uint32_t> d_done_;
  PinnedArray<StackEntry> entries_;
  PinnedArray<float> input_;
  PinnedArray<float> frames_to_hold_;
  PinnedArray<float> output_;
  PinnedArray<std::uint32_t> done_;
  PinnedArray<TaggedWord> out_words_;
  PinnedArray<TaggedWord> in_words_;
  PinnedArray<TaggedWord> mailbox_;
  PinnedArray<std::uint32_t> gone_;
  GiveUp give_up_;
  PinnedSamples samples_;
  StackArgs args_;                // with the last pass
  std::uint32_t sequence_ = 0;    // of the last pass
  std::uint32_t epoch_ = 0;       // of the resident kernel
  std::int32_t words_there_ = 0;  // of the output's, so far
  std::int64_t started_ns_ = 0;
  cudaError_t error_ = cudaSuccess;
  bool is_silent_ = false;
  NoAnswer silence_;
  const char* failure_ = nullptr;
};

}  // namespace

std::string stack_refusal(const StackPlan& plan) {
  if (compute_capability() < 90) return "this card has no clusters of blocks";
  StackRoom room;
  const cudaError_t prepared = prepare_stack(plan, room);
  if (prepared == cudaErrorInvalidKernelImage) {
    cudaGetLastError();
    return "this build has no code of it for this card";
  }
  require(prepared, "cudaOccupancyMaxActiveClusters");
  return room.clusters > 0 ? "" : "this card has no room for a cluster of " + std::to_string(plan.blocks) + " blocks";
}

std::unique_ptr<PassDevice> make_stack_device(const Stack& stack, const StackPlan& plan, const PassShape& shape,
                                              const ExecutorSpec& spec, const ResidentLife& life) {
  return std::make_unique<StackPassDevice>(stack, plan, shape, spec, life);
}

}  // namespace halotap::kernels::cuda
