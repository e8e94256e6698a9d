// What the depthwise and the mix of a block share (sm90_kernels.cuh): shared memory, which tiles and rows are a
// block's, and where in the rings of buffers they are.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/device_math.cuh"
#include "cuda/item_tile.cuh"
#include "cuda/sm90.cuh"
#include "cuda/sm90_kernels.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr int kStrideBytes = Tile::kFrames * 16;               // of a stage: from 8 channels to the next 8
[[maybe_unused]] constexpr int kStepBytes = 2 * kStrideBytes;  // 16 channels: one matrix instruction

// Which item a tile belongs to, and which of its tiles it is.
struct TilePlace {
  int item;
  int tile_of_item;
};

// Which item the tile or the run of this index belongs to: index / the number that an item has of them, by
// multiplication: (index * (2^32 + multiplier)) >> (32 + shift), exact below 2^31.
__device__ __forceinline__ int item_of(const Sm90Launch& launch, std::int64_t index_of_any) {
  const auto index = static_cast<std::uint32_t>(index_of_any);
  return static_cast<int>((__umulhi(index, launch.item_multiplier) + index) >> launch.item_shift);
}
__device__ __forceinline__ TilePlace place_of(const BlockArgs& args, const Sm90Launch& launch, std::int64_t tile) {
  const int item = item_of(launch, tile);
  return {item, static_cast<int>(tile) - item * static_cast<int>(args.item_tiles)};
}

struct SharedMemory {
  char* s_slabs;               // [crews][slots]
  char* s_stages;              // [crews][stages]
  float* s_inverse;            // [crews][stages][64 columns]: what undoes the scale of each frame
  int* s_scaled;               // [crews][stages][4 parts]: whether that is of use, or all have the common scale
  std::uint32_t* s_maxima;     // [depthwise warps][16]
  float* s_scales;             // [depthwise warps][16]
  float2* s_rows;              // [128]: scale and bias
  float* s_taps;               // [taps][in_padded], as packed; of taps in a loop
  std::uint64_t* s_slab_full;  // [crews][slots]
  std::uint64_t* s_slab_empty;
  std::uint64_t* s_stage_full;  // [crews][stages]
  std::uint64_t* s_stage_empty;
  // Behind the slabs' barriers, of which there are fewer than places: a row of the usual layer has 144 bytes at least.
  static constexpr int kHalfways = 2;
  static_assert(Sm90::kSharedBytes / (Tile::kPassChannels * 144) <= Sm90::kMaxSlabs - kHalfways);
  std::uint64_t* s_halfway;  // [kHalfways], of the usual layer: see usual_depthwise_role
};

// In a block of the usual layer slabs come behind all that the mix uses, so that its addresses do not depend on how
// large they are and on how many there are.
template <bool kUsual>
__device__ __forceinline__ SharedMemory divide(char* s_base, const Sm90Plan& plan) {
  constexpr int kStages = kUsual ? Sm90::kUsualStages : Sm90::kMaxStages;
  constexpr int kWarps = Sm90Roles<false, kUsual>::kDepthwiseWarps;
  static_assert(kStages * (Tile::kFrames + Sm90::kMaxParts) * 4 + 2 * kWarps * Sm90::kPartFrames * 4 <=
                Sm90::kScaleBytes);
  const int slabs_bytes = plan.crews * plan.slots * plan.slab_bytes;
  SharedMemory s;
  s.s_stages = s_base + (kUsual ? 0 : slabs_bytes);
  s.s_inverse = reinterpret_cast<float*>(s.s_stages + plan.crews * plan.stages * plan.stage_bytes);
  s.s_scaled = reinterpret_cast<int*>(s.s_inverse + kStages * Tile::kFrames);
  s.s_maxima = reinterpret_cast<std::uint32_t*>(s.s_scaled + kStages * Sm90::kMaxParts);
  s.s_scales = reinterpret_cast<float*>(s.s_maxima + kWarps * Sm90::kPartFrames);
  s.s_rows = reinterpret_cast<float2*>(reinterpret_cast<char*>(s.s_inverse) + Sm90::kScaleBytes);
  s.s_slab_full = reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(s.s_rows) + Sm90::kRowBytes);
  s.s_slab_empty = s.s_slab_full + Sm90::kMaxSlabs;
  s.s_stage_full = s.s_slab_empty + Sm90::kMaxSlabs;
  s.s_stage_empty = s.s_stage_full + Sm90::kMaxStages;
  s.s_halfway = s.s_slab_full + Sm90::kMaxSlabs - SharedMemory::kHalfways;
  char* s_rest = reinterpret_cast<char*>(s.s_stage_empty + Sm90::kMaxStages);
  s.s_slabs = kUsual ? s_rest : s_base;
  s.s_taps = reinterpret_cast<float*>(s_rest + (kUsual ? slabs_bytes : 0));
  return s;
}

// Which pass over channels of which tile a slab and a stage hold: a block's come pass after pass. One pass a tile is
// known when compiled.
template <bool kWide>
struct PassPlace {
  int index;  // of the tile, for TileRange
  int pass = 0;

  __device__ __forceinline__ PassPlace(const Sm90Plan& plan, int slab) : index(slab) {
    if constexpr (kWide) {
      index = slab / plan.passes;
      pass = slab - index * plan.passes;
    }
  }
  __device__ __forceinline__ int first_channel() const { return kWide ? pass * Tile::kPassChannels : 0; }
};

// The tiles of this block: every gridDim.x-th. So what all blocks read and write at one time lies side by side in
// memory, in whole pages.
struct TileRange {
  int count;

