// z[c,t] = tap_bias[c] + sum_k taps[c,k] * x[c, t + k*dilation - left],   a = before(z)
// y[o,t] = after(mix_bias[o] + sum_c mix[o,c] * a[c,t])  (+ x[o,t])
//
// x [in_channels, frames], y [out_channels, frames], frames fastest. in_channels: a multiple of 16 up to 128.
//
// Grid: x divides the tiles, 64 frames (32 where halos are long), one block an SM; y the rows of y, 128 a block.
// 20 warps, which meet in shared memory through barriers:
//   depthwise  12 warps in crews, each of which computes a tile at a time; in a crew, teams, which take turns over the
//              parts of its tiles, 16 frames each; a warp of a team computes 32 channels, a thread one channel, taps in
//              registers. A slab, x of a tile with its halo, is on the way into each slot of the crew's ring that is
//              not read; whoever reads one last asks for the next. Results are scaled, split into two float16 terms and
//              stored in a stage, in tiles [channels/8][columns/8][8 channels][8 columns]. The scale is the same for
//              every frame that it fits, which the team finds out with one barrier; where it does not fit a frame, the
//              team computes its part again, scaled frame by frame.
//   mix        2 warpgroups: 64 rows of weights each, in registers for good; m64n64k16 products with the terms of a
//              stage, corrections first so that one accumulator rounds as well as two; then scale, bias, stores of 64
//              bytes a row.
// Items that bulk copies cannot read (a table of them, unaligned rows) are copied sample by sample, asynchronously too,
// into the same slabs, so their bits are the same.
//
// A frame's sum runs over channels in steps of 16: low weights, low activations, then both high parts.
// Shared memory and registers: sm90_plan.hpp.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <utility>

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

  // tile / item_tiles by multiplication: (tile * (2^32 + multiplier)) >> (32 + shift), exact for tile < 2^31.
  __device__ __forceinline__ TilePlace(const BlockArgs& args, const Sm90Launch& launch, std::int64_t tile) {
    const auto index = static_cast<std::uint32_t>(tile);
    item = static_cast<int>((__umulhi(index, launch.item_multiplier) + index) >> launch.item_shift);
    tile_of_item = static_cast<int>(index) - item * static_cast<int>(args.item_tiles);
  }
};

struct SharedMemory {
  char* s_slabs;               // [crews][slots]
  char* s_stages;              // [crews][stages]
  float* s_inverse;            // [crews][stages][64 columns]: what undoes the scale of each frame
  int* s_scaled;               // [crews][stages][4 parts]: whether that is of use, or all have the common scale
  std::uint32_t* s_maxima;     // [depthwise warps][16]
  float* s_scales;             // [depthwise warps][16]
  float2* s_rows;              // [128]: scale and bias
  std::uint64_t* s_slab_full;  // [crews][slots]
  std::uint64_t* s_slab_empty;
  std::uint64_t* s_stage_full;  // [crews][stages]
  std::uint64_t* s_stage_empty;
};

__device__ __forceinline__ SharedMemory divide(char* s_base, const Sm90Plan& plan) {
  SharedMemory s;
  s.s_slabs = s_base;
  s.s_stages = s.s_slabs + plan.crews * plan.slots * plan.slab_bytes;
  s.s_inverse = reinterpret_cast<float*>(s.s_stages + plan.crews * plan.stages * plan.stage_bytes);
  s.s_scaled = reinterpret_cast<int*>(s.s_inverse + Sm90::kMaxStages * Tile::kFrames);
  s.s_maxima = reinterpret_cast<std::uint32_t*>(s.s_scaled + Sm90::kMaxStages * Sm90::kMaxParts);
  s.s_scales = reinterpret_cast<float*>(s.s_maxima + Sm90::kDepthwiseWarps * Sm90::kPartFrames);
  s.s_rows = reinterpret_cast<float2*>(s.s_scales + Sm90::kDepthwiseWarps * Sm90::kPartFrames);
  s.s_slab_full = reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(s.s_rows) + Sm90::kRowBytes);
  s.s_slab_empty = s.s_slab_full + Sm90::kMaxSlabs;
  s.s_stage_full = s.s_slab_empty + Sm90::kMaxSlabs;
  s.s_stage_empty = s.s_stage_full + Sm90::kMaxStages;
  return s;
}

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

// --- copy ------------------------------------------------------------------------------------------------------------

