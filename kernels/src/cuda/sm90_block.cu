// z[c,t] = tap_bias[c] + sum_k taps[c,k] * x[c, t + k*dilation - left],   a = before(z)
// y[o,t] = after(mix_bias[o] + sum_c mix[o,c] * a[c,t])  (+ x[o,t])
//
// x [in_channels, frames], y [out_channels, frames], frames fastest. in_channels: a multiple of 16 up to 128.
//
// Grid: x divides the pairs of half tiles, one block an SM; y the rows of y, 128 a block.
// 20 warps, which meet in shared memory through barriers:
//   depthwise  12 warps in teams. A team computes a half tile, 32 frames of all channels; a warp of it 32 channels; a
//              thread one channel, taps in registers. Each warp keeps bulk tensor copies of its slabs (32 channels of x
//              with their halo) on the way into a ring of its own. The team exchanges each frame's largest |a|, scales
//              by frame, splits into two float16 terms and stores them in half of a stage, in tiles
//              [channels/8][columns/8][8 channels][8 columns]. Three teams or more, in different phases, keep the units
//              of the multiprocessor busy at once.
//   mix        2 warpgroups: 64 rows of weights each, in registers for good; m64n64k16 products with the terms of a
//              stage, corrections first so that one accumulator rounds as well as two; then scale, bias, stores of 64
//              bytes a row.
// Items that bulk copies cannot read (a table of them, unaligned rows) are gathered by the depthwise warps themselves
// into the same slabs, so their bits are the same.
//
// A frame's sum runs over channels in steps of 16: low weights, low activations, then both high parts.
// Shared memory and registers: sm90_plan.hpp.
#include <cuda.h>
#include <cudaTypedefs.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cuda/device_math.cuh"
#include "cuda/item_tile.cuh"
#include "cuda/sm90.cuh"
#include "cuda/sm90_block.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr int kStrideBytes = Tile::kFrames * 16;               // of a stage: from 8 channels to the next 8
[[maybe_unused]] constexpr int kStepBytes = 2 * kStrideBytes;  // 16 channels: one matrix instruction

// What a launch adds to the plan.
struct Sm90Launch {
  Sm90Plan plan;
  std::int32_t block_pairs = 0;       // pairs of half tiles of a block
  std::uint32_t longer_blocks = 0;    // the first so many blocks have one more
  std::uint32_t item_multiplier = 0;  // see TilePlace
  std::uint32_t item_shift = 0;
  std::int32_t row_bytes = 0;        // from one channel's row of a slab to the next
  std::int32_t segment_samples = 0;  // of a row, for each item of a gathered half tile
  std::int32_t tap_stride_bytes = 0;
  std::int32_t pad_samples = 0;  // plan.pad_bytes, when bulk copies bring x
  std::int32_t pad_bytes = 0;
  std::int32_t lead = 0;  // samples between where quads start and the first tap's first frame: less than a quad
  std::int32_t quad_bytes[Sm90::kHalfFrames / Tile::kQuadFrames] = {};  // where each quad starts in a row
};

// Which item a half tile belongs to, and which of its half tiles it is.
struct TilePlace {
  int item;
  int tile_of_item;

  // tile / item_tiles by multiplication: (tile * (2^32 + multiplier)) >> (32 + shift), exact for tile < 2^31.
  __device__ __forceinline__ TilePlace(const BlockArgs& args, const Sm90Launch& launch, std::int64_t tile) {
    const auto index = static_cast<std::uint32_t>(tile);
    item = static_cast<int>((__umulhi(index, launch.item_multiplier) + index) >> launch.item_shift);
    tile_of_item = static_cast<int>(index) - item * static_cast<int>(args.item_tiles);
  }
};

struct SharedMemory {
  char* s_slabs;
  char* s_stages;
  std::uint32_t* s_maxima;     // [2][depthwise warps][32]
  float4* s_inverse;           // [2 * stages][16 quads]: what undoes each frame's scale
  float* s_scales;             // [depthwise warps][32]
  float2* s_rows;              // [128]: scale and bias
  std::uint64_t* s_slab_full;  // [depthwise warps][slots]
  std::uint64_t* s_stage_full;
  std::uint64_t* s_stage_empty;
};

__device__ __forceinline__ SharedMemory divide(char* s_base, const Sm90Plan& plan) {
  SharedMemory s;
  s.s_slabs = s_base;
  s.s_stages = s.s_slabs + plan.teams * plan.team_warps * plan.slots * plan.slab_bytes;
  s.s_maxima = reinterpret_cast<std::uint32_t*>(s.s_stages + plan.stages * plan.stage_bytes);
  s.s_inverse = reinterpret_cast<float4*>(reinterpret_cast<char*>(s.s_maxima) + Sm90::kMaximaBytes);
  s.s_scales = reinterpret_cast<float*>(s.s_inverse) + 2 * Sm90::kMaxStages * Tile::kFrames;
  s.s_rows = reinterpret_cast<float2*>(s.s_scales + Sm90::kDepthwiseWarps * Sm90::kHalfFrames);
  s.s_slab_full = reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(s.s_rows) + Sm90::kRowBytes);
  s.s_stage_full = s.s_slab_full + Sm90::kDepthwiseWarps * Sm90::kMaxSlots;
  s.s_stage_empty = s.s_stage_full + Sm90::kMaxStages;
  return s;
}

// The half tiles of this block: every gridDim.x-th pair. So what all blocks read and write at one time lies side by
// side in memory, in whole pages.
struct TileRange {
  int count;

  __device__ __forceinline__ TileRange(const BlockArgs& args, const Sm90Launch& launch) {
    const bool one_more = blockIdx.x < launch.longer_blocks;
    count = 2 * (launch.block_pairs + (one_more ? 1 : 0));
    const bool has_last =
        launch.longer_blocks == 0 ? blockIdx.x == gridDim.x - 1 : blockIdx.x == launch.longer_blocks - 1;
    if (has_last && args.tiles % 2 != 0) --count;
  }
  __device__ __forceinline__ std::int64_t tile(int index) const {
    return 2 * (blockIdx.x + static_cast<std::int64_t>(index / 2) * gridDim.x) + index % 2;
  }
};

