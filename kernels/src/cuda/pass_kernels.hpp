// The small kernels around the blocks of a pass: they move halos, inputs and outputs, and compute nothing.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/block.hpp"
#include "cuda/pass.hpp"

namespace halotap::kernels::cuda {

// What they all need. Inputs, outputs and what has no `d_` are host memory that the device sees; everything else is the
// device's.
struct PassArrays {
  const PassLayer* d_layers = nullptr;  // [layer_count + 1], the output's last
  std::int64_t layer_count = 0;         // blocks
  std::int64_t window_floats = 0;       // an item
  std::int64_t state_floats = 0;        // a slot
  std::int64_t most_channels = 0;       // of any layer
  std::int64_t longest_halo = 0;        // frames, of any layer
  std::int64_t most_halo_samples = 0;   // channels * halo_frames, of any layer
  std::int64_t max_items = 0;
  std::int64_t group = 0;                 // streams side by side in a pass in lockstep: a power of two
  std::int64_t window_items = 0;          // that d_windows has room for: max_items, and with groups whole ones
  const PassEntry* entries = nullptr;     // [items of the pass], of the host or the device
  const float* frames_to_hold = nullptr;  // [max_items, in_channels]
  Item* d_items = nullptr;                // [layer_count, max_items], as items_of gives them
  float* d_windows = nullptr;             // [window_items, window_floats], or [window_floats, window_items]
  float* d_state = nullptr;               // [max_slots, state_floats]
  // GiveUp's.
  const volatile int* d_given_up = nullptr;
};

// Each queues one kernel on `stream` for the first `items` entries and returns CUDA's error of the launch.

// Fills the halos of a layer's windows with the frame that is to be held: layer 0's from the staged frame, which also
// becomes the first new frame, another's from its first new frame, where the block before wrote it. Only entries with
// start_hold; the others' items have no frames until begin_pass. [worker]
cudaError_t hold_layer(const PassArrays& arrays, std::int64_t layer, std::int64_t items, cudaStream_t stream) noexcept;

// Copies state into the halos (zeros for a fresh stream; one that starts to hold has its halos already) and the
// entries' input behind layer 0's, and gives every layer's items their frames, none of which has more than max_frames.
// [worker]
cudaError_t begin_pass(const PassArrays& arrays, std::int64_t items, std::int64_t max_frames,
                       cudaStream_t stream) noexcept;

// Copies the last halo_frames frames of every window back into the state and the output's window to the entries'
// output. [worker]
cudaError_t end_pass(const PassArrays& arrays, std::int64_t items, std::int64_t max_frames,
                     cudaStream_t stream) noexcept;

// Whether this build has code for the current device: CUDA's error if not. Also loads it, so that no launch has to.
// [control]
cudaError_t load_pass_kernels() noexcept;

}  // namespace halotap::kernels::cuda