// Queues the copy of a tile's slab. One thread.
__device__ __forceinline__ void copy_slab(const BlockArgs& args, const Sm90Launch& launch, const CUtensorMap* map,
                                          std::int64_t tile, char* s_slab, std::uint64_t* s_full) {
  const Sm90Plan& plan = launch.plan;
  sm90::barrier_arrive_expecting(s_full, plan.slab_bytes);
  const TilePlace place(args, launch, tile);
  const auto frame = static_cast<int>(std::int64_t{place.tile_of_item} * plan.tile_frames - args.left_frames -
                                      launch.before_samples - args.items.first.x_begin);
#pragma unroll 1
  for (int box = 0; box < plan.boxes; ++box) {
    sm90::copy_box(s_slab + box * plan.tap_stride_bytes, map, s_full, frame + box * args.dilation, 0, place.item);
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

// A part of one channel: four quads of frames.
constexpr int kQuads = Sm90::kPartFrames / Tile::kQuadFrames;
using Part = float[kQuads][Tile::kQuadFrames];

// Adds four taps to the sums of one quad. Sample (j, f) of tap j lies f + j * kApart after the quad's first.
template <typename X, int kApart>
__device__ __forceinline__ void add_near_taps(const float (&taps)[4], int first, int end, const char* s_quad,
                                              float (&z)[4]) {
  constexpr int kReach = (3 + 3 * kApart) / 4 + 1;  // quads
  float window[kReach][4];
#pragma unroll
  for (int i = 0; i < kReach; ++i) {
    // Only what the last tap of these reaches.
    if (4 * i <= 3 + (end - 1) * kApart) load_quad<X>(window[i], s_quad + i * (4 * static_cast<int>(sizeof(X))));
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j < first || j >= end) continue;
#pragma unroll
    for (int f = 0; f < 4; ++f) z[f] = fmaf(taps[j], window[(f + j * kApart) / 4][(f + j * kApart) % 4], z[f]);
  }
}

// One channel's sums over taps of part `part` of a tile; `s_row` is where the channel's row starts. Taps in a loop,
// four at a time: from one four to the next it is a whole number of quads, so where in a quad a tap's first sample lies
// depends on its place among the four and on kPhase, dilation % 4, alone. kNear: the dilation is kPhase itself, and the
// four share what they read.
template <typename X, int kPhase, bool kNear>
__device__ __forceinline__ void sum_any_taps(const BlockArgs& args, const Sm90Launch& launch, const ThreadTaps<0>& t,
                                             const char* s_row, int part, Part& z) {
  constexpr int kQuadBytes = Tile::kQuadFrames * static_cast<int>(sizeof(X));
  const char* s_quad[kQuads];
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
#pragma unroll
    for (int f = 0; f < 4; ++f) z[q][f] = t.bias;
    s_quad[q] = s_row + launch.quad_bytes[kQuads * part + q];
  }
  // Bytes from a tap to the next but for what kPhase says, and from four taps to the next four.
  const int tap_bytes = launch.tap_stride_bytes - kPhase * static_cast<int>(sizeof(X));
  const int group_bytes = 4 * launch.tap_stride_bytes;
  const auto load_taps = [&](float(&taps)[4], int k) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (k + j >= 0 && k + j < args.taps) taps[j] = t.d_taps[static_cast<std::int64_t>(k + j) * args.in_padded];
    }
  };
  float next[4];
  load_taps(next, -launch.skipped_taps);
#pragma unroll 1
  for (int k = -launch.skipped_taps; k < args.taps; k += 4) {
    const float taps[4] = {next[0], next[1], next[2], next[3]};
    load_taps(next, k + 4);
    const int begin = -k;
    const int end = args.taps - k;
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      if constexpr (kNear) {
        add_near_taps<X, kPhase>(taps, begin, end, s_quad[q], z[q]);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (j < begin || j >= end) continue;
          constexpr int kPhases[4] = {0, kPhase, 2 * kPhase, 3 * kPhase};
          const char* s_samples = s_quad[q] + j * tap_bytes + kPhases[j] / 4 * kQuadBytes;
          float window[2][4];
          load_quad<X>(window[0], s_samples);
          if (kPhases[j] % 4 != 0) load_quad<X>(window[1], s_samples + kQuadBytes);
#pragma unroll
          for (int f = 0; f < 4; ++f) {
            z[q][f] = fmaf(taps[j], window[(f + kPhases[j] % 4) / 4][(f + kPhases[j]) % 4], z[q][f]);
          }
        }
      }
      s_quad[q] += group_bytes;
    }
  }
}

// The same, with compiled taps where there are. kDilation says how rows are read. Compiled taps: 1 and 2 are the
// dilation itself, whose windows are read into registers; 0 is any that keeps taps aligned. Taps in a loop: 1 to 3 are
// the dilation itself, 4 to 7 stand for larger ones with this remainder by 4.
template <typename X, int kTaps, int kDilation>
__device__ __forceinline__ void sum_taps(const BlockArgs& args, const Sm90Launch& launch, const ThreadTaps<kTaps>& t,
                                         const char* s_row, int part, Part& z) {
  if constexpr (kTaps == 0) {
    sum_any_taps<X, kDilation % 4, (kDilation < 4)>(args, launch, t, s_row, part, z);
  } else {
    s_row += launch.pad_bytes + part * (Sm90::kPartFrames * static_cast<int>(sizeof(X)));
#pragma unroll
    for (int q = 0; q < 4; ++q) {
#pragma unroll
      for (int f = 0; f < 4; ++f) z[q][f] = t.bias;
    }
    if constexpr (kDilation > 0) {
      // Causal: what the plan calls `lead` and the taps that it skips.
      constexpr int kUnit = 16 / static_cast<int>(sizeof(X));
      constexpr int kLead = (kUnit - (kTaps - 1) * kDilation % kUnit) % kUnit;
      float row[4 + (kLead + (kTaps - 1) * kDilation + 3) / 4][4];
      load_row<X>(row, s_row);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
#pragma unroll
        for (int k = 0; k < kTaps; ++k) {
#pragma unroll
          for (int f = 0; f < 4; ++f) {
            const int sample = kLead + f + k * kDilation;
            z[q][f] = fmaf(t.taps[k], row[q + sample / 4][sample % 4], z[q][f]);
          }
        }
      }
    } else {
#pragma unroll
      for (int k = 0; k < kTaps; ++k) {
        Part samples;
        load_row<X>(samples, s_row + k * launch.tap_stride_bytes);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
#pragma unroll
          for (int f = 0; f < 4; ++f) z[q][f] = fmaf(t.taps[k], samples[q][f], z[q][f]);
        }
      }
    }
  }
}