// --- copy ------------------------------------------------------------------------------------------------------------

// Queues the copy of one slab. One thread.
__device__ __forceinline__ void copy_slab(const BlockArgs& args, const Sm90Launch& launch, const CUtensorMap* map,
                                          const TilePlace& place, int channel, char* s_slab, std::uint64_t* s_full) {
  const Sm90Plan& plan = launch.plan;
  sm90::barrier_arrive_expecting(s_full, plan.slab_bytes);
  const auto frame = static_cast<int>(std::int64_t{place.tile_of_item} * Sm90::kHalfFrames - args.left_frames -
                                      plan.lead - launch.pad_samples - args.items.first.x_begin);
#pragma unroll 1
  for (int box = 0; box < plan.boxes; ++box) {
    sm90::copy_box(s_slab + box * plan.tap_stride_bytes, map, s_full, frame + box * args.dilation, channel, place.item);
  }
}

// --- depthwise -------------------------------------------------------------------------------------------------------

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

// `kQuads` quads side by side.
template <typename X, int kQuads>
__device__ __forceinline__ void load_row(float (&samples)[kQuads][4], const char* s_row) {
  if constexpr (sizeof(X) == 4) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) load_quad<X>(samples[i], s_row + 16 * i);
  } else {
    // 16 bytes at a time: rows lie so that these do not meet in a bank.
#pragma unroll
    for (int i = 0; i < kQuads; i += 2) {
      const uint4 both = *reinterpret_cast<const uint4*>(s_row + 8 * i);
      unpack_quad<X>(samples[i], make_uint2(both.x, both.y));
      if (i + 1 < kQuads) unpack_quad<X>(samples[i + 1], make_uint2(both.z, both.w));
    }
  }
}

// Taps and bias of a thread's channel, kept in registers for kernel sizes known when compiled.
template <int kTaps>
struct ThreadTaps {
  float taps[kTaps > 0 ? kTaps : 1];
  float bias;
  const float* d_taps;

  __device__ ThreadTaps(const BlockArgs& args, int channel)
      : bias(args.d_tap_bias[channel]), d_taps(args.d_taps + channel) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) taps[k] = d_taps[static_cast<std::int64_t>(k) * args.in_padded];
  }
};

using HalfQuads = float[Sm90::kHalfFrames / Tile::kQuadFrames][Tile::kQuadFrames];

// One channel's sums over taps, 32 frames; `s_row` is where the channel's row starts.
template <typename X, int kTaps, int kDilation>
__device__ __forceinline__ void sum_taps(const BlockArgs& args, const Sm90Launch& launch, const ThreadTaps<kTaps>& t,
                                         const char* s_row, HalfQuads& z) {
  constexpr int kQuads = Sm90::kHalfFrames / Tile::kQuadFrames;
  constexpr int kQuadBytes = Tile::kQuadFrames * static_cast<int>(sizeof(X));
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
#pragma unroll
    for (int f = 0; f < 4; ++f) z[q][f] = t.bias;
  }
  if constexpr (kDilation > 0 && kTaps > 0) {
    // Causal: what the plan calls `lead`.
    constexpr int kUnit = 16 / static_cast<int>(sizeof(X));
    constexpr int kLead = (kUnit - (kTaps - 1) * kDilation % kUnit) % kUnit;
    float row[kQuads + (kLead + (kTaps - 1) * kDilation + 3) / 4][4];
    load_row<X>(row, s_row + launch.pad_bytes);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {
#pragma unroll
        for (int f = 0; f < 4; ++f) {
          const int sample = kLead + f + k * kDilation;
          z[q][f] = fmaf(t.taps[k], row[q + sample / 4][sample % 4], z[q][f]);
        }
      }
    }
  } else if constexpr (kTaps > 0) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) {
      float samples[kQuads][4];
      load_row<X>(samples, s_row + launch.pad_bytes + k * launch.tap_stride_bytes);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
#pragma unroll
        for (int f = 0; f < 4; ++f) z[q][f] = fmaf(t.taps[k], samples[q][f], z[q][f]);
      }
    }
  } else {
    constexpr int kAtOnce = 4;                                     // quads that share a tap's load
    constexpr int kTapsAQuad = kDilation > 0 ? 4 / kDilation : 1;  // taps that a window of two quads serves
#pragma unroll
    for (int first = 0; first < kQuads; first += kAtOnce) {
      const char* s_quad[kAtOnce];
      float window[kAtOnce][2][4];
#pragma unroll
      for (int q = 0; q < kAtOnce; ++q) {
        s_quad[q] = s_row + launch.quad_bytes[first + q];
        if constexpr (kDilation > 0) load_quad<X>(window[q][0], s_quad[q]);
      }
      const float* d_tap = t.d_taps;
      const int skipped = kDilation > 0 ? launch.lead / (kDilation > 0 ? kDilation : 1) : 0;
#pragma unroll 1
      for (int k = -skipped; k < args.taps; k += kTapsAQuad) {
#pragma unroll
        for (int q = 0; q < kAtOnce; ++q) {
          if constexpr (kDilation > 0) {
            s_quad[q] += kQuadBytes;
            if (k + 1 < args.taps) load_quad<X>(window[q][1], s_quad[q]);
          } else {
            load_quad<X>(window[q][0], s_quad[q]);
            s_quad[q] += launch.tap_stride_bytes;
          }
        }
#pragma unroll
        for (int j = 0; j < kTapsAQuad; ++j) {
          if (k + j < 0) continue;
          if (k + j >= args.taps) break;
          const float tap = *d_tap;
          d_tap += args.in_padded;
#pragma unroll
          for (int q = 0; q < kAtOnce; ++q) {
#pragma unroll
            for (int f = 0; f < 4; ++f) {
              z[first + q][f] = fmaf(tap, window[q][(f + j * kDilation) / 4][(f + j * kDilation) % 4], z[first + q][f]);
            }
          }
        }
        if constexpr (kDilation > 0) {
#pragma unroll
          for (int q = 0; q < kAtOnce; ++q) {
#pragma unroll
            for (int f = 0; f < 4; ++f) window[q][0][f] = window[q][1][f];
          }
        }
      }
    }
  }
}

