// z[c,t] = tap_bias[c] + sum_k taps[c,k] * x[c, t + k*dilation - left],   a = before(z)
// y[o,t] = after(mix_bias[o] + sum_c mix[o,c] * a[c,t])  (+ x[o,t])
//
// x [in_channels, frames], y [out_channels, frames], frames fastest. Channels in multiples of 16; more than 128
// in_channels are summed in passes of 128.
//
// Grid: x divides the tiles, 64 frames (32 where halos are long), one block an SM; y the rows of y, 128 a block, or,
// with several passes, as many as there are while there is a tile for every SM. 20 warps (16 with several passes, 28
// for the usual layer), which meet in shared memory through barriers:
//   depthwise  12 warps (8; 16) in crews, each of which computes a tile at a time; in a crew, teams, which take turns
//              over the parts of its tiles, 16 frames each; a warp of a team computes 32 channels, a thread one
//              channel, taps in registers. A slab, x of a tile with its halo, is on the way into each slot of the
//              crew's ring that is not read; whoever reads one last asks for the next. Results are scaled, split into
//              two float16 terms and stored in a stage, in tiles [channels/8][columns/8][8 channels][8 columns]. The
//              scale is the same for every frame that it fits, which the team finds out with one barrier; where it does
//              not fit a frame, the team computes its part again, scaled frame by frame.
//   mix        2 warpgroups: 64 rows of weights each, in registers for good; m64n64k16 products with the terms of a
//              stage, corrections first so that one accumulator rounds as well as two; then scale, bias, stores of 64
//              bytes a row. With several passes a tile is in several stages, all of which are kept while the
//              warpgroups take its rows of y, 64 after 64, weights read again for each pass.
//   copy       only with the usual layer (set_usual): a warpgroup one thread of which asks for all slabs: two at first,
//              each further one of an empty ring when the slab two before it is there, then the next as soon as one has
//              been read. Before, the depthwise asks for the first in the second-level cache.
// With one term there is nothing low; in bfloat16 there are no scales either, so no warp of a team waits for the
// others. The usual layer's depthwise has a team for each part of a tile, half of them half a tile behind with two
// terms, asks for no slabs itself, and has 16 registers a thread less. Taps that lie 32 or 64 frames apart would have
// every tile read several times its size. x of several tiles side by side then goes through one ring, in which their
// halos are read once (sm90_ring.cuh); all else is the same.
//
// Items that bulk copies cannot read (a table of them, unaligned rows) are copied sample by sample, asynchronously too,
// into the same slabs, so their bits are the same.
//
// A frame's sum runs over channels in steps of 16: low weights, low activations, then both high parts; then over
// passes. Shared memory and registers: sm90_plan.hpp.
#pragma once

#include <type_traits>

#include "cuda/sm90_depthwise.cuh"
#include "cuda/sm90_mix.cuh"
#include "cuda/sm90_ring.cuh"
#include "cuda/sm90_tile.cuh"