// The same sum for one frame, the one way for every layer.
template <typename X, int kTaps>
__device__ __forceinline__ float sum_taps_of_frame(const BlockArgs& args, const Sm90Launch& launch,
                                                   const ThreadTaps<kTaps>& t, const char* s_row, int quad, int frame) {
  const char* s_sample = s_row + launch.quad_bytes[quad] + launch.skipped_taps * launch.tap_stride_bytes +
                         frame * static_cast<int>(sizeof(X));
  const float* d_tap = t.d_taps;
  float z = t.bias;
#pragma unroll 1
  for (int k = 0; k < args.taps; ++k) {
    z = fmaf(*d_tap, to_float(*reinterpret_cast<const X*>(s_sample)), z);
    s_sample += launch.tap_stride_bytes;
    d_tap += args.in_padded;
  }
  return z;
}

// What a thread saw of the magnitudes of its 16 results, scaled and rounded to float16.
struct Magnitudes {
  std::uint32_t most = 0;         // of either half of a pair
  std::uint32_t loud_enough = 0;  // a bit for each result: not too quiet for the common scale

  // Pair `index` of 8.
  __device__ __forceinline__ void add(std::uint32_t pair, int index) {
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(most) : "r"(most), "r"(pair));
    const __half2 magnitude = __habs2(*reinterpret_cast<const __half2*>(&pair));
    const std::uint32_t quietest = CommonScale::kQuietest << 16 | CommonScale::kQuietest;
    loud_enough |= __hge2_mask(magnitude, *reinterpret_cast<const __half2*>(&quietest)) & 0x00010001u << index;
  }
  __device__ __forceinline__ bool too_loud() const {
    return (most & 0x7fffu) >= CommonScale::kLoudest || (most >> 16 & 0x7fffu) >= CommonScale::kLoudest;
  }

  static constexpr std::uint32_t kAllLoudEnough = 0x00ff00ffu;
};

// Which warp of which team of which crew this is. Channels: member * 32 + lane.
struct Team {
  int crew;
  int team;  // of the crew
  int member;
  int lane;
  int first_warp;  // of the depthwise

  __device__ __forceinline__ explicit Team(const Sm90Plan& plan) {
    const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0) - Sm90::kMixWarps;
    lane = static_cast<int>(threadIdx.x % 32);
    const int any_team = warp / plan.team_warps;
    first_warp = any_team * plan.team_warps;
    member = warp - first_warp;
    crew = any_team / plan.teams;
    team = any_team - crew * plan.teams;
  }
  __device__ __forceinline__ int barrier(const Sm90Plan& plan) const { return 1 + crew * plan.teams + team; }
};

// Meets the team.
__device__ __forceinline__ void meet_team(const Sm90Plan& plan, const Team& own) {
  if (plan.team_warps == 1) {
    __syncwarp();
  } else {
    asm volatile("bar.sync %0, %1;" ::"r"(own.barrier(plan)), "r"(plan.team_warps * 32) : "memory");
  }
}

// Whether the common scale is known to fit every frame of a part: no magnitude is too large, and in each frame one is
// large enough among the channels of one warp. The whole team.
__device__ __forceinline__ bool common_scale_fits(const Magnitudes& magnitudes, bool counts, const Sm90Plan& plan,
                                                  const Team& own) {
  const bool too_loud = __any_sync(0xffffffffu, counts && magnitudes.too_loud());
  const bool loud_enough =
      __reduce_or_sync(0xffffffffu, counts ? magnitudes.loud_enough : 0u) == Magnitudes::kAllLoudEnough;
  if (plan.team_warps == 1) return loud_enough && !too_loud;
  // One lane of a warp votes for the one answer, more lanes than a team has warps vote against it for the other.
  constexpr std::uint32_t kMostWarps = Tile::kPassChannels / Sm90::kWarpChannels;
  static_assert(kMostWarps < 31);
  const bool vote = own.lane == 0 ? loud_enough : too_loud;
  std::uint32_t votes;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %3, 0;\n"
      "barrier.cta.red.popc.aligned.u32 %0, %1, %2, p;\n"
      "}\n"
      : "=r"(votes)
      : "r"(own.barrier(plan)), "r"(plan.team_warps * 32), "r"(vote ? 1 : 0)
      : "memory");
  return votes >= 1 && votes <= kMostWarps;
}