// Keeps half of a lane's pairs of frames and sends the other half to the lane that keeps those.
template <int kHalf>
__device__ __forceinline__ void halve_pairs(std::uint32_t (&pairs)[16], int lane) {
  const bool upper = (lane & (2 * kHalf)) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const std::uint32_t sent = upper ? pairs[i] : pairs[i + kHalf];
    const std::uint32_t kept = upper ? pairs[i + kHalf] : pairs[i];
    pairs[i] = larger_magnitudes(kept, __shfl_xor_sync(0xffffffffu, sent, 2 * kHalf));
  }
}

// The largest magnitude of frame `lane` over the warp's 32 channels, cut to bfloat16: its power of two is all that a
// scale needs. The bits of a float32.
__device__ __forceinline__ std::uint32_t largest_of_frame(const HalfQuads& a, int lane) {
  std::uint32_t pairs[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    pairs[i] = __byte_perm(__float_as_uint(a[i / 2][i % 2 * 2]), __float_as_uint(a[i / 2][i % 2 * 2 + 1]), 0x7632);
  }
  halve_pairs<8>(pairs, lane);
  halve_pairs<4>(pairs, lane);
  halve_pairs<2>(pairs, lane);
  halve_pairs<1>(pairs, lane);
  pairs[0] = larger_magnitudes(pairs[0], __shfl_xor_sync(0xffffffffu, pairs[0], 1));
  return (lane % 2 == 0 ? pairs[0] << 16 : pairs[0]) & 0x7fff0000u;
}

// Fills a slab from global memory, one warp; frames that are not real become zeros.
template <typename X>
__device__ __forceinline__ void gather_slab(const BlockArgs& args, const Sm90Launch& launch, char* s_slab,
                                            std::int64_t tile, int channel) {
  constexpr int kAtOnce = 16;  // loads in flight
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row_samples = launch.row_bytes / static_cast<int>(sizeof(X));
  const int frames = launch.segment_samples;
  for (int segment = 0; segment < args.tile_segments; ++segment) {
    const Quad quad = quad_at(args, tile, segment * (args.segment_frames / Tile::kQuadFrames));
    Item item;
    if (quad.item >= 0) item = item_at<sizeof(X), sizeof(X)>(args.items, quad.item);
    for (int box = 0; box < launch.plan.boxes; ++box) {
      const std::int64_t first = quad.frame - args.left_frames + static_cast<std::int64_t>(box) * args.dilation;
      X* s_rows = reinterpret_cast<X*>(s_slab + box * launch.tap_stride_bytes) + segment * frames;
      for (int base = 0; base < frames; base += 32) {
        const std::int64_t t = first + base + lane;
        const bool real = t >= item.x_begin && t < item.x_end;
        const X* x = static_cast<const X*>(item.x) + channel * item.x_channel_stride + t;
#pragma unroll 1
        for (int row = 0; row < Sm90::kWarpChannels; row += kAtOnce) {
          X samples[kAtOnce];
#pragma unroll
          for (int c = 0; c < kAtOnce; ++c) {
            samples[c] = real && channel + row + c < args.in_channels ? x[(row + c) * item.x_channel_stride]
                                                                      : from_float<X>(0.0f);
          }
          if (base + lane < frames) {
#pragma unroll
            for (int c = 0; c < kAtOnce; ++c) s_rows[(row + c) * row_samples + base + lane] = samples[c];
          }
        }
      }
    }
  }
  __syncwarp();
}

