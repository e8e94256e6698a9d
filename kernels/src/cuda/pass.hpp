// One pass of the CUDA backend: many streams, each by up to a step of frames, through the whole stack. Shapes, entries
// and the interface of what runs it; nothing of CUDA, so that all of the executor's logic is tested without a card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/stack.hpp"

#if defined(__CUDACC__)
#define HALOTAP_HOST_DEVICE __host__ __device__
#else
#define HALOTAP_HOST_DEVICE
#endif

namespace halotap::kernels::cuda {

// Layer l reads its input out of a window, one an item (an entry's place in the pass), and writes its output into
// the window of layer l + 1; the last one writes into the output's, which has no halo:
//
//     window [channels, stride]:   lead_frames, the last halo_frames of which are the halo | step_frames new ones
//
// A stream's state is all its halos, dense [channels, halo_frames], one layer's behind the other's. They are copied
// into the windows at the start of a pass and back at its end: whatever the lengths of the chunks were, the new frames
// lie on 16-byte boundaries, and state does not grow with the chunk.
struct PassLayer {
  std::int64_t channels = 0;
  std::int64_t halo_frames = 0;
  std::int64_t right_frames = 0;
  std::int64_t lag_frames = 0;     // sum of the right_frames of the layers before: how far its input is behind
  std::int64_t lead_frames = 0;    // halo_frames rounded up to kAlignFrames
  std::int64_t window_stride = 0;  // floats from a channel to the next
  std::int64_t window_offset = 0;  // floats, in an item's windows
  std::int64_t state_offset = 0;   // floats, in a slot's state
};

// Four floats: the widest access of a thread.
inline constexpr std::int64_t kAlignFrames = 4;

struct PassShape {
  std::vector<PassLayer> layers;  // one a layer, then the output's
  std::int64_t step_frames = 0;   // most new frames of an item
  std::int64_t max_items = 0;     // most items of a pass
  std::int64_t max_slots = 0;
  std::int64_t window_floats = 0;  // an item
  std::int64_t state_floats = 0;   // a slot
  std::int64_t in_stride = 0;      // floats from a channel to the next of an item's staged input: step_frames aligned
  std::int64_t out_stride = 0;     // likewise of its output
  std::int64_t in_place_floats =
      1;  // rows begin at multiples of so many where the device reads or writes them in place
  std::int64_t macs_per_frame = 0;
};

// Chooses steps and items for `spec`: as many items as there are streams, and steps as long as a chunk, while all
// windows together stay within a quarter of a gigabyte. Throws std::invalid_argument for a spec out of range and
// std::bad_alloc when the state cannot be counted in 63 bits. [control]
PassShape make_pass_shape(const Stack& stack, const ExecutorSpec& spec);

inline constexpr std::int64_t kForever = std::int64_t{1} << 62;  // sums with it stay inside 64 bits

// What one item of a pass is to do.
struct PassEntry {
  std::int64_t slot = 0;
  std::int64_t frames = 0;      // new ones, 1 to step_frames
  std::int64_t received = 0;    // frames of the stream before these
  std::int64_t end = kForever;  // frames of the recording, once known; input frames from there on count as zeros
  bool fresh = false;           // no state yet: the halos are zeros
  bool held = false;            // the past is a frame repeated for ever, not zeros
  bool start_hold = false;      // and this pass begins with it: halos are made from the staged frame to hold
  // Where the new frames are, [in_channels, in_stride], and where the output goes, [out_channels, out_stride]: staging,
  // or memory of allocate_samples.
  const float* input = nullptr;
  float* output = nullptr;
  std::int64_t in_stride = 0;
  std::int64_t out_stride = 0;
};

// Which of an item's `frames` frames are inside the recording, in the window of a layer that lags `lag_frames` behind:
// [begin, end). The others are zeros, as the offline run pads every layer. [any thread]
struct RealFrames {
  std::int64_t begin;
  std::int64_t end;
};
HALOTAP_HOST_DEVICE inline RealFrames real_frames(const PassEntry& entry, std::int64_t lag_frames) {
  const std::int64_t time = entry.received - lag_frames;
  const auto frame_of = [&](std::int64_t t) {
    const std::int64_t frame = t - time;
    return frame < 0 ? 0 : frame > entry.frames ? entry.frames : frame;
  };
  return {entry.held ? 0 : frame_of(0), frame_of(entry.end)};
}

// How long a device that runs these entries is waited for: 100 ms, and what their work takes at 10^11
// multiply-accumulates and 10^9 bytes a second, a fraction of what any card does. [any thread]
std::int64_t answer_limit_ns(const PassShape& shape, std::span<const PassEntry> entries) noexcept;

// Runs passes. The caller stages an item's input, runs, and takes its output, or has both in memory of
// allocate_samples; one thread at a time.
class PassDevice {
 public:
  virtual ~PassDevice() = default;

  // Where item i's new frames are staged: [in_channels, in_stride]. [worker]
  virtual float* input(std::int64_t item) noexcept = 0;
  // Where the frame that item i's stream holds is staged, for an entry with start_hold: [in_channels]. [worker]
  virtual float* frame_to_hold(std::int64_t item) noexcept = 0;
  // Where the last pass left item i's output: [out_channels, out_stride], all of the entry's frames, the early ones
  // (before the stream's first output frame) included. [worker]
  virtual float* output(std::int64_t item) noexcept = 0;
  // As Executor's; null: what this device reads and writes is staged. [control]
  virtual float* allocate_samples(std::int64_t) { return nullptr; }

  // How many entries are faster in a pass of their own when all of them have equally many frames, all of these real in
  // every layer, and none starts to hold; 0: no number is. [worker]
  virtual std::int64_t lockstep_items() const noexcept { return 0; }

  // Runs one pass, entry i as item i, each slot at most once, and waits for its end. False, for ever, once the device
  // has failed. [worker]
  virtual bool run(std::span<const PassEntry> entries) noexcept = 0;
  // The same in two, between which other devices may be seen to; what lies at `entries` stays until the second. A
  // device that does not know better runs in the first. [worker]
  virtual void start(std::span<const PassEntry> entries) noexcept { has_run_ = run(entries); }
  virtual bool finish() noexcept { return has_run_; }

  // As Executor's.
  virtual const char* failure() const noexcept = 0;
  // Whether it has not answered within its limit. Such a device is never destroyed: to free its memory is to wait for
  // it. [worker]
  virtual bool is_silent() const noexcept { return false; }
  virtual std::string description() const = 0;

 private:
  bool has_run_ = false;
};

}  // namespace halotap::kernels::cuda