// A part again, each frame with a scale that fits it. Rare, so the code is short rather than fast. False when
// every frame has the common scale after all (silent ones have): then nothing is stored. The whole team.
template <typename X, int kTerms, int kTaps, bool kPointwise>
__device__ __forceinline__ bool scale_by_frame(const BlockArgs& args, const Sm90Launch& launch,
                                               const ThreadTaps<kTaps>& taps, const SharedMemory& s, const Team& own,
                                               int part, const char* s_row, char* s_terms, float* s_inverse) {
  const Sm90Plan& plan = launch.plan;
  const int channel = own.member * Sm90::kWarpChannels + own.lane;
  const auto result = [&](int frame) {
    float a[1] = {sum_taps_of_frame<X, kTaps>(args, launch, taps, s_row, 4 * part + frame / 4, frame % 4)};
    if constexpr (!kPointwise) {
      with_activation_of_taps(args.before_mix, [&](auto activation) { a[0] = activation(a[0]); });
    }
    return channel < args.in_channels ? a[0] : 0.0f;
  };
  const int own_frame = own.lane % Sm90::kPartFrames;
  std::uint32_t largest = 0;  // of `own_frame`, over all channels: the bits of a float32
#pragma unroll 1
  for (int frame = 0; frame < Sm90::kPartFrames; ++frame) {
    std::uint32_t bits = __float_as_uint(result(frame)) & 0x7fffffffu;
    if (bits > 0x7f800000u) bits = 0;  // a NaN counts as nothing
    bits = __reduce_max_sync(0xffffffffu, bits);
    if (own_frame == frame) largest = bits;
  }
  s.s_maxima[(own.first_warp + own.member) * Sm90::kPartFrames + own_frame] = largest;
  meet_team(plan, own);
  for (int member = 0; member < plan.team_warps; ++member) {
    largest = max(largest, s.s_maxima[(own.first_warp + member) * Sm90::kPartFrames + own_frame]);
  }
  const FrameScale scale = frame_scale_unless_common(__uint_as_float(largest));
  float* s_scales = s.s_scales + (own.first_warp + own.member) * Sm90::kPartFrames;
  s_scales[own_frame] = scale.scale;
  if (own.member == 0) s_inverse[own_frame] = scale.inverse;
  meet_team(plan, own);
  if (__all_sync(0xffffffffu, scale.scale == CommonScale::kScale)) return false;
  if (channel >= args.in_padded) return true;
  const int term_bytes = args.in_padded / 8 * kStrideBytes;
#pragma unroll 1
  for (int pair = 0; pair < Sm90::kPartFrames / 2; ++pair) {
    const SplitPair terms =
        split_pair(result(2 * pair) * s_scales[2 * pair], result(2 * pair + 1) * s_scales[2 * pair + 1]);
    char* s_pair = s_terms + pair % 2 * 128 + pair / 2 * 4;
    *reinterpret_cast<std::uint32_t*>(s_pair) = terms.high;
    if constexpr (kTerms == 2) *reinterpret_cast<std::uint32_t*>(s_pair + term_bytes) = terms.low;
  }
  return true;
}

// Queues the copy of the warp's share of a slab sample by sample: every so many-th row of its own channels.
// Frames that are not real become zeros. The whole warp; every lane arrives at the barrier.
template <typename X>
__device__ __forceinline__ void gather_rows(const BlockArgs& args, const Sm90Launch& launch, const Team& own,
                                            std::int64_t tile, char* s_slab, std::uint64_t* s_full) {
  const Sm90Plan& plan = launch.plan;
  const int first_row = own.member * Sm90::kWarpChannels + own.team;
  const int end_row = (own.member + 1) * Sm90::kWarpChannels;
  const int frames = launch.segment_samples;
#pragma unroll 1
  for (int segment = 0; segment < args.tile_segments; ++segment) {
    const Quad quad = quad_at(args, tile, segment * (args.segment_frames / Tile::kQuadFrames));
    Item item;
    if (quad.item >= 0) item = item_at<sizeof(X), sizeof(X)>(args.items, quad.item);
#pragma unroll 1
    for (int box = 0; box < plan.boxes; ++box) {
      const std::int64_t first =
          quad.frame - args.left_frames - launch.before_samples + static_cast<std::int64_t>(box) * args.dilation;
      char* s_rows = s_slab + box * launch.tap_stride_bytes + first_row * launch.row_bytes +
                     segment * frames * static_cast<int>(sizeof(X));
#pragma unroll 1
      for (int base = own.lane; base < frames; base += 32) {
        const std::int64_t t = first + base;
        const bool real = t >= item.x_begin && t < item.x_end;
        // Something that may be read, where nothing will be.
        const X* x = real ? static_cast<const X*>(item.x) + first_row * item.x_channel_stride + t
                          : static_cast<const X*>(args.d_mix);
        const std::int64_t stride = real ? plan.teams * item.x_channel_stride : 0;
        char* s_sample = s_rows + base * static_cast<int>(sizeof(X));
#pragma unroll 4
        for (int row = first_row; row < end_row; row += plan.teams) {
          const bool there = real && row < args.in_channels;
          if constexpr (sizeof(X) == 4) {
            sm90::copy_sample(s_sample, x, there);
          } else {
            *reinterpret_cast<X*>(s_sample) = there ? *x : from_float<X>(0.0f);
          }
          if (row + plan.teams < args.in_channels) x += stride;
          s_sample += plan.teams * launch.row_bytes;
        }
      }
    }
  }
  if constexpr (sizeof(X) == 4) {
    sm90::barrier_arrive_after_copies(s_full);
  } else {
    sm90::barrier_arrive(s_full);
  }
}

