// The kernels of the block for compute capability 9.0: which there are, and what they are given.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/block_args.hpp"
#include "cuda/sm90_plan.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {

// What a launch adds to the plan.
struct Sm90Launch {
  Sm90Plan plan;
  bool ring = false;           // x goes through the ring: the plan's crew, slots and slabs are the ring's
  std::int32_t run_tiles = 0;  // with a ring: tiles of a run but for an item's last
  std::int32_t item_runs = 0;
  std::int32_t runs = 0;              // of all items
  std::int32_t block_tiles = 0;       // without one: tiles of a block
  std::uint32_t longer_blocks = 0;    // the first so many blocks have one more
  std::int32_t block_rows = 0;        // with several passes: rows of y of a block, 64 each
  std::uint32_t item_multiplier = 0;  // see item_of
  std::uint32_t item_shift = 0;
  std::uint32_t absent = 0;  // columns of each tile's last part that are no item's: bits as in Magnitudes
  bool gather = false;       // samples are copied one by one
  std::int32_t slots = 0;    // slabs in a crew's ring
  std::int32_t slab_bytes = 0;
  std::int32_t row_bytes = 0;        // from one channel's row of a slab to the next
  std::int32_t segment_samples = 0;  // of a row, for each item of a gathered tile
  std::int32_t tap_stride_bytes = 0;
  std::int32_t pad_bytes = 0;       // the plan's, unless segmented
  std::int32_t before_samples = 0;  // of a row before the first tap's first frame
  // Taps that would lie before the first, for which rows have room so that what four taps read is aligned.
  std::int32_t skipped_taps = 0;
  std::int32_t quad_bytes[Tile::kQuads] = {};  // where each quad's first tap lies in a row, the skipped ones included

  friend bool operator==(const Sm90Launch&, const Sm90Launch&) = default;
};

// How taps are read: in a loop, from rows that hold all that a tile's taps reach or from the ring, or in registers.
enum class Taps { kLoop, kRing, kCompiled };

// How results are stored: a quad of frames at a time where quads are aligned and real, or sample by sample.
// kUsualQuads: as kQuads, by a kernel for the usual layer.
enum class Store { kQuads, kSamples, kUsualQuads };

// What is known of the usual layer's launches when their kernel is compiled: 128 channels to 128, SiLU, bulk copies of
// one box a tile, four parts a tile. Then none of it is asked for, divided by or branched on when the kernel runs. Sets
// all of that; a launch of which this would change the number of teams alone is one of the usual layer. `taps`:
// compiled, or 0 for a loop; `dilation`: 0 for one that is not known.
__host__ __device__ constexpr void set_usual(int sample_bytes, Terms terms, int taps, int dilation, BlockArgs& args,
                                             Sm90Launch& launch) {
  constexpr int kChannels = Tile::kPassChannels;
  args.term_bytes = kChannels * kChannels * 2;
  args.in_channels = kChannels;
  args.out_channels = kChannels;
  args.in_padded = kChannels;
  args.out_padded = kChannels;
  args.before_mix = Activation::kSilu;
  args.after_mix = Activation::kIdentity;
  args.items.table = nullptr;
  args.segment_frames = Tile::kFrames;
  args.tile_segments = 1;
  launch.ring = false;
  launch.absent = 0;
  launch.gather = false;
  Sm90Plan& plan = launch.plan;
  plan.boxes = 1;
  plan.tile_frames = Tile::kFrames;
  plan.parts = Sm90::kMaxParts;
  plan.team_warps = kChannels / Sm90::kWarpChannels;
  plan.teams = Sm90Roles<false, true>::kDepthwiseWarps / plan.team_warps;
  plan.crews = 1;
  plan.passes = 1;
  plan.row_blocks = kChannels / 64;
  plan.stages = Sm90::kUsualStages;
  plan.stage_bytes = count_of(terms) * kChannels * Tile::kFrames * 2;
  if (taps > 0) args.taps = taps;
  if (dilation == 0) return;
  args.dilation = dilation;
  launch.tap_stride_bytes = dilation * sample_bytes;
  plan.tap_stride_bytes = launch.tap_stride_bytes;
  if (taps == 0) return;
  // As sm90_plan has it, for a causal layer.
  args.left_frames = (taps - 1) * dilation;
  const int unit = 16 / sample_bytes;
  const int lead = (unit - args.left_frames % unit) % unit;
  const int packed_bytes = (Tile::kFrames + args.left_frames + lead) * sample_bytes;
  launch.pad_bytes = packed_bytes % 32 == 0 ? 16 : 0;
  launch.before_samples = lead + launch.pad_bytes / sample_bytes;
  launch.row_bytes = packed_bytes + launch.pad_bytes;
  launch.slab_bytes = kChannels * launch.row_bytes;
  plan.row_bytes = launch.row_bytes;
  plan.slab_bytes = launch.slab_bytes;
  const int fixed_bytes = Sm90::kFixedBytes + taps * kChannels * 4 + plan.stages * plan.stage_bytes;
  const int room = (Sm90::kSharedBytes - fixed_bytes) / launch.slab_bytes;
  launch.slots = room < Sm90::kMaxSlabs ? room : Sm90::kMaxSlabs;
  plan.slots = launch.slots;
}

using Sm90Kernel = void (*)(BlockArgs, Sm90Launch, CUtensorMap);

// The kernel for samples of one type, each compiled on its own. `wide` ones are for plans of several passes. [any
// thread]
Sm90Kernel sm90_kernel_float32(const Sm90Plan& plan, Terms terms, Taps taps, Store store);
Sm90Kernel sm90_kernel_bfloat16(const Sm90Plan& plan, Terms terms, Taps taps, Store store);
Sm90Kernel sm90_kernel_float16(const Sm90Plan& plan, Terms terms, Taps taps, Store store);
Sm90Kernel sm90_wide_kernel_float32(const Sm90Plan& plan, Terms terms, Taps taps, Store store);
Sm90Kernel sm90_wide_kernel_bfloat16(const Sm90Plan& plan, Terms terms, Taps taps, Store store);
Sm90Kernel sm90_wide_kernel_float16(const Sm90Plan& plan, Terms terms, Taps taps, Store store);

}  // namespace halotap::kernels::cuda
