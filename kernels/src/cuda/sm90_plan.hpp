// How the block kernel for compute capability 9.0 divides its shared memory for a layer, and whether it takes the
// layer.
#pragma once

#include <cstdint>
#include <optional>

#include "cuda/block.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {

// A slab is x of one tile with its halo, a row a channel. Tap k of frame f lies `k * tap_stride_bytes` and f samples
// into a row: either a row is the window of all frames that the taps reach, or each tap has rows of its own, a tile
// long, which keeps every tap aligned whatever the dilation.
struct Sm90Plan {
  bool pointwise = false;
  std::int32_t taps = 0;  // kernel size of the compiled kernel, causal with SiLU; 0: any layer
  // How the kernels read a row: see sum_taps.
  std::int32_t dilation = 0;      // with compiled taps: 1 and 2, or 0 for any that keeps taps aligned
  std::int32_t any_dilation = 4;  // with taps in a loop: 1 to 3, or 4 to 7 for larger ones with this remainder by 4
  bool tap_rows = false;          // every tap has rows of its own
  bool bulk = false;              // bulk copies can bring x: they begin at multiples of 16 bytes
  std::int32_t skipped_taps = 0;  // taps before the first for which rows have room then: quads of taps are aligned
  std::int32_t lead = 0;          // samples that rows begin early in all, those of skipped taps included
  std::int32_t pad_bytes = 0;     // that they begin earlier still, to be an odd multiple of 16 bytes: 0 or 16

  std::int32_t box_frames = 0;  // frames of one bulk copy: a row
  std::int32_t boxes = 0;       // bulk copies a slab: 1, or one a tap
  std::int32_t row_bytes = 0;
  std::int32_t tap_stride_bytes = 0;
  std::int32_t slab_bytes = 0;

  std::int32_t tile_frames = 0;  // 64 or 32
  std::int32_t parts = 0;        // of a tile: 16 frames each
  std::int32_t team_warps = 0;   // warps that compute a part: one for 32 channels
  std::int32_t teams = 0;        // of a crew: team t computes parts t, t + teams, ... of all its tiles
  std::int32_t crews = 0;        // crew c computes tiles c, c + crews, ... of a block
  std::int32_t slots = 0;        // slabs in each crew's ring
  std::int32_t passes = 0;       // of up to 128 channels each, over which a frame is summed
  std::int32_t row_blocks = 0;   // 64 rows of y
  std::int32_t stages = 0;       // of split activations in each crew's ring: 64 columns each
  std::int32_t stage_bytes = 0;
  std::int32_t shared_bytes = 0;

  // Whether x goes through a ring of chunks of 32 frames to one crew (sm90_ring.cuh), where bulk copies can bring it
  // and items have whole tiles of 64 frames.
  bool ring = false;
  std::int32_t ring_slots = 0;
  std::int32_t ring_stages = 0;
  std::int32_t ring_teams = 0;
  std::int32_t chunk_bytes = 0;

  friend bool operator==(const Sm90Plan&, const Sm90Plan&) = default;
};

// The warps of a block and the registers of a thread, at the start and then by role. A block of several passes has
// fewer warps for the depthwise, since its mix keeps sums of passes and of the pass. That of the usual layer has two
// warpgroups more: one for the depthwise, and one that brings x.
template <bool kWide, bool kUsual = false>
struct Sm90Roles {
  static constexpr int kMixWarps = 8;  // two warpgroups
  static constexpr int kDepthwiseWarps = kWide ? 8 : kUsual ? 16 : 12;
  static constexpr int kCopyWarps = kUsual ? 4 : 0;
  static constexpr int kLaunchRegisters = kWide ? 128 : kUsual ? 72 : 96;
  static constexpr int kMixRegisters = kWide ? 168 : 128;
  static constexpr int kDepthwiseRegisters = kWide ? 88 : kUsual ? 56 : 72;
  static constexpr int kCopyRegisters = 24;
  static constexpr int kThreads = (kMixWarps + kDepthwiseWarps + kCopyWarps) * 32;
  static_assert(!(kWide && kUsual));
  // A team for each part of a tile: usual_depthwise_role.
  static_assert(!kUsual || kDepthwiseWarps == Tile::kPassChannels / 32 * (Tile::kFrames / 16));
  static_assert(kMixWarps * kMixRegisters + kDepthwiseWarps * kDepthwiseRegisters + kCopyWarps * kCopyRegisters <=
                kThreads / 32 * kLaunchRegisters);
  static_assert(kThreads * kLaunchRegisters <= 65536);
};

struct Sm90 {
  static constexpr int kMixWarps = Sm90Roles<false>::kMixWarps;
  static constexpr int kMostDepthwiseWarps = Sm90Roles<false>::kDepthwiseWarps;  // but for the usual layer
  static constexpr int kPartFrames = 16;
  static constexpr int kMaxParts = Tile::kFrames / kPartFrames;  // of a tile
  static constexpr int kWarpChannels = 32;
  static constexpr int kMaxSteps = Tile::kPassChannels / Tile::kStepChannels;
  // Named barriers: 1 to 6 are the teams'; then two tell which warpgroup of the mix multiplies.
  static constexpr int kTurnBarrier = 1 + kMostDepthwiseWarps / 2;
  static constexpr int kUsualStages = 2;           // of the usual layer
  static constexpr int kMaxSlabs = 16;             // of all crews; two fewer of the usual layer (s_halfway)
  static constexpr int kMaxStages = 16;            // likewise
  static constexpr int kSharedBytes = 227 * 1024;  // what a block may have
  static constexpr int kMaxBoxFrames = 256;        // of a bulk tensor copy
  // Of the ring: a chunk's frames of a channel are the 128 bytes that the copy engine's order spans.
  static constexpr int kChunkRowBytes = 128;
  static constexpr int kChunkFrames = kChunkRowBytes / 4;
  static constexpr int kTileChunks = Tile::kFrames / kChunkFrames;
  // What undoes each frame's scale, and whether it is of use, a stage; maxima and scales of frames a warp.
  static constexpr int kScaleBytes =
      kMaxStages * (Tile::kFrames + kMaxParts) * 4 + 2 * kMostDepthwiseWarps * kPartFrames * 4;
  static constexpr int kRowBytes = 2 * 64 * 8;  // scale and bias of each row
  static constexpr int kFixedBytes = kScaleBytes + kRowBytes + 2 * (kMaxSlabs + kMaxStages) * 8;
};

// The plan for a layer, or nothing when the generic block must run it. Depends on its arguments alone. [any thread]
std::optional<Sm90Plan> sm90_plan(const LayerSpec& spec, const BlockOptions& options);

}  // namespace halotap::kernels::cuda