template <typename X, int kTerms, int kTaps, int kDilation, bool kPointwise>
__device__ __forceinline__ void depthwise_role(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                               const CUtensorMap* map, TileRange range) {
  constexpr bool kSilu = kTaps > 0 && !kPointwise;  // kernels of a compiled size are for SiLU alone
  const Sm90Plan& plan = launch.plan;
  const Team own(plan);
  const int channel = own.member * Sm90::kWarpChannels + own.lane;
  // Asked for before the copies, behind which they would wait.
  const ThreadTaps<kTaps> taps(args, min(channel, args.in_padded - 1));

  std::uint64_t* s_slab_full = s.s_slab_full + own.crew * launch.slots;
  std::uint64_t* s_slab_empty = s.s_slab_empty + own.crew * launch.slots;
  char* s_slabs = s.s_slabs + own.crew * (plan.slots * plan.slab_bytes);
  const auto copy = [&](int index, int slot) {
    copy_slab(args, launch, map, range.tile(index), s_slabs + slot * plan.slab_bytes, &s_slab_full[slot]);
  };
  const auto gather = [&](int index, int slot) {
    gather_rows<X>(args, launch, own, range.tile(index), s_slabs + slot * launch.slab_bytes, &s_slab_full[slot]);
  };
  // A crew's first bulk copies go out before all else, by the lane that sets up its ring.
  if (own.team == 0 && own.member == 0 && own.lane == 0 && own.crew < plan.crews) {
#pragma unroll 1
    for (int slot = 0; slot < launch.slots; ++slot) {
      sm90::barrier_init(&s_slab_full[slot], launch.gather ? 32 * plan.teams * plan.team_warps : 1);
      sm90::barrier_init(&s_slab_empty[slot], plan.parts * plan.team_warps);
    }
    sm90::fence_barrier_init();
    if (!launch.gather) {
      sm90::prefetch_map(map);
      sm90::wait_for_previous_launch();
#pragma unroll 1
      for (int slot = 0; slot < launch.slots; ++slot) {
        const int index = own.crew + slot * plan.crews;
        if (index < range.count) copy(index, slot);
      }
    }
  }
  __syncthreads();  // all barriers are there
  if (own.crew >= plan.crews) return;
  if (launch.gather) {
    sm90::wait_for_previous_launch();
#pragma unroll 1
    for (int slot = 0; slot < launch.slots; ++slot) {
      const int index = own.crew + slot * plan.crews;
      if (index < range.count) gather(index, slot);
    }
  }

  RingPlace slot;
  RingPlace stage;
  int part = own.team;  // of the current tile, or beyond; a crew has no more teams than a tile has parts
#pragma unroll 1
  for (int index = own.crew; index < range.count; index += plan.crews) {
    sm90::barrier_wait(&s_slab_full[slot.index], slot.parity);
    const int later = index + launch.slots * plan.crews;
    const int stage_index = own.crew * plan.stages + stage.index;
    bool stage_is_free = false;
#pragma unroll 1
    for (; part < plan.parts; part += plan.teams) {
      const char* s_row = s_slabs + slot.index * launch.slab_bytes + channel * launch.row_bytes;
      // Columns 8*j + 2*q + e of these 16 frames are frames 4*q + 2*j + e: a thread of the mix then holds four frames
      // side by side, and four threads all 16.
      std::uint32_t high[2][4];
      std::uint32_t low[2][4];
      Magnitudes magnitudes;
      Part a;
      sum_taps<X, kTaps, kDilation>(args, launch, taps, s_row, part, a);
      if constexpr (kSilu) {
#pragma unroll
        for (int i = 0; i < Sm90::kPartFrames; ++i) a[i / 4][i % 4] = scaled_silu_of_log2(a[i / 4][i % 4]);
      } else {
        if constexpr (!kPointwise) {
          with_activation_of_taps(args.before_mix, [&](auto activation) {
#pragma unroll
            for (int i = 0; i < Sm90::kPartFrames; ++i) a[i / 4][i % 4] = activation(a[i / 4][i % 4]);
          });
        }
#pragma unroll
        for (int i = 0; i < Sm90::kPartFrames; ++i) a[i / 4][i % 4] *= CommonScale::kScale;
      }
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const SplitPair terms = split_pair(a[q][2 * j], a[q][2 * j + 1]);
          high[j][q] = terms.high;
          low[j][q] = terms.low;
          magnitudes.add(terms.high, 2 * q + j);
        }
      }
      bool scaled = !common_scale_fits(magnitudes, channel < args.in_channels, plan, own);
      // The slab has been read, unless its frames are to be scaled one by one.
      const auto free_slab = [&] {
        if (own.lane != 0) return;
        const bool last = sm90::barrier_arrive_last(&s_slab_empty[slot.index]);
        if (!last || launch.gather || later >= range.count) return;
        sm90::barrier_wait(&s_slab_empty[slot.index], slot.parity);  // over, but now seen to be
        copy(later, slot.index);
      };
      if (!scaled) free_slab();

      char* s_terms = s.s_stages + stage_index * plan.stage_bytes + channel / 8 * kStrideBytes + part * (2 * 128) +
                      channel % 8 * 16;
      if (!stage_is_free) sm90::barrier_wait(&s.s_stage_empty[stage_index], stage.parity ^ 1);
      stage_is_free = true;
      if (channel < args.in_padded) {
        const int term_bytes = args.in_padded / 8 * kStrideBytes;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          *reinterpret_cast<uint4*>(s_terms + j * 128) = make_uint4(high[j][0], high[j][1], high[j][2], high[j][3]);
          if constexpr (kTerms == 2) {
            *reinterpret_cast<uint4*>(s_terms + j * 128 + term_bytes) =
                make_uint4(low[j][0], low[j][1], low[j][2], low[j][3]);
          }
        }
      }
      if (scaled) {
        scaled = scale_by_frame<X, kTerms, kTaps, kPointwise>(
            args, launch, taps, s, own, part, s_row, s_terms,
            s.s_inverse + stage_index * Tile::kFrames + part * Sm90::kPartFrames);
        __syncwarp();
        free_slab();
      }
      if (own.member == 0 && own.lane == 0) s.s_scaled[stage_index * Sm90::kMaxParts + part] = scaled ? 1 : 0;
      sm90::fence_for_async_reads();
      __syncwarp();
      if (own.lane == 0) sm90::barrier_arrive(&s.s_stage_full[stage_index]);
    }
    part -= plan.parts;
    if (launch.gather && later < range.count) {
      sm90::barrier_wait(&s_slab_empty[slot.index], slot.parity);
      gather(later, slot.index);
    }
    slot.advance(launch.slots);
    stage.advance(plan.stages);
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

