// The kernels around the blocks of a pass in lockstep: many streams with equally many new frames each.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/pass_kernels.hpp"

namespace halotap::kernels::cuda {

// In such a pass `group` streams share an item of the blocks', and a layer's window is, in the memory that other passes
// divide otherwise,
//
//     [channels, groups, halo_frames + frames, group]
//
// What lies behind a group's channel is one axis of frames to a block whose dilation is `group` times the layer's:
// frame t * group + s is frame t of stream s. So an item has a tile of frames, side by side, which bulk copies bring,
// and nothing in a tile is computed for nobody.

// From the front of a layer's window to its next channel and its next group. [any thread]
struct LockstepStrides {
  std::int64_t channel;
  std::int64_t group;
};
inline LockstepStrides lockstep_strides(const PassLayer& layer, std::int64_t group, std::int64_t groups,
                                        std::int64_t frames) {
  const std::int64_t item = (layer.halo_frames + frames) * group;
  return {groups * item, item};
}

// Samples of a layer's halo, channels * halo_frames, that the kernels below take at most: so many blocks a grid has.
inline constexpr std::int64_t kMostLockstepHaloSamples = std::int64_t{65535} * 128;

// Each queues one kernel on `stream` for the first `items` entries, none of which starts to hold and all of whose
// frames are real in every layer, and returns CUDA's error of the launch.

// Brings state (zeros for a fresh stream) and input into the windows; zeros for what the last group lacks. [worker]
cudaError_t begin_lockstep(const PassArrays& arrays, std::int64_t items, std::int64_t frames,
                           cudaStream_t stream) noexcept;

// Brings the last halo_frames frames of every window back into the state and the output to where the entries want it.
// [worker]
cudaError_t end_lockstep(const PassArrays& arrays, std::int64_t items, std::int64_t frames,
                         cudaStream_t stream) noexcept;

}  // namespace halotap::kernels::cuda