  __device__ __forceinline__ explicit TileRange(const Sm90Launch& launch)
      : count(launch.block_tiles + (blockIdx.x < launch.longer_blocks ? 1 : 0)) {}
  __device__ __forceinline__ std::int64_t tile(int index) const {
    return blockIdx.x + static_cast<std::int64_t>(index) * gridDim.x;
  }
};

// Tiles side by side of one item, whose x goes through the ring in one piece. A block's runs are every gridDim.x-th.
struct Run {
  int index;
  TilePlace first;
  int tiles;

  __device__ __forceinline__ Run(const BlockArgs& args, const Sm90Launch& launch, int run) : index(run) {
    const int item = item_of(launch, run);
    first = {item, (run - item * launch.item_runs) * launch.run_tiles};
    tiles = min(launch.run_tiles, static_cast<int>(args.item_tiles) - first.tile_of_item);
  }
  __device__ __forceinline__ static Run first_of_block(const BlockArgs& args, const Sm90Launch& launch) {
    return Run(args, launch, static_cast<int>(blockIdx.x));
  }
  __device__ __forceinline__ bool there(const Sm90Launch& launch) const { return index < launch.runs; }
  __device__ __forceinline__ void advance(const BlockArgs& args, const Sm90Launch& launch) {
    *this = Run(args, launch, index + static_cast<int>(gridDim.x));
  }
};

// Goes over a block's tiles in the order of their stages.
template <bool kRing>
class TileCursor;
template <>
class TileCursor<false> {
 public:
  __device__ __forceinline__ TileCursor(const BlockArgs&, const Sm90Launch& launch) : range_(launch) {}
  __device__ __forceinline__ bool there() const { return index_ < range_.count; }
  __device__ __forceinline__ bool last() const { return index_ + 1 == range_.count; }
  __device__ __forceinline__ void advance(const BlockArgs&, const Sm90Launch&) { ++index_; }
  __device__ __forceinline__ std::int64_t tile(const BlockArgs&) const { return range_.tile(index_); }
  __device__ __forceinline__ TilePlace place(const BlockArgs& args, const Sm90Launch& launch) const {
    return place_of(args, launch, range_.tile(index_));
  }

 private:
  TileRange range_;
  int index_ = 0;
};
template <>
class TileCursor<true> {
 public:
  __device__ __forceinline__ TileCursor(const BlockArgs& args, const Sm90Launch& launch)
      : run_(Run::first_of_block(args, launch)), runs_(launch.runs) {}
  __device__ __forceinline__ bool there() const { return run_.index < runs_; }
  __device__ __forceinline__ bool last() const {
    return tile_ + 1 == run_.tiles && run_.index + static_cast<int>(gridDim.x) >= runs_;
  }
  __device__ __forceinline__ void advance(const BlockArgs& args, const Sm90Launch& launch) {
    if (++tile_ < run_.tiles) return;
    tile_ = 0;
    run_.advance(args, launch);
  }
  __device__ __forceinline__ std::int64_t tile(const BlockArgs& args) const {
    return run_.first.item * args.item_tiles + run_.first.tile_of_item + tile_;
  }
  __device__ __forceinline__ TilePlace place(const BlockArgs&, const Sm90Launch&) const {
    return {run_.first.item, run_.first.tile_of_item + tile_};
  }

 private:
  Run run_;
  int tile_ = 0;  // of the run
  int runs_;
};

// The rows of y of this block, 64 each, of a layer of several passes.
struct RowRange {
  int first;
  int count;

  __device__ __forceinline__ explicit RowRange(const Sm90Launch& launch)
      : first(static_cast<int>(blockIdx.y) * launch.block_rows),
        count(min(launch.plan.row_blocks - first, launch.block_rows)) {}
};

// A place in a ring of buffers and the parity of its barriers' phase.
struct RingPlace {
  int index = 0;
  std::uint32_t parity = 0;

  __device__ __forceinline__ void advance(int size) {
    if (++index == size) {
      index = 0;
      parity ^= 1;
    }
  }
};

template <typename X>
__device__ __forceinline__ void unpack_quad(float (&samples)[4], uint2 quad);
template <>
__device__ __forceinline__ void unpack_quad<__nv_bfloat16>(float (&samples)[4], uint2 quad) {
  samples[0] = __uint_as_float(quad.x << 16);
  samples[1] = __uint_as_float(quad.x & 0xffff0000u);
  samples[2] = __uint_as_float(quad.y << 16);
  samples[3] = __uint_as_float(quad.y & 0xffff0000u);
}
template <>
__device__ __forceinline__ void unpack_quad<__half>(float (&samples)[4], uint2 quad) {
  const float2 first = __half22float2(*reinterpret_cast<const __half2*>(&quad.x));
  const float2 second = __half22float2(*reinterpret_cast<const __half2*>(&quad.y));
  samples[0] = first.x;
  samples[1] = first.y;
  samples[2] = second.x;
  samples[3] = second.y;
}

template <typename X>
__device__ __forceinline__ void load_quad(float (&samples)[4], const char* s_quad) {
  if constexpr (sizeof(X) == 4) {
    const float4 quad = *reinterpret_cast<const float4*>(s_quad);
    samples[0] = quad.x;
    samples[1] = quad.y;
    samples[2] = quad.z;
    samples[3] = quad.w;
  } else {
    unpack_quad<X>(samples, *reinterpret_cast<const uint2*>(s_quad));
  }
}

}  // namespace
}  // namespace halotap::kernels::cuda