namespace halotap::kernels::cuda {
namespace {

// The depthwise's threads.
template <Terms kTerms, int kTaps, bool kWide, bool kUsual>
__device__ __forceinline__ void set_up_stages(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s) {
  constexpr int kThreads = 32 * Sm90Roles<kWide, kUsual>::kDepthwiseWarps;
  constexpr int kStages = kUsual ? Sm90::kUsualStages : Sm90::kMaxStages;
  const Sm90Plan& plan = launch.plan;
  const int thread = static_cast<int>(threadIdx.x) - 32 * Sm90::kMixWarps;
  // Not the threads that see to the first copies.
  if (thread < kStages * Sm90::kMaxParts) s.s_scaled[thread] = 0;  // of parts that nobody computes, too
  const int stage = kThreads - 1 - thread;
  if (stage < plan.crews * plan.stages) {
    const int row_blocks = plan.row_blocks - (kUsual ? 0 : 2 * static_cast<int>(blockIdx.y));
    const int readers = kWide ? RowRange(launch).count : min(row_blocks, 2);
    sm90::barrier_init(&s.s_stage_full[stage], plan.parts * part_arrivals<kTerms>(plan));
    sm90::barrier_init(&s.s_stage_empty[stage], 4 * readers);
    sm90::fence_barrier_init();
  }
  if constexpr (kTaps == 0) {
#pragma unroll 1
    for (int i = thread; i < args.taps * args.in_padded / 4; i += kThreads) {
      reinterpret_cast<float4*>(s.s_taps)[i] = reinterpret_cast<const float4*>(args.d_taps)[i];
    }
  }
  if (!kWide && plan.team_warps * Sm90::kWarpChannels < args.in_padded) {
    // Channels that no warp computes: zeros for good, against weights of zero.
#pragma unroll 1
    for (int i = thread; i < plan.crews * plan.stages * plan.stage_bytes / 16; i += kThreads) {
      reinterpret_cast<uint4*>(s.s_stages)[i] = make_uint4(0, 0, 0, 0);
    }
  }
}

// Stands for the dilations of the ring, beside those that sum_taps names.
constexpr int kRingDilation = 8;

template <typename X, Terms kTerms, int kTaps, int kDilation, bool kPointwise, Store kStore, bool kWide>
__global__ void __launch_bounds__(Sm90Roles<kWide, kStore == Store::kUsualQuads>::kThreads, 1)
    sm90_block(const __grid_constant__ BlockArgs given_args, const __grid_constant__ Sm90Launch given_launch,
               const __grid_constant__ CUtensorMap map) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  constexpr bool kRing = kDilation == kRingDilation;
  constexpr bool kUsual = kStore == Store::kUsualQuads;
  using Roles = Sm90Roles<kWide, kUsual>;
  extern __shared__ __align__(1024) char s_memory[];
  sm90::allow_next_launch();
  // The usual layer's are copies, of which set_usual makes constants; others stay where they are.
  std::conditional_t<kUsual, BlockArgs, const BlockArgs&> args = given_args;
  std::conditional_t<kUsual, Sm90Launch, const Sm90Launch&> launch = given_launch;
  if constexpr (kUsual) set_usual(sizeof(X), kTerms, kTaps, kDilation, args, launch);
  const SharedMemory s = divide<kUsual>(kUsual ? sm90::opaque(s_memory) : s_memory, launch.plan);
  const TileRange range(launch);
  const int warp = static_cast<int>(threadIdx.x / 32);
  // The mix goes straight to its weights; the depthwise sets up what both meet in. Either role passes one barrier of
  // the whole block before it uses that.
  if (warp < Sm90::kMixWarps) {
    sm90::take_registers<Roles::kMixRegisters>();
    if constexpr (kWide) {
      mix_passes_role<X, kTerms, kPointwise, kStore>(args, launch, s, range);
    } else {
      mix_role<X, kTerms, kTaps, kPointwise, kStore, kRing>(args, launch, s);
    }
  } else if (kUsual && warp >= Roles::kMixWarps + Roles::kDepthwiseWarps) {
    sm90::give_registers<Roles::kCopyRegisters>();
    copy_role<kTerms>(args, launch, s, &map, range);
  } else {
    sm90::give_registers<Roles::kDepthwiseRegisters>();
    set_up_stages<kTerms, kTaps, kWide, kUsual>(args, launch, s);
    if constexpr (kUsual) {
      usual_depthwise_role<X, kTerms, kTaps, kDilation>(args, launch, s, range);
    } else if constexpr (kRing) {
      ring_depthwise_role<kTerms>(args, launch, s, &map);
    } else {
      depthwise_role<X, kTerms, kTaps, kDilation, kPointwise, kWide>(args, launch, s, &map, range);
    }
  }
#else
  // Code for other cards holds no body. This static shared memory, which the body has none of, tells the host.
  __shared__ volatile int s_absent;
  s_absent = static_cast<int>(given_args.taps + given_launch.plan.taps + map.opaque[0]);
#endif
}

// The kernels of one precision. Which of a layer's runs depends on the items of a launch; all give the same bits,
// because their arithmetic is the same.
template <typename X, Terms kTerms, Store kStore, bool kWide>
Sm90Kernel kernel_of(const Sm90Plan& plan, Taps taps) {
  constexpr bool kUsual = kStore == Store::kUsualQuads;
  if constexpr (!kUsual) {
    if (plan.pointwise) return sm90_block<X, kTerms, 0, 4, true, kStore, kWide>;
  }
  if constexpr (sizeof(X) == 4 && !kWide && !kUsual) {
    if (taps == Taps::kRing) return sm90_block<X, kTerms, 0, kRingDilation, false, kStore, kWide>;
  }
  if (taps == Taps::kCompiled) {
    switch (plan.taps * 4 + plan.dilation) {
      case 5 * 4 + 2:
        return sm90_block<X, kTerms, 5, 2, false, kStore, kWide>;
      case 5 * 4 + 1:
        return sm90_block<X, kTerms, 5, 1, false, kStore, kWide>;
      case 5 * 4:
        return sm90_block<X, kTerms, 5, 0, false, kStore, kWide>;
      case 3 * 4 + 2:
        return sm90_block<X, kTerms, 3, 2, false, kStore, kWide>;
      case 3 * 4 + 1:
        return sm90_block<X, kTerms, 3, 1, false, kStore, kWide>;
      default:
        return sm90_block<X, kTerms, 3, 0, false, kStore, kWide>;
    }
  }
  switch (plan.any_dilation) {
    case 1:
      return sm90_block<X, kTerms, 0, 1, false, kStore, kWide>;
    case 2:
      return sm90_block<X, kTerms, 0, 2, false, kStore, kWide>;
    case 3:
      return sm90_block<X, kTerms, 0, 3, false, kStore, kWide>;
    default:
      break;
  }
  if constexpr (kUsual) {
    return nullptr;  // has_usual_kernel leaves these dilations out
  } else {
    switch (plan.any_dilation) {
      case 5:
        return sm90_block<X, kTerms, 0, 5, false, kStore, kWide>;
      case 6:
        return sm90_block<X, kTerms, 0, 6, false, kStore, kWide>;
      case 7:
        return sm90_block<X, kTerms, 0, 7, false, kStore, kWide>;
      default:
        return sm90_block<X, kTerms, 0, 4, false, kStore, kWide>;
    }
  }
}

// Samples of bfloat16 have one bfloat16 term or two of float16 (terms_of).
template <typename X, bool kWide>
Sm90Kernel kernel_of(const Sm90Plan& plan, Terms terms, Taps taps, Store store) {
  constexpr Terms kOne = std::is_same_v<X, __nv_bfloat16> ? Terms::kBfloat16 : Terms::kFloat16;
  const bool two = terms == Terms::kTwoFloat16;
  if constexpr (!kWide) {
    if (store == Store::kUsualQuads) {
      return two ? kernel_of<X, Terms::kTwoFloat16, Store::kUsualQuads, false>(plan, taps)
                 : kernel_of<X, kOne, Store::kUsualQuads, false>(plan, taps);
    }
  }
  if (store == Store::kQuads) {
    return two ? kernel_of<X, Terms::kTwoFloat16, Store::kQuads, kWide>(plan, taps)
               : kernel_of<X, kOne, Store::kQuads, kWide>(plan, taps);
  }
  return two ? kernel_of<X, Terms::kTwoFloat16, Store::kSamples, kWide>(plan, taps)
             : kernel_of<X, kOne, Store::kSamples, kWide>(plan, taps);
}

}  // namespace
}  // namespace halotap::kernels::cuda
