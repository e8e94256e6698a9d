// How the block kernel for compute capability 9.0 divides its shared memory for a layer, and whether it takes the
// layer.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda/block.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {

// The depthwise works on half tiles of 32 frames, two of which make the 64 columns of a stage. A slab is what one warp
// reads for one of them: 32 channels of x with their halo, a row each. Tap k of frame f lies `k * tap_stride_bytes` and
// f samples into a row: either a row is the window of all frames that the taps reach, or each tap has rows of its own,
// 32 frames long, which keeps every tap aligned whatever the dilation.
struct Sm90Plan {
  bool pointwise = false;
  std::int32_t taps = 0;       // kernel size of the compiled kernel, causal with SiLU; 0: any layer
  std::int32_t dilation = 0;   // of the compiled kernel: 1 and 2 read windows into registers; 0: tap by tap
  bool tap_rows = false;       // every tap has rows of its own
  bool bulk = false;           // bulk copies can bring x: they begin at multiples of 16 bytes
  std::int32_t lead = 0;       // samples that a bulk copy's rows begin early for that reason
  std::int32_t pad_bytes = 0;  // that they begin earlier still, to be an odd multiple of 16 bytes: 0 or 16

  std::int32_t box_frames = 0;  // frames of one bulk copy: a row
  std::int32_t boxes = 0;       // bulk copies a slab: 1, or one a tap
  std::int32_t row_bytes = 0;
  std::int32_t tap_stride_bytes = 0;
  std::int32_t slab_bytes = 0;
  std::int32_t slots = 0;  // slabs in each warp's ring

  std::int32_t team_warps = 0;  // warps that compute a half tile together: one for 32 channels
  std::int32_t teams = 0;       // team t computes half tiles t, t + teams, ...
  std::int32_t row_blocks = 0;  // 64 rows of y: both warpgroups of the mix share a stage when there are two or more
  std::int32_t stages = 0;      // of split activations: 64 columns each
  std::int32_t stage_bytes = 0;
  std::int32_t shared_bytes = 0;
};

struct Sm90 {
  static constexpr int kMixWarps = 8;         // two warpgroups
  static constexpr int kDepthwiseWarps = 12;  // three warpgroups
  static constexpr int kHalfFrames = 32;      // of a half tile
  static constexpr int kWarpChannels = 32;    // of a slab
  static constexpr int kThreads = (kMixWarps + kDepthwiseWarps) * 32;
  // Registers of a thread: at the start, then by role.
  static constexpr int kLaunchRegisters = 96;
  static constexpr int kMixRegisters = 128;
  static constexpr int kDepthwiseRegisters = 72;
  static constexpr int kMaxSlots = 8;
  static constexpr int kMaxStages = 12;
  static constexpr int kSharedBytes = 227 * 1024;                             // what a block may have
  static constexpr int kMaxBoxFrames = 256;                                   // of a bulk tensor copy
  static constexpr int kMaximaBytes = 2 * kDepthwiseWarps * kHalfFrames * 4;  // two buffers
  static constexpr int kRowBytes = 2 * 64 * 8;                                // scale and bias of each row
  static constexpr int kScaleBytes = (2 * kMaxStages * Tile::kFrames + kDepthwiseWarps * kHalfFrames) * 4;
  static constexpr int kFixedBytes =
      kMaximaBytes + kScaleBytes + kRowBytes + (kDepthwiseWarps * kMaxSlots + 2 * kMaxStages) * 8;
};

// The plan for a layer, or nothing when the generic block must run it. Depends on its arguments alone. [any thread]
std::optional<Sm90Plan> sm90_plan(const LayerSpec& spec, const BlockOptions& options);

}  // namespace halotap::kernels::cuda