template <typename X, int kTerms, int kTaps, int kDilation, bool kPointwise, bool kGather>
__device__ __forceinline__ void depthwise_role(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                               const CUtensorMap* map, TileRange range) {
  constexpr bool kSilu = kTaps > 0 && !kPointwise;  // kernels of a compiled size are for SiLU alone
  constexpr std::uint32_t kAllLanes = 0xffffffffu;
  const Sm90Plan& plan = launch.plan;
  const int warp = __shfl_sync(kAllLanes, static_cast<int>(threadIdx.x / 32), 0) - Sm90::kMixWarps;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int team = warp / plan.team_warps;
  const int member = warp - team * plan.team_warps;
  const int channel = member * Sm90::kWarpChannels + lane;
  // Asked for before the copies, behind which they would wait.
  const ThreadTaps<kTaps> taps(args, min(channel, args.in_padded - 1));

  // The first team's first copies go out before all others, so that it can begin while theirs are on their way.
  char* s_ring = s.s_slabs + warp * plan.slots * plan.slab_bytes;
  std::uint64_t* s_full = s.s_slab_full + warp * plan.slots;
  const auto copy = [&](int tile, int slot) {
    if (tile < range.count) {
      copy_slab(args, launch, map, TilePlace(args, launch, range.tile(tile)), member * Sm90::kWarpChannels,
                s_ring + slot * plan.slab_bytes, &s_full[slot]);
    }
  };
  const bool copies = lane == 0 && team < plan.teams && !kGather;
  if (copies) {
    sm90::prefetch_map(map);
#pragma unroll 1
    for (int i = 0; i < plan.slots; ++i) sm90::barrier_init(&s_full[i], 1);
    sm90::fence_barrier_init();
    sm90::wait_for_previous_launch();
    if (team == 0) copy(team, 0);
  }
  __syncthreads();  // all barriers are there
  if (team >= plan.teams) return;
  if constexpr (kGather) sm90::wait_for_previous_launch();
  if (copies && team != 0) copy(team, 0);

  const int row_offset = lane * launch.row_bytes;
  float* s_scales = s.s_scales + warp * Sm90::kHalfFrames;

  // A pair's stage is the next in turn; the plan has at least a stage for every two teams.
  int stage = team / 2;
  std::uint32_t stage_parity = 1;  // of the phase before the first, which counts as complete
  int slot = 0;
  std::uint32_t slot_parity = 0;
  int buffer = 0;
  for (int tile = team; tile < range.count + range.count % 2; tile += plan.teams) {
    HalfQuads a;
    char* s_slab = s_ring + slot * plan.slab_bytes;  // slot stays 0 when the warp gathers: its ring is one slab
    // The last pair may lack its second half; its columns are computed from what lies in the slab, and not stored.
    if constexpr (kGather) {
      if (tile < range.count) gather_slab<X>(args, launch, s_slab, range.tile(tile), member * Sm90::kWarpChannels);
    } else {
      if (tile < range.count) sm90::barrier_wait(&s_full[slot], slot_parity);
      if (copies && tile == team) {
        // The rest of the ring, now that every team's first copies are ahead of it.
#pragma unroll 1
        for (int i = 1; i < plan.slots; ++i) copy(team + i * plan.teams, i);
      }
    }
    sum_taps<X, kTaps, kDilation>(args, launch, taps, s_slab + row_offset, a);
    __syncwarp();  // the warp has read the slab
    if constexpr (!kGather) {
      if (copies) copy(tile + plan.slots * plan.teams, slot);
      if (++slot == plan.slots) {
        slot = 0;
        slot_parity ^= 1;
      }
    }
    const auto activate_all = [&](auto activation) {
#pragma unroll
      for (int q = 0; q < Sm90::kHalfFrames / Tile::kQuadFrames; ++q) {
#pragma unroll
        for (int f = 0; f < Tile::kQuadFrames; ++f) a[q][f] = activation(a[q][f]);
      }
    };
    if constexpr (kSilu) {
      activate_all([](float t) { return silu_of_log2(t); });
    } else if constexpr (!kPointwise) {
      with_activation_of_taps(args.before_mix, activate_all);
    }
    if ((member + 1) * Sm90::kWarpChannels > args.in_channels && channel >= args.in_channels) {
      activate_all([](float) { return 0.0f; });
    }

    std::uint32_t largest = largest_of_frame(a, lane);
    if (plan.team_warps > 1) {
      // Two buffers: a warp writes this one again only after every warp has passed the other's barrier, and so has
      // read.
      std::uint32_t* s_maxima =
          s.s_maxima + (buffer * Sm90::kDepthwiseWarps + team * plan.team_warps) * Sm90::kHalfFrames + lane;
      s_maxima[member * Sm90::kHalfFrames] = largest;
      asm volatile("bar.sync %0, %1;" ::"r"(1 + team), "r"(plan.team_warps * 32) : "memory");
#pragma unroll
      for (int other = 0; other < Tile::kPassChannels / Sm90::kWarpChannels; ++other) {
        if (other < plan.team_warps) largest = max(largest, s_maxima[other * Sm90::kHalfFrames]);
      }
      buffer ^= 1;
    }
    const FrameScale scale = frame_scale(__uint_as_float(largest));
    s_scales[lane] = scale.scale;
    __syncwarp();  // the warp's scales are there; the last ones were read before the barrier above, or the shuffles

    const int side = tile % 2;
    sm90::barrier_wait(&s.s_stage_empty[stage], stage_parity);
    if (member == 0) {
      const int scales = stage + (stage_parity == 1 ? 0 : plan.stages);  // in turn, of twice as many as stages
      reinterpret_cast<float*>(s.s_inverse + scales * Tile::kQuads)[side * Sm90::kHalfFrames + lane] = scale.inverse;
    }
    if (channel < args.in_padded) {
      char* s_terms = s.s_stages + stage * plan.stage_bytes + (channel / 8) * kStrideBytes +
                      side * (Sm90::kHalfFrames / 8) * 128 + (channel % 8) * 16;
      const int term_bytes = args.in_padded / 8 * kStrideBytes;
#pragma unroll
      for (int s16 = 0; s16 < 2; ++s16) {
        // Columns 8*j + 2*q + e of these 16 frames are frames 4*q + 2*j + e: a thread of the mix then holds four frames
        // side by side, and four threads all 16.
        std::uint32_t high[2][4];
        std::uint32_t low[2][4];
#pragma unroll
        for (int q = 0; q < 4; ++q) {
          const float4 factor = reinterpret_cast<const float4*>(s_scales)[4 * s16 + q];
          const float(&quad)[4] = a[4 * s16 + q];
          const SplitPair first = split_pair(quad[0] * factor.x, quad[1] * factor.y);
          const SplitPair second = split_pair(quad[2] * factor.z, quad[3] * factor.w);
          high[0][q] = first.high;
          high[1][q] = second.high;
          low[0][q] = first.low;
          low[1][q] = second.low;
        }
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          char* s_row = s_terms + (2 * s16 + j) * 128;
          *reinterpret_cast<uint4*>(s_row) = make_uint4(high[j][0], high[j][1], high[j][2], high[j][3]);
          if constexpr (kTerms == 2) {
            *reinterpret_cast<uint4*>(s_row + term_bytes) = make_uint4(low[j][0], low[j][1], low[j][2], low[j][3]);
          }
        }
      }
    }
    sm90::fence_for_async_reads();
    __syncwarp();
    if (lane == 0) sm90::barrier_arrive(&s.s_stage_full[stage]);
    stage += (tile + plan.teams) / 2 - tile / 2;
    if (stage >= plan.stages) {
      stage -= plan.stages;
      stage_parity ^= 1;
    }
  }
}

// --- mix -------------------------------------------------------------------------------------------------------------