// The sums of a tile are 8 columns apart in `sums[8]`; a thread has two rows, h = 0, 1, eight apart, and of each 16
// columns, `part`, four frames side by side.
__device__ __forceinline__ void finish_quad(const float (&sums)[8][4], int part, int h, float row_scale, float bias,
                                            float (&y)[4]) {
#pragma unroll
  for (int f = 0; f < 4; ++f) y[f] = fmaf(sums[2 * part + f / 2][2 * h + f % 2], row_scale, bias);
}

// Stores a tile of an item whose frames are all real, whole quads, aligned in y, and in x when that is added.
template <typename X, bool kPointwise>
__device__ __forceinline__ void store_quads(const BlockArgs& args, const TilePlace& place, int tile_frames, int row,
                                            const float2 (&rows)[2], const float (&sums)[8][4]) {
  const Item& item = args.items.first;
  const std::int64_t frame = std::int64_t{place.tile_of_item} * tile_frames + Tile::kQuadFrames * (threadIdx.x % 4);
  // Frames that are left for this thread's first quad and on.
  const auto left = static_cast<int>(min(item.frames - frame, std::int64_t{tile_frames}));
  auto* y = static_cast<X*>(item.y) + place.item * args.items.y_stride + row * item.y_channel_stride + frame;
  const auto* x =
      static_cast<const X*>(item.x) + place.item * args.items.x_stride + row * item.x_channel_stride + frame;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      float quad[4];
      finish_quad(sums, part, h, rows[h].x, rows[h].y, quad);
      if constexpr (kPointwise) {
        with_activation(args.after_mix, [&](auto activation) {
#pragma unroll
          for (int f = 0; f < 4; ++f) quad[f] = activation(quad[f]);
        });
      }
      if (Sm90::kPartFrames * part >= left) continue;
      if (args.residual) {
        float added[4];
        load_quad<X>(added, reinterpret_cast<const char*>(x + Sm90::kPartFrames * part));
#pragma unroll
        for (int f = 0; f < 4; ++f) quad[f] += added[f];
      }
      store_quad(y + Sm90::kPartFrames * part, quad);
    }
    y += 8 * item.y_channel_stride;
    x += 8 * item.x_channel_stride;
  }
}

// Which of a quad's four frames lie in [begin, end).
struct QuadRange {
  int first;
  int last;

  __device__ __forceinline__ QuadRange(std::int64_t frame, std::int64_t begin, std::int64_t end)
      : first(static_cast<int>(min(max(begin - frame, std::int64_t{0}), std::int64_t{4}))),
        last(static_cast<int>(min(max(end - frame, std::int64_t{0}), std::int64_t{4}))) {}
  __device__ __forceinline__ bool has(int f) const { return f >= first && f < last; }
};

// Stores any tile, sample by sample.
template <typename X, bool kPointwise>
__device__ __forceinline__ void store_samples(const BlockArgs& args, std::int64_t tile, const TilePlace& tile_place,
                                              int tile_frames, int row, const float2 (&rows)[2],
                                              const float (&sums)[8][4]) {
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    if (Sm90::kPartFrames * part >= tile_frames) break;
    const int quad = 4 * part + static_cast<int>(threadIdx.x % 4);
    Quad place = {tile_place.item, std::int64_t{tile_place.tile_of_item} * tile_frames + Tile::kQuadFrames * quad};
    if (args.segment_frames != tile_frames) place = quad_at(args, tile, quad);
    if (place.item < 0) continue;
    const Item item = item_at<sizeof(X), sizeof(X)>(args.items, place.item);
    const QuadRange there(place.frame, 0, item.frames);
    const QuadRange real_x(place.frame, item.x_begin, item.x_end);
    const QuadRange real_y(place.frame, item.y_begin, item.y_end);
    const auto* x = static_cast<const X*>(item.x) + row * item.x_channel_stride + place.frame;
    auto* y = static_cast<X*>(item.y) + row * item.y_channel_stride + place.frame;
    const std::int64_t x_rows = 8 * item.x_channel_stride;
    const std::int64_t y_rows = 8 * item.y_channel_stride;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float value[4];
      finish_quad(sums, part, h, rows[h].x, rows[h].y, value);
      if constexpr (kPointwise) {
        with_activation(args.after_mix, [&](auto activation) {
#pragma unroll
          for (int f = 0; f < 4; ++f) value[f] = activation(value[f]);
        });
      }
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        if (f >= there.last) break;
        if (args.residual && real_x.has(f)) value[f] += to_float(x[f + h * x_rows]);
        y[f + h * y_rows] = from_float<X>(real_y.has(f) ? value[f] : 0.0f);
      }
    }
  }
}

// The products of one tile, `kSteps` times 16 channels. The corrections come first: added to a sum that is already
// large they would be rounded with it again and again.
template <int kTerms, int kSteps, int... kStep>
__device__ __forceinline__ void multiply_steps(float (&sums)[8][4], const uint4 (&high)[Sm90::kMaxSteps],
                                               const uint4 (&low)[kTerms == 2 ? Sm90::kMaxSteps : 1], std::uint32_t b,
                                               std::integer_sequence<int, kStep...>) {
  sm90::products_begin();
  if constexpr (kTerms == 2) {
    (sm90::multiply_add<(kStep > 0), kStep * kStepBytes>(sums, low[kStep], b), ...);
    (sm90::multiply_add<true, (kSteps + kStep) * kStepBytes>(sums, high[kStep], b), ...);
  }
  (sm90::multiply_add<(kTerms == 2 || kStep > 0), kStep * kStepBytes>(sums, high[kStep], b), ...);
  sm90::products_commit();
  sm90::products_wait<0>();
}