template <typename Y>
__device__ __forceinline__ void store_quad(Y* y, const float (&quad)[4]);
template <>
__device__ __forceinline__ void store_quad<float>(float* y, const float (&quad)[4]) {
  // Written out: the compiler has been seen to store such a float4 number by number.
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(y), "f"(quad[0]), "f"(quad[1]), "f"(quad[2]),
               "f"(quad[3])
               : "memory");
}
template <>
__device__ __forceinline__ void store_quad<__nv_bfloat16>(__nv_bfloat16* y, const float (&quad)[4]) {
  __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(quad[0], quad[1]), __floats2bfloat162_rn(quad[2], quad[3])};
  *reinterpret_cast<uint2*>(y) = *reinterpret_cast<const uint2*>(pairs);
}
template <>
__device__ __forceinline__ void store_quad<__half>(__half* y, const float (&quad)[4]) {
  __half2 pairs[2] = {__floats2half2_rn(quad[0], quad[1]), __floats2half2_rn(quad[2], quad[3])};
  *reinterpret_cast<uint2*>(y) = *reinterpret_cast<const uint2*>(pairs);
}

// The sums of four frames side by side: row `h` (0, 1: eight rows apart) of quad `part` of this thread's four quads.
struct Finish {
  float row_scale[2];
  float bias[2];

  template <bool kPointwise>
  __device__ __forceinline__ void quad(const BlockArgs& args, const float (&sums)[8][4], const float4& inverse,
                                       int part, int h, float (&y)[4]) const {
    y[0] = fmaf(sums[2 * part][2 * h], inverse.x * row_scale[h], bias[h]);
    y[1] = fmaf(sums[2 * part][2 * h + 1], inverse.y * row_scale[h], bias[h]);
    y[2] = fmaf(sums[2 * part + 1][2 * h], inverse.z * row_scale[h], bias[h]);
    y[3] = fmaf(sums[2 * part + 1][2 * h + 1], inverse.w * row_scale[h], bias[h]);
    if constexpr (kPointwise) {
      with_activation(args.after_mix, [&](auto activation) {
#pragma unroll
        for (int f = 0; f < 4; ++f) y[f] = activation(y[f]);
      });
    }
  }
};

// How results are stored: frame by frame with every check, or whole half tiles a quad at a time, without or with x
// added (a residual).
enum class Store { kAny, kWhole, kWholeAddingX };

// Stores this thread's four quads of a half tile of 32 real frames; `y` and `x` point at the first of them, and quads
// are aligned in both.
template <typename X, bool kAddX>
__device__ __forceinline__ void store_whole_tile(const BlockArgs& args, int side, X* y, const X* x,
                                                 const Finish& finish, const float (&sums)[8][4],
                                                 const float4* s_inverse) {
  constexpr int kApart = 4 * Tile::kQuadFrames;  // frames from one quad of this thread to the next one
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int part = 2 * side + e;
      float quad[4];
      finish.quad<false>(args, sums, s_inverse[4 * part + static_cast<int>(threadIdx.x % 4)], part, h, quad);
      if constexpr (kAddX) {
        float added[4];
        load_quad<X>(added, reinterpret_cast<const char*>(x + e * kApart));
#pragma unroll
        for (int f = 0; f < 4; ++f) quad[f] += added[f];
      }
      store_quad(y + e * kApart, quad);
    }
    y += 8 * args.items.first.y_channel_stride;
    if constexpr (kAddX) x += 8 * args.items.first.x_channel_stride;
  }
}

// Stores any half tile, frame by frame. Rare where speed matters, so it is one loop over numbers put aside in local
// memory: written out it would take the registers that the weights need.
template <typename X, bool kPointwise>
__device__ __forceinline__ void store_any_tile(const BlockArgs& args, std::int64_t tile, int side, int row,
                                               const Finish& finish, const float (&sums)[8][4],
                                               const float4* s_inverse) {
  float quads[4][4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int part = 2 * side + i / 2;
    finish.quad<kPointwise>(args, sums, s_inverse[4 * part + static_cast<int>(threadIdx.x % 4)], part, i % 2, quads[i]);
  }
#pragma unroll 1
  for (int i = 0; i < 4; ++i) {
    const Quad place = quad_at(args, tile, static_cast<int>(threadIdx.x % 4) + 4 * (i / 2));
    if (place.item < 0) continue;
    const Item item = item_at<sizeof(X), sizeof(X)>(args.items, place.item);
    const int own_row = row + 8 * (i % 2);
#pragma unroll 1
    for (int f = 0; f < 4; ++f) {
      const std::int64_t t = place.frame + f;
      if (t >= item.frames) break;
      float value = quads[i][f];
      if (args.residual && t >= item.x_begin && t < item.x_end) {
        value += to_float(static_cast<const X*>(item.x)[own_row * item.x_channel_stride + t]);
      }
      if (t < item.y_begin || t >= item.y_end) value = 0.0f;
      static_cast<X*>(item.y)[own_row * item.y_channel_stride + t] = from_float<X>(value);
    }
  }
}

// The products of one tile. The corrections come first: added to a sum that is already large they would be rounded with
// it again and again.
template <int kTerms, int kSteps, int... kStep>
__device__ __forceinline__ void multiply_terms(float (&sums)[8][4], const uint4 (&high)[kSteps],
                                               const uint4 (&low)[kTerms == 2 ? kSteps : 1], std::uint32_t b,
                                               std::integer_sequence<int, kStep...>) {
  if constexpr (kTerms == 2) {
    (sm90::multiply_add<(kStep > 0), kStep * kStepBytes>(sums, low[kStep], b), ...);
    (sm90::multiply_add<true, (kSteps + kStep) * kStepBytes>(sums, high[kStep], b), ...);
  }
  (sm90::multiply_add<(kTerms == 2 || kStep > 0), kStep * kStepBytes>(sums, high[kStep], b), ...);
}