template <int kTerms>
__device__ __forceinline__ void multiply(float (&sums)[8][4], const uint4 (&high)[Sm90::kMaxSteps],
                                         const uint4 (&low)[kTerms == 2 ? Sm90::kMaxSteps : 1], std::uint32_t b,
                                         int steps) {
  switch (steps) {
    case 1:
      return multiply_steps<kTerms, 1>(sums, high, low, b, std::make_integer_sequence<int, 1>());
    case 2:
      return multiply_steps<kTerms, 2>(sums, high, low, b, std::make_integer_sequence<int, 2>());
    case 4:
      return multiply_steps<kTerms, 4>(sums, high, low, b, std::make_integer_sequence<int, 4>());
    default:
      return multiply_steps<kTerms, 8>(sums, high, low, b, std::make_integer_sequence<int, 8>());
  }
}

// The two warpgroups multiply in turn, so that one multiplies while the other stores.
__device__ __forceinline__ void take_turn(int warpgroup) {
  asm volatile("bar.sync %0, 256;" ::"r"(Sm90::kTurnBarrier + warpgroup) : "memory");
}
__device__ __forceinline__ void give_turn(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" ::"r"(Sm90::kTurnBarrier + 1 - warpgroup) : "memory");
}

template <typename X, int kTerms, bool kPointwise, Store kStore>
__device__ __forceinline__ void mix_role(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                         TileRange range) {
  const Sm90Plan& plan = launch.plan;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  const int warpgroup = warp / 4;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const bool alone = plan.row_blocks - 2 * static_cast<int>(blockIdx.y) < 2;
  const int row_block = 2 * static_cast<int>(blockIdx.y) + (alone ? 0 : warpgroup);
  const int row_tile = 4 * row_block + warp % 4;
  const int steps = args.in_padded / Tile::kStepChannels;

  // Scale and bias of the warp's own 16 rows.
  float2* s_rows = s.s_rows + 64 * warpgroup + 16 * (warp % 4);
  uint4 high[Sm90::kMaxSteps];
  uint4 low[kTerms == 2 ? Sm90::kMaxSteps : 1];
  const auto* weights = static_cast<const uint4*>(args.d_mix) + static_cast<std::int64_t>(row_tile) * steps * 32 + lane;
#pragma unroll
  for (int step = 0; step < Sm90::kMaxSteps; ++step) {
    if (step >= steps) break;
    high[step] = weights[step * 32];
    if constexpr (kTerms == 2) low[step] = weights[args.term_bytes / 16 + step * 32];
  }
  float2 own_row = {};
  if (lane < 16) own_row = make_float2(args.d_row_scale[row_tile * 16 + lane], args.d_mix_bias[row_tile * 16 + lane]);
  __syncthreads();  // all barriers are there; the weights may still be on their way
  if (lane < 16) s_rows[lane] = make_float2(own_row.x * (1.0f / CommonScale::kScale), own_row.y);
  __syncwarp();

  sm90::wait_for_previous_launch();
  // Stages in the order of tiles: a crew's next one in turn. A warpgroup alone takes every second tile.
  int crew = 0;
  RingPlace stage;
  const auto advance = [&] {
    if (++crew == plan.crews) {
      crew = 0;
      stage.advance(plan.stages);
    }
  };
  if (alone && warpgroup == 1) advance();
  if (!alone && warpgroup == 1 && range.count > 0) give_turn(warpgroup);
#pragma unroll 1
  for (int index = alone ? warpgroup : 0; index < range.count; index += alone ? 2 : 1) {
    const int stage_index = crew * plan.stages + stage.index;
    const char* s_stage = s.s_stages + stage_index * plan.stage_bytes;
    const std::int64_t tile = range.tile(index);
    const TilePlace place(args, launch, tile);
    sm90::barrier_wait(&s.s_stage_full[stage_index], stage.parity);
    float sums[8][4];
    // The same in all lanes, which the compiler does not see by itself: descriptors then live in uniform registers.
    const std::uint32_t b = __shfl_sync(0xffffffffu, sm90::operand(s_stage, kStrideBytes), 0);
    if (!alone) take_turn(warpgroup);
    multiply<kTerms>(sums, high, low, b, steps);
    if (!alone && (warpgroup == 0 || index + 1 < range.count)) give_turn(warpgroup);
    // Frames that have a scale of their own, as if they had the common one.
    const int4 scaled = *reinterpret_cast<const int4*>(s.s_scaled + stage_index * Sm90::kMaxParts);
    if ((scaled.x | scaled.y | scaled.z | scaled.w) != 0) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        if ((part == 0 ? scaled.x : part == 1 ? scaled.y : part == 2 ? scaled.z : scaled.w) == 0) continue;
        const float4 inverse =
            reinterpret_cast<const float4*>(s.s_inverse)[stage_index * Tile::kQuads + 4 * part + lane % 4];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          sums[2 * part][2 * h] *= inverse.x * CommonScale::kScale;
          sums[2 * part][2 * h + 1] *= inverse.y * CommonScale::kScale;
          sums[2 * part + 1][2 * h] *= inverse.z * CommonScale::kScale;
          sums[2 * part + 1][2 * h + 1] *= inverse.w * CommonScale::kScale;
        }
      }
    }
    __syncwarp();
    if (lane == 0) sm90::barrier_arrive(&s.s_stage_empty[stage_index]);
    advance();
    if (alone) advance();
    if (row_tile * 16 >= args.out_channels) continue;
    const float2 rows[2] = {s_rows[lane / 4], s_rows[lane / 4 + 8]};
    const int row = row_tile * 16 + lane / 4;
    if constexpr (kStore == Store::kQuads) {
      store_quads<X, kPointwise>(args, place, plan.tile_frames, row, rows, sums);
    } else {
      store_samples<X, kPointwise>(args, tile, place, plan.tile_frames, row, rows, sums);
    }
  }
}

// --- kernel ----------------------------------------------------------------------------------------------------------

// The depthwise's threads.
__device__ __forceinline__ void set_up_stages(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s) {
  const Sm90Plan& plan = launch.plan;
  const int thread = static_cast<int>(threadIdx.x) - 32 * Sm90::kMixWarps;
  // Not the threads that see to the first copies.
  const int stage = 32 * Sm90::kDepthwiseWarps - 1 - thread;
  if (stage < plan.crews * plan.stages) {
    const bool stages_shared = plan.row_blocks - 2 * static_cast<int>(blockIdx.y) >= 2;
    sm90::barrier_init(&s.s_stage_full[stage], plan.parts * plan.team_warps);
    sm90::barrier_init(&s.s_stage_empty[stage], stages_shared ? 8 : 4);
    sm90::fence_barrier_init();
  }
  if (plan.team_warps * Sm90::kWarpChannels < args.in_padded) {
    // Channels that no warp computes: zeros for good, against weights of zero.
#pragma unroll 1
    for (int i = thread; i < plan.crews * plan.stages * plan.stage_bytes / 16; i += 32 * Sm90::kDepthwiseWarps) {
      reinterpret_cast<uint4*>(s.s_stages)[i] = make_uint4(0, 0, 0, 0);
    }
    sm90::fence_for_async_reads();
  }
}

template <typename X, int kTerms, int kTaps, int kDilation, bool kPointwise, Store kStore>
__global__ void __launch_bounds__(Sm90::kThreads, 1)
    sm90_block(const __grid_constant__ BlockArgs args, const __grid_constant__ Sm90Launch launch,
               const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(128) char s_memory[];
  sm90::allow_next_launch();
  const SharedMemory s = divide(s_memory, launch.plan);
  const TileRange range(launch);
  const int warp = static_cast<int>(threadIdx.x / 32);
  // The mix goes straight to its weights; the depthwise sets up what both meet in. Either role passes one barrier of
  // the whole block before it uses that.
  if (warp < Sm90::kMixWarps) {
    sm90::take_registers<Sm90::kMixRegisters>();
    mix_role<X, kTerms, kPointwise, kStore>(args, launch, s, range);
  } else {
    sm90::give_registers<Sm90::kDepthwiseRegisters>();
    set_up_stages(args, launch, s);
    depthwise_role<X, kTerms, kTaps, kDilation, kPointwise>(args, launch, s, &map, range);
  }
#else
  // Code for other cards holds no body. This static shared memory, which the body has none of, tells the host.
  __shared__ volatile int s_absent;
  s_absent = static_cast<int>(args.taps + launch.plan.taps + map.opaque[0]);
#endif
}

// The kernels of one precision. Which of a layer's runs depends on the items of a launch; all give the same bits,
// because their arithmetic is the same.
template <typename X, int kTerms, Store kStore>
Sm90Kernel kernel_of(const Sm90Plan& plan, bool compiled) {
  if (plan.pointwise) return sm90_block<X, kTerms, 0, 4, true, kStore>;
  if (compiled) {
    switch (plan.taps * 4 + plan.dilation) {
      case 5 * 4 + 2:
        return sm90_block<X, kTerms, 5, 2, false, kStore>;
      case 5 * 4 + 1:
        return sm90_block<X, kTerms, 5, 1, false, kStore>;
      case 5 * 4:
        return sm90_block<X, kTerms, 5, 0, false, kStore>;
      case 3 * 4 + 2:
        return sm90_block<X, kTerms, 3, 2, false, kStore>;
      case 3 * 4 + 1:
        return sm90_block<X, kTerms, 3, 1, false, kStore>;
      default:
        return sm90_block<X, kTerms, 3, 0, false, kStore>;
    }
  }
  switch (plan.any_dilation) {
    case 1:
      return sm90_block<X, kTerms, 0, 1, false, kStore>;
    case 2:
      return sm90_block<X, kTerms, 0, 2, false, kStore>;
    case 3:
      return sm90_block<X, kTerms, 0, 3, false, kStore>;
    case 5:
      return sm90_block<X, kTerms, 0, 5, false, kStore>;
    case 6:
      return sm90_block<X, kTerms, 0, 6, false, kStore>;
    case 7:
      return sm90_block<X, kTerms, 0, 7, false, kStore>;
    default:
      return sm90_block<X, kTerms, 0, 4, false, kStore>;
  }
}

template <typename X>
Sm90Kernel kernel_of(const Sm90Plan& plan, Math math, bool compiled, Store store) {
  if (math == Math::kFp32) {
    return store == Store::kQuads ? kernel_of<X, 2, Store::kQuads>(plan, compiled)
                                  : kernel_of<X, 2, Store::kSamples>(plan, compiled);
  }
  return store == Store::kQuads ? kernel_of<X, 1, Store::kQuads>(plan, compiled)
                                : kernel_of<X, 1, Store::kSamples>(plan, compiled);
}

}  // namespace
}  // namespace halotap::kernels::cuda