template <typename X, int kTerms, int kSteps, bool kPointwise, Store kStore>
__device__ __forceinline__ void mix_tiles(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                          TileRange range) {
  const Sm90Plan& plan = launch.plan;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  const int warpgroup = warp / 4;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int blocks_here = min(2, plan.row_blocks - 2 * static_cast<int>(blockIdx.y));
  const int row_block = 2 * static_cast<int>(blockIdx.y) + (blocks_here == 2 ? warpgroup : 0);
  const int row_tile = 4 * row_block + warp % 4;

  // Scale and bias of the warp's own 16 rows.
  float2* s_rows = s.s_rows + 64 * warpgroup + 16 * (warp % 4);
  if (lane < 16) {
    const int row = row_tile * 16 + lane;
    s_rows[lane] = make_float2(args.d_row_scale[row], args.d_mix_bias[row]);
  }
  uint4 high[kSteps];
  uint4 low[kTerms == 2 ? kSteps : 1];
  const auto* weights =
      static_cast<const uint4*>(args.d_mix) + static_cast<std::int64_t>(row_tile) * kSteps * 32 + lane;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    high[step] = weights[step * 32];
    if constexpr (kTerms == 2) low[step] = weights[args.term_bytes / 16 + step * 32];
  }
  __syncthreads();  // all barriers are there

  sm90::wait_for_previous_launch();
  const int start = blocks_here == 2 ? 0 : warpgroup;
  const int step_pairs = blocks_here == 2 ? 1 : 2;
  int stage = start < plan.stages ? start : 0;
  std::uint32_t parity = start < plan.stages ? 0 : 1;
  for (int pair = start; 2 * pair < range.count; pair += step_pairs) {
    const char* s_stage = s.s_stages + stage * plan.stage_bytes;
    sm90::barrier_wait(&s.s_stage_full[stage], parity);
    float sums[8][4];
    // The same in all lanes, which the compiler does not see by itself: descriptors then live in uniform registers.
    const std::uint32_t b = __shfl_sync(0xffffffffu, sm90::operand(s_stage, kStrideBytes), 0);
    sm90::products_begin();
    multiply_terms<kTerms, kSteps>(sums, high, low, b, std::make_integer_sequence<int, kSteps>());
    sm90::products_commit();
    sm90::products_wait<0>();
    // The stage is free. Its scales are not yet: whoever computes the tile that takes their place first waits for this
    // warp to be through with another tile of this stage.
    __syncwarp();
    if (lane == 0) sm90::barrier_arrive(&s.s_stage_empty[stage]);
    const float4* s_inverse = s.s_inverse + (stage + static_cast<int>(parity) * plan.stages) * Tile::kQuads;
    for (int i = 0; i < step_pairs; ++i) {
      if (++stage == plan.stages) {
        stage = 0;
        parity ^= 1;
      }
    }
    if (row_tile * 16 >= args.out_channels) continue;
    const float2 first = s_rows[lane / 4];
    const float2 second = s_rows[lane / 4 + 8];
    const Finish finish{{first.x, second.x}, {first.y, second.y}};
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      if (2 * pair + side >= range.count) break;
      const std::int64_t tile = range.tile(2 * pair + side);
      if constexpr (kStore == Store::kAny) {
        store_any_tile<X, kPointwise>(args, tile, side, row_tile * 16 + lane / 4, finish, sums, s_inverse);
      } else {
        const TilePlace place(args, launch, tile);
        const int row = row_tile * 16 + lane / 4;
        const int frame = Tile::kQuadFrames * (lane % 4);
        const Item& item = args.items.first;
        X* y = static_cast<X*>(item.y) + place.item * args.items.y_stride + row * item.y_channel_stride +
               std::int64_t{place.tile_of_item} * Sm90::kHalfFrames + frame;
        const X* x = static_cast<const X*>(item.x) + place.item * args.items.x_stride + row * item.x_channel_stride +
                     std::int64_t{place.tile_of_item} * Sm90::kHalfFrames + frame;
        store_whole_tile<X, kStore == Store::kWholeAddingX>(args, side, y, x, finish, sums, s_inverse);
      }
    }
  }
}

template <typename X, int kTerms, bool kPointwise, Store kStore>
__device__ __forceinline__ void mix_role(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                         TileRange range) {
  switch (args.in_padded / Tile::kStepChannels) {
    case 1:
      return mix_tiles<X, kTerms, 1, kPointwise, kStore>(args, launch, s, range);
    case 2:
      return mix_tiles<X, kTerms, 2, kPointwise, kStore>(args, launch, s, range);
    case 4:
      return mix_tiles<X, kTerms, 4, kPointwise, kStore>(args, launch, s, range);
    default:
      return mix_tiles<X, kTerms, 8, kPointwise, kStore>(args, launch, s, range);
  }
}

// --- kernel ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ void set_up_stages(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s) {
  const int thread = static_cast<int>(threadIdx.x) - 32 * Sm90::kMixWarps;
  if (thread == 32 * Sm90::kDepthwiseWarps - 1) {
    const bool stages_shared = launch.plan.row_blocks - 2 * static_cast<int>(blockIdx.y) >= 2;
#pragma unroll 1
    for (int i = 0; i < launch.plan.stages; ++i) {
      sm90::barrier_init(&s.s_stage_full[i], 2 * launch.plan.team_warps);
      sm90::barrier_init(&s.s_stage_empty[i], stages_shared ? 8 : 4);
    }
    sm90::fence_barrier_init();
  }
  if (launch.plan.team_warps * Sm90::kWarpChannels < args.in_padded) {
    // Channels that no warp computes: zeros for good, against weights of zero.
#pragma unroll 1
    for (int i = thread; i < launch.plan.stages * launch.plan.stage_bytes / 16; i += 32 * Sm90::kDepthwiseWarps) {
      reinterpret_cast<uint4*>(s.s_stages)[i] = make_uint4(0, 0, 0, 0);
    }
    sm90::fence_for_async_reads();
  }
}

template <typename X, int kTerms, int kTaps, int kDilation, bool kPointwise, bool kGather, Store kStore>
__global__ void __launch_bounds__(Sm90::kThreads, 1)
    sm90_block(const __grid_constant__ BlockArgs args, const __grid_constant__ Sm90Launch launch,
               const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) char s_memory[];
  sm90::allow_next_launch();
  const SharedMemory s = divide(s_memory, launch.plan);
  const TileRange range(args, launch);
  const int warp = static_cast<int>(threadIdx.x / 32);
  // The mix goes straight to its weights; the depthwise sets up what both meet in. Either role passes one barrier of
  // the whole block before it uses that.
  if (warp < Sm90::kMixWarps) {
    sm90::take_registers<Sm90::kMixRegisters>();
    mix_role<X, kTerms, kPointwise, kStore>(args, launch, s, range);
  } else {
    sm90::give_registers<Sm90::kDepthwiseRegisters>();
    set_up_stages(args, launch, s);
    depthwise_role<X, kTerms, kTaps, kDilation, kPointwise, kGather>(args, launch, s, &map, range);
  }
#else
  // Code for other cards holds no body. This static shared memory, which the body has none of, tells the host.
  __shared__ volatile int s_absent;
  s_absent = static_cast<int>(args.taps + launch.plan.taps + map.opaque[0]);
#endif
}

// --- launch ----------------------------------------------------------------------------------------------------------

using Kernel = void (*)(BlockArgs, Sm90Launch, CUtensorMap);

// The kernels of one precision. Which of a layer's runs depends on the items of a launch; all give the same bits,
// because their arithmetic is the same.
template <typename X, int kTerms>
Kernel kernel_for_any(const Sm90Plan& plan, bool gather) {
  if (plan.pointwise) {
    return gather ? sm90_block<X, kTerms, 1, 1, true, true, Store::kAny>
                  : sm90_block<X, kTerms, 1, 1, true, false, Store::kAny>;
  }
  switch (plan.dilation) {
    case 1:
      return gather ? sm90_block<X, kTerms, 0, 1, false, true, Store::kAny>
                    : sm90_block<X, kTerms, 0, 1, false, false, Store::kAny>;
    case 2:
      return gather ? sm90_block<X, kTerms, 0, 2, false, true, Store::kAny>
                    : sm90_block<X, kTerms, 0, 2, false, false, Store::kAny>;
    default:
      return gather ? sm90_block<X, kTerms, 0, 0, false, true, Store::kAny>
                    : sm90_block<X, kTerms, 0, 0, false, false, Store::kAny>;
  }
}

template <typename X, int kTerms, Store kStore>
Kernel kernel_for_whole(const Sm90Plan& plan) {
  switch (plan.taps * 4 + plan.dilation) {
    case 5 * 4 + 2:
      return sm90_block<X, kTerms, 5, 2, false, false, kStore>;
    case 5 * 4 + 1:
      return sm90_block<X, kTerms, 5, 1, false, false, kStore>;
    case 5 * 4:
      return sm90_block<X, kTerms, 5, 0, false, false, kStore>;
    case 3 * 4 + 2:
      return sm90_block<X, kTerms, 3, 2, false, false, kStore>;
    case 3 * 4 + 1:
      return sm90_block<X, kTerms, 3, 1, false, false, kStore>;
    default:
      return sm90_block<X, kTerms, 3, 0, false, false, kStore>;
  }
}

template <typename X, int kTerms>
Kernel kernel_of(const Sm90Plan& plan, bool gather, Store store) {
  switch (store) {
    case Store::kWhole:
      return kernel_for_whole<X, kTerms, Store::kWhole>(plan);
    case Store::kWholeAddingX:
      return kernel_for_whole<X, kTerms, Store::kWholeAddingX>(plan);
    default:
      return kernel_for_any<X, kTerms>(plan, gather);
  }
}

Kernel kernel_of(const Sm90Plan& plan, const BlockOptions& options, bool gather, Store store) {
  const bool two_terms = options.math == Math::kFp32;
  switch (options.x) {
    case Element::kBfloat16:
      return two_terms ? kernel_of<__nv_bfloat16, 2>(plan, gather, store)
                       : kernel_of<__nv_bfloat16, 1>(plan, gather, store);
    case Element::kFloat16:
      return two_terms ? kernel_of<__half, 2>(plan, gather, store) : kernel_of<__half, 1>(plan, gather, store);
    case Element::kFloat32:
      break;
  }
  return two_terms ? kernel_of<float, 2>(plan, gather, store) : kernel_of<float, 1>(plan, gather, store);
}

// The driver's encoder of tensor maps, looked up once, so that the program needs no libcuda when it is linked.
PFN_cuTensorMapEncodeTiled_v12000 map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
#else
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found);
#endif
    return found == cudaDriverEntryPointSuccess ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)
                                                : nullptr;
  }();
  return encoder;
}

// Describes x as [items, channels, frames] to the copy engine. False when it cannot be: bases and strides must be
// multiples of 16 bytes, extents 32 bits.
bool describe_x(const BlockArgs& args, const Sm90Plan& plan, Element element, CUtensorMap& map) {
  const Item& first = args.items.first;
  const std::int64_t bytes = element_bytes(element);
  const auto* base = static_cast<const char*>(first.x) + first.x_begin * bytes;
  const std::int64_t frames = first.x_end - first.x_begin;
  const std::int64_t channel_bytes = first.x_channel_stride * bytes;
  // One item: its stride is never used, but must be valid.
  const std::int64_t item_bytes = args.items.count > 1 ? args.items.x_stride * bytes : 16;
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  if (!plan.bulk || args.items.table != nullptr || args.tile_segments != 1 || map_encoder() == nullptr) return false;
  if (first.x_begin * bytes % 16 != 0) return false;
  if (reinterpret_cast<std::uintptr_t>(base) % 16 != 0 || channel_bytes % 16 != 0 || item_bytes % 16 != 0) return false;
  if (frames < 1 || frames >= kMost || args.items.count >= kMost || channel_bytes < 0 || item_bytes < 0) return false;
  if (first.frames - first.x_begin >= kMost || channel_bytes >= kMost << 9 || item_bytes >= kMost << 9) return false;

  const cuuint64_t extents[3] = {static_cast<cuuint64_t>(frames), static_cast<cuuint64_t>(args.in_channels),
                                 static_cast<cuuint64_t>(args.items.count)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(channel_bytes), static_cast<cuuint64_t>(item_bytes)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(plan.box_frames), Sm90::kWarpChannels, 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUtensorMapDataType type = element == Element::kFloat32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : element == Element::kBfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                                   : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return map_encoder()(&map, type, 3, const_cast<char*>(base), extents, strides, box, steps,
                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                       CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Whether every half tile is of 32 real frames, its quads aligned in y, and in x when that is added.
bool all_whole(const BlockArgs& args, Element element) {
  const Item& first = args.items.first;
  const std::int64_t quad_bytes = Tile::kQuadFrames * element_bytes(element);
  const auto aligned = [&](const void* data, std::int64_t channel_stride, std::int64_t item_stride) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(quad_bytes) == 0 &&
           channel_stride % Tile::kQuadFrames == 0 && (args.items.count == 1 || item_stride % Tile::kQuadFrames == 0);
  };
  if (args.items.table != nullptr || first.frames % Sm90::kHalfFrames != 0) return false;
  if (first.y_begin > 0 || first.y_end < first.frames) return false;
  if (!aligned(first.y, first.y_channel_stride, args.items.y_stride)) return false;
  if (!args.residual) return true;
  return first.x_begin <= 0 && first.x_end >= first.frames &&
         aligned(first.x, first.x_channel_stride, args.items.x_stride);
}

// The division of TilePlace: with 2^shift >= item_tiles the smallest such, multiplier = 2^32 * (2^shift - d) / d + 1.
void set_item_division(const BlockArgs& args, Sm90Launch& launch) {
  const auto divisor = static_cast<std::uint64_t>(args.item_tiles);
  while ((std::uint64_t{1} << launch.item_shift) < divisor) ++launch.item_shift;
  launch.item_multiplier =
      static_cast<std::uint32_t>(((((std::uint64_t{1} << launch.item_shift) - divisor) << 32) / divisor) + 1);
}

}  // namespace

cudaError_t prepare_sm90_block(const Sm90Plan& plan, const BlockOptions& options) noexcept {
  const auto allow = [&](bool gather, Store store) {
    const auto* kernel = reinterpret_cast<const void*>(kernel_of(plan, options, gather, store));
    cudaFuncAttributes attributes;
    const cudaError_t found = cudaFuncGetAttributes(&attributes, kernel);
    if (found != cudaSuccess) return found;
    if (attributes.sharedSizeBytes != 0) return cudaErrorInvalidKernelImage;  // no body in this build: see the kernel
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Sm90::kSharedBytes);
  };
  cudaError_t error = allow(false, Store::kAny);
  if (error == cudaSuccess) error = allow(true, Store::kAny);
  if (error == cudaSuccess && plan.taps != 0) error = allow(false, Store::kWhole);
  if (error == cudaSuccess && plan.taps != 0) error = allow(false, Store::kWholeAddingX);
  return error;
}

cudaError_t launch_sm90_block(const BlockArgs& block_args, const Sm90Plan& plan, const BlockOptions& options,
                              cudaStream_t stream) noexcept {
  BlockArgs args = block_args;
  args.divide(Sm90::kHalfFrames);
  Sm90Launch launch;
  launch.plan = plan;
  CUtensorMap map = {};
  const bool gather = !describe_x(args, plan, options.x, map);
  const std::int64_t bytes = element_bytes(options.x);
  launch.row_bytes = plan.row_bytes;
  if (gather) {
    // A warp's ring is one slab then. Segments lie side by side in its rows, each with a window of its own.
    const bool no_halo = plan.tap_rows || plan.pointwise;
    const std::int64_t window =
        no_halo ? args.segment_frames : plan.row_bytes / bytes - (Sm90::kHalfFrames - args.segment_frames);
    const std::int64_t row_room = std::int64_t{plan.slots} * plan.slab_bytes / (plan.boxes * Sm90::kWarpChannels);
    const std::int64_t fit = std::max<std::int64_t>(row_room / (window * bytes), 1);
    if (args.tile_segments > fit) {
      args.tile_segments = static_cast<std::int32_t>(fit);
      args.tiles = (args.items.count + fit - 1) / fit;
    }
    launch.segment_samples = static_cast<std::int32_t>(window);
    launch.row_bytes =
        static_cast<std::int32_t>(std::max(args.tile_segments * window * bytes, std::int64_t{plan.row_bytes}));
  }
  launch.tap_stride_bytes =
      plan.tap_rows ? Sm90::kWarpChannels * launch.row_bytes : static_cast<std::int32_t>(args.dilation * bytes);
  if (!gather) {
    launch.pad_bytes = plan.pad_bytes;
    launch.pad_samples = static_cast<std::int32_t>(plan.pad_bytes / bytes);
    launch.lead = plan.lead % Tile::kQuadFrames;
  }
  for (int quad = 0; quad < Sm90::kHalfFrames / Tile::kQuadFrames; ++quad) {
    const int segment_quads = args.segment_frames / Tile::kQuadFrames;
    const int segment = gather ? quad / segment_quads : 0;
    const int first = gather ? segment * launch.segment_samples + quad % segment_quads * Tile::kQuadFrames
                             : launch.pad_samples + plan.lead - launch.lead + quad * Tile::kQuadFrames;
    // A column of no item reads anything.
    launch.quad_bytes[quad] = segment < args.tile_segments ? static_cast<std::int32_t>(first * bytes) : 0;
  }
  Store store = Store::kAny;
  if (!gather && plan.taps != 0 && all_whole(args, options.x)) {
    store = args.residual ? Store::kWholeAddingX : Store::kWhole;
  }
  set_item_division(args, launch);
  if (args.tiles > std::int64_t{1} << 30) return cudaErrorInvalidValue;  // more frames than any card holds
  int device = 0;
  int processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const std::int64_t pairs = (args.tiles + 1) / 2;
  const int row_parts = (plan.row_blocks + 1) / 2;
  const auto columns = std::clamp<std::int64_t>(pairs, 1, std::max(processors / row_parts, 1));
  launch.block_pairs = static_cast<std::int32_t>(pairs / columns);
  launch.longer_blocks = static_cast<std::uint32_t>(pairs % columns);

  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(columns), static_cast<unsigned>(row_parts));
  config.blockDim = dim3(Sm90::kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel_of(plan, options, gather, store), args, launch, map);
}

}  // namespace halotap::kernels::cuda
