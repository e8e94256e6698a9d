// The depthwise of a block (sm90_kernels.cuh): copies of x into slabs, sums over taps, activation, scaling, and terms
// in stages.
#pragma once

#include "cuda/sm90_tile.cuh"

namespace halotap::kernels::cuda {
namespace {

// Queues the copy of a tile's slab, of the channels from `channel` on. One thread.
__device__ __forceinline__ void copy_slab(const BlockArgs& args, const Sm90Launch& launch, const CUtensorMap* map,
                                          std::int64_t tile, int channel, char* s_slab, std::uint64_t* s_full) {
  const Sm90Plan& plan = launch.plan;
  sm90::barrier_arrive_expecting(s_full, plan.slab_bytes);
  const TilePlace place = place_of(args, launch, tile);
  const auto frame = static_cast<int>(std::int64_t{place.tile_of_item} * plan.tile_frames - args.left_frames -
                                      launch.before_samples - args.items.first.x_begin);
#pragma unroll 1
  for (int box = 0; box < plan.boxes; ++box) {
    sm90::copy_box(s_slab + box * plan.tap_stride_bytes, map, s_full, frame + box * args.dilation, channel, place.item);
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

// Bias and taps of a thread's channel: taps of a kernel size known when compiled in registers, others in shared memory.
template <int kTaps>
struct ThreadTaps {
  float taps[kTaps > 0 ? kTaps : 1];
  float bias;
  const float* s_taps;  // those in a loop, in_padded numbers from one to the next

  // A channel past the last has those of the last.
  __device__ __forceinline__ ThreadTaps(const BlockArgs& args, const SharedMemory& s, int channel) {
    channel = min(channel, args.in_padded - 1);
    bias = args.d_tap_bias[channel];
    s_taps = s.s_taps + channel;
#pragma unroll
    for (int k = 0; k < kTaps; ++k) taps[k] = args.d_taps[k * args.in_padded + channel];
  }
};

// A part of one channel: four quads of frames.
constexpr int kQuads = Sm90::kPartFrames / Tile::kQuadFrames;
using Part = float[kQuads][Tile::kQuadFrames];

// Which of four taps there are: all, or those from `first` to before `end`.
struct AllFour {
  __device__ __forceinline__ bool has(int) const { return true; }
};
struct SomeOfFour {
  int first;
  int end;
  __device__ __forceinline__ bool has(int tap) const { return tap >= first && tap < end; }
};

// Taps in a loop, four at a time: from one four to the next it is a whole number of quads, so where in a quad a tap's
// first sample lies depends on its place among the four and on the dilation's remainder by 4 alone. Calls
// `add(taps, which)` for each four.
template <typename Add>
__device__ __forceinline__ void for_each_four_taps(const BlockArgs& args, const Sm90Launch& launch,
                                                   const ThreadTaps<0>& t, const Add& add) {
  const float* s_taps = t.s_taps - launch.skipped_taps * args.in_padded;
  const int end = sm90::opaque(args.taps);  // asked for in every turn, it would be waited for
#pragma unroll 1
  for (int k = -launch.skipped_taps; k < end; k += 4) {
    const auto add_those = [&](const auto& which) {
      float taps[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (which.has(j)) taps[j] = s_taps[j * args.in_padded];
      }
      add(taps, which);
    };
    if (k >= 0 && k + 4 <= end) {
      add_those(AllFour());
    } else {
      add_those(SomeOfFour{-k, end - k});
    }
    s_taps += 4 * args.in_padded;
  }
}

// Four taps `kApart` frames apart, on a window of samples that the first of them begins with.
template <int kApart, int kRun, int kWindow, typename Which>
__device__ __forceinline__ void add_window(const float (&taps)[4], const Which& which,
                                           const float (&window)[kWindow][4], float (*z)[Tile::kQuadFrames]) {
  static_assert(kWindow * 4 >= kRun * 4 + 3 * kApart);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (!which.has(j)) continue;
#pragma unroll
    for (int q = 0; q < kRun; ++q) {
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        const int sample = 4 * q + f + j * kApart;
        z[q][f] = fmaf(taps[j], window[sample / 4][sample % 4], z[q][f]);
      }
    }
  }
}

// One channel's sums over taps in a loop. kPhase: the dilation's remainder by 4; kNear: the dilation is kPhase itself,
// and four taps share what they read. kRun: how many quads lie side by side; where taps do not share, more than two
// take more registers than there are.
template <typename X, int kPhase, bool kNear, int kRun>
__device__ __forceinline__ void sum_any_taps(const BlockArgs& args, const Sm90Launch& launch, const ThreadTaps<0>& t,
                                             const char* (&s_run)[kQuads / kRun], Part& z) {
  constexpr int kQuadBytes = Tile::kQuadFrames * static_cast<int>(sizeof(X));
  // Bytes from a tap to the next but for what kPhase says, and from four taps to the next four.
  const int tap_bytes = launch.tap_stride_bytes - kPhase * static_cast<int>(sizeof(X));
  const int group_bytes = 4 * launch.tap_stride_bytes;
  for_each_four_taps(args, launch, t, [&](const float(&taps)[4], const auto& which) {
#pragma unroll
    for (int run = 0; run < kQuads / kRun; ++run) {
      if constexpr (kNear) {
        constexpr int kReach = (3 + 3 * kPhase) / 4 + kRun;
        float window[kReach][4];
#pragma unroll
        for (int i = 0; i < kReach; ++i) {
          bool reached = i < kRun;
#pragma unroll
          for (int j = 0; j < 4; ++j) reached |= which.has(j) && 4 * (i - kRun) < j * kPhase;
          if (reached) load_quad<X>(window[i], s_run[run] + i * kQuadBytes);
        }
        add_window<kPhase, kRun>(taps, which, window, &z[run * kRun]);
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (!which.has(j)) continue;
          constexpr int kPhases[4] = {0, kPhase, 2 * kPhase, 3 * kPhase};
          const char* s_samples = s_run[run] + j * tap_bytes + kPhases[j] / 4 * kQuadBytes;
          float window[kRun + 1][4];
#pragma unroll
          for (int i = 0; i < kRun + 1; ++i) {
            if (i < kRun || kPhases[j] % 4 != 0) load_quad<X>(window[i], s_samples + i * kQuadBytes);
          }
#pragma unroll
          for (int q = 0; q < kRun; ++q) {
#pragma unroll
            for (int f = 0; f < 4; ++f) {
              const int sample = 4 * q + f + kPhases[j] % 4;
              z[run * kRun + q][f] = fmaf(taps[j], window[sample / 4][sample % 4], z[run * kRun + q][f]);
            }
          }
        }
      }
      s_run[run] += group_bytes;
    }
  });
}

// Where the first quad's first tap lies in a row that is one item's, skipped ones included.
template <typename X>
__device__ __forceinline__ int first_quad_bytes(const BlockArgs& args, const Sm90Launch& launch) {
  return (launch.before_samples - launch.skipped_taps * args.dilation) * static_cast<int>(sizeof(X));
}

// The same, with compiled taps where there are. kDilation says how rows are read. Compiled taps: 1 and 2 are the
// dilation itself, whose windows are read into registers; 0 is any that keeps taps aligned. Taps in a loop: 1 to 3 are
// the dilation itself, 4 to 7 stand for larger ones with this remainder by 4.
template <typename X, int kTaps, int kDilation, bool kUsual>
__device__ __forceinline__ void sum_taps(const BlockArgs& args, const Sm90Launch& launch, const ThreadTaps<kTaps>& t,
                                         const char* s_row, int part, Part& z) {
#pragma unroll
  for (int i = 0; i < Sm90::kPartFrames; ++i) z[i / 4][i % 4] = t.bias;
  if constexpr (kTaps == 0) {
    constexpr bool kNear = kDilation < 4;
    if constexpr (kUsual) {
      static_assert(kNear);
      const char* s_part[] = {s_row + first_quad_bytes<X>(args, launch) +
                              part * (Sm90::kPartFrames * static_cast<int>(sizeof(X)))};
      sum_any_taps<X, kDilation, true, kQuads>(args, launch, t, s_part, z);
      return;
    }
    const std::int32_t* quad_bytes = launch.quad_bytes + kQuads * part;
    if (args.tile_segments != 1) {
      const char* s_quads[] = {s_row + quad_bytes[0], s_row + quad_bytes[1], s_row + quad_bytes[2],
                               s_row + quad_bytes[3]};
      sum_any_taps<X, kDilation % 4, kNear, 1>(args, launch, t, s_quads, z);
    } else if constexpr (kNear) {
      const char* s_part[] = {s_row + quad_bytes[0]};
      sum_any_taps<X, kDilation, true, kQuads>(args, launch, t, s_part, z);
    } else {
      const char* s_pairs[] = {s_row + quad_bytes[0], s_row + quad_bytes[2]};
      sum_any_taps<X, kDilation % 4, false, 2>(args, launch, t, s_pairs, z);
    }
  } else {
    s_row += launch.pad_bytes + part * (Sm90::kPartFrames * static_cast<int>(sizeof(X)));
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
template <typename X, int kTaps, bool kUsual>
__device__ __forceinline__ float sum_taps_of_frame(const BlockArgs& args, const Sm90Launch& launch,
                                                   const ThreadTaps<kTaps>& t, const char* s_row, int quad, int frame,
                                                   int channel) {
  const int quad_bytes = kTaps > 0 || kUsual ? launch.before_samples * static_cast<int>(sizeof(X)) +
                                                   quad * (Tile::kQuadFrames * static_cast<int>(sizeof(X)))
                                             : launch.quad_bytes[quad] + launch.skipped_taps * launch.tap_stride_bytes;
  const char* s_sample = s_row + quad_bytes + frame * static_cast<int>(sizeof(X));
  const float* tap = kTaps > 0 ? args.d_taps + min(sm90::opaque(channel), args.in_padded - 1) : t.s_taps;
  float z = t.bias;
#pragma unroll 1
  for (int k = 0; k < args.taps; ++k) {
    z = fmaf(*tap, to_float(*reinterpret_cast<const X*>(s_sample)), z);
    s_sample += launch.tap_stride_bytes;
    tap += args.in_padded;
  }
  return z;
}

// What a thread saw of the magnitudes of its 16 results, scaled and rounded to float16.
struct Magnitudes {
  std::uint32_t most = 0;     // of either half of a pair
  std::uint32_t loud_enough;  // a bit for each result: not too quiet for the common scale, or of no frame

  __device__ __forceinline__ explicit Magnitudes(std::uint32_t absent) : loud_enough(absent) {}
  // Pair `index` of 8.
  __device__ __forceinline__ void add(std::uint32_t pair, int index) {
    asm("max.xorsign.abs.f16x2 %0, %1, %2;" : "=r"(most) : "r"(most), "r"(pair));
    const __half2 magnitude = __habs2(*reinterpret_cast<const __half2*>(&pair));
    const std::uint32_t quietest = CommonScale::kQuietest << 16 | CommonScale::kQuietest;
    loud_enough |= __hge2_mask(magnitude, *reinterpret_cast<const __half2*>(&quietest)) & 0x00010001u << index;
  }
  // All of it in bits that a warp can put together: those of kTooLoud for what is too loud for the common scale, to
  // whose place adding carries from there on.
  __device__ __forceinline__ std::uint32_t bits() const {
    constexpr std::uint32_t kToCarry = 0x8000u - CommonScale::kLoudest;
    return loud_enough | (((most & 0x7fff7fffu) + (kToCarry << 16 | kToCarry)) & kTooLoud);
  }

  static constexpr std::uint32_t kAllLoudEnough = 0x00ff00ffu;
  static constexpr std::uint32_t kTooLoud = 0x80008000u;
};

// Which warp of which team of which crew this is. Channels: member * 32 + lane.
struct Team {
  int crew;
  int team;  // of the crew
  int member;
  int lane;
  int first_warp;  // of the depthwise

  // `one_crew`: every warp is known to belong to the one that there is.
  __device__ __forceinline__ explicit Team(const Sm90Plan& plan, bool one_crew = false) {
    const std::uint32_t warp = __shfl_sync(0xffffffffu, threadIdx.x / 32, 0) - Sm90::kMixWarps;
    const std::uint32_t any_team = warp / static_cast<std::uint32_t>(plan.team_warps);
    lane = static_cast<int>(threadIdx.x % 32);
    first_warp = static_cast<int>(any_team) * plan.team_warps;
    member = static_cast<int>(warp % static_cast<std::uint32_t>(plan.team_warps));
    crew = one_crew ? 0 : static_cast<int>(any_team) / plan.teams;
    team = static_cast<int>(any_team) - crew * plan.teams;
  }
  __device__ __forceinline__ int barrier(const Sm90Plan& plan) const { return 1 + crew * plan.teams + team; }
  __device__ __forceinline__ int row() const { return member * Sm90::kWarpChannels + lane; }
  // The one thread that arrives for the team.
  __device__ __forceinline__ bool leads() const { return row() == 0; }
  // Whether this thread arrives for a part that is done: one for the team, which has met, or, where it need not meet,
  // one for each warp.
  template <Terms kTerms>
  __device__ __forceinline__ bool arrives() const {
    return has_scales(kTerms) ? leads() : lane == 0;
  }
};

// How many threads arrive for a part that is done.
template <Terms kTerms>
__device__ __forceinline__ int part_arrivals(const Sm90Plan& plan) {
  return has_scales(kTerms) ? 1 : plan.team_warps;
}

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
  const std::uint32_t bits = __reduce_or_sync(0xffffffffu, counts ? magnitudes.bits() : 0u);
  // The first lane of a warp votes when its frames are all loud enough, the others when none is too loud: all others'
  // votes and one more are wanted.
  const std::uint32_t tested = own.lane == 0 ? Magnitudes::kAllLoudEnough : Magnitudes::kTooLoud;
  const bool vote = ((bits ^ (tested & Magnitudes::kAllLoudEnough)) & tested) == 0;
  if (plan.team_warps == 1) {
    __syncwarp();
    return __all_sync(0xffffffffu, vote);
  }
  constexpr int kOthers = 31;
  static_assert(Tile::kPassChannels / Sm90::kWarpChannels <= kOthers, "first lanes do not outvote a warp's others");
  int votes;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "setp.ne.b32 p, %3, 0;\n"
      "barrier.cta.red.popc.aligned.u32 %0, %1, %2, p;\n"
      "}\n"
      : "=r"(votes)
      : "r"(own.barrier(plan)), "r"(plan.team_warps * 32), "r"(vote ? 1 : 0)
      : "memory");
  return votes > plan.team_warps * kOthers;
}

// A part again, each frame with a scale that fits it. Rare, so the code is short rather than fast. False when
// every frame has the common scale after all (silent ones have): then nothing is stored. The whole team.
template <Terms kTerms, bool kPointwise, typename SumOfFrame>
__device__ __forceinline__ bool scale_by_frame(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                               const Team& own, int channel, int term_bytes, char* s_terms,
                                               float* s_inverse, const SumOfFrame& sum_of_frame) {
  const Sm90Plan& plan = launch.plan;
  // Or the lane, and addresses that are used here alone, would take registers all the time.
  const int lane = sm90::thread_of_block() % 32;
  const auto result = [&](int frame) {
    float a[1] = {sum_of_frame(frame)};
    if constexpr (!kPointwise) {
      with_activation_of_taps<kTerms>(args.before_mix, [&](auto activation) { a[0] = activation(a[0]); });
    }
    return channel < args.in_channels ? a[0] : 0.0f;
  };
  const int own_frame = lane % Sm90::kPartFrames;
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
#pragma unroll 1
  for (int pair = 0; pair < Sm90::kPartFrames / 2; ++pair) {
    const SplitPair terms =
        split_pair(result(2 * pair) * s_scales[2 * pair], result(2 * pair + 1) * s_scales[2 * pair + 1]);
    char* s_pair = s_terms + pair % 2 * 128 + pair / 2 * 4;
    *reinterpret_cast<std::uint32_t*>(s_pair) = terms.high;
    if constexpr (kTerms == Terms::kTwoFloat16) *reinterpret_cast<std::uint32_t*>(s_pair + term_bytes) = terms.low;
  }
  return true;
}

// Activates a part's sums, makes terms of them and stores those in a stage. Behind it the whole team, or without scales
// the warp, has done so, and has read all that the part needs of x. `wait_for_stage`, called with the last terms,
// returns when the stage may be written; `sum_of_frame` gives one frame's sum again, where there are scales. The whole
// team.
template <Terms kTerms, bool kSilu, bool kPointwise, typename WaitForStage, typename SumOfFrame>
__device__ __forceinline__ void store_part(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                           const Team& own, Part& a, int first_channel, int stage_index, int part,
                                           const WaitForStage& wait_for_stage, const SumOfFrame& sum_of_frame) {
  const Sm90Plan& plan = launch.plan;
  const int row = own.row();
  const int channel = first_channel + row;
  const int padded = min(args.in_padded - first_channel, Tile::kPassChannels);  // 16, 32, 64 or 128
  const int term_bytes = padded / 8 * kStrideBytes;
  const auto activate_all = [&](auto activation) {
#pragma unroll
    for (int i = 0; i < Sm90::kPartFrames; ++i) a[i / 4][i % 4] = activation(a[i / 4][i % 4]);
  };
  if constexpr (!has_scales(kTerms)) {
    with_activation_of_taps<kTerms>(kPointwise ? Activation::kIdentity
                                    : kSilu    ? Activation::kSilu
                                               : args.before_mix,
                                    activate_all);
  } else if constexpr (kSilu) {
    activate_all([](float t) { return scaled_silu_of_log2(t); });
  } else {
    with_scaled_activation_of_taps(kPointwise ? Activation::kIdentity : args.before_mix, activate_all);
  }
  // Columns 8*j + 2*q + e of these 16 frames are frames 4*q + 2*j + e: a thread of the mix then holds four frames
  // side by side, and four threads all 16.
  std::uint32_t high[2][4];
  [[maybe_unused]] std::uint32_t low[2][4];
  [[maybe_unused]] Magnitudes magnitudes(part + 1 == plan.parts ? launch.absent : 0);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if constexpr (has_scales(kTerms)) {
        const SplitPair terms = split_pair(a[q][2 * j], a[q][2 * j + 1]);
        high[j][q] = terms.high;
        low[j][q] = terms.low;
        magnitudes.add(terms.high, 2 * q + j);
      } else {
        high[j][q] = round_pair(a[q][2 * j], a[q][2 * j + 1]);
      }
    }
  }
  wait_for_stage(high[1][kQuads - 1]);
  char* s_terms =
      s.s_stages + stage_index * plan.stage_bytes + row / 8 * kStrideBytes + part * (2 * 128) + row % 8 * 16;
  if (row < padded) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      *reinterpret_cast<uint4*>(s_terms + j * 128) = make_uint4(high[j][0], high[j][1], high[j][2], high[j][3]);
      if constexpr (kTerms == Terms::kTwoFloat16) {
        *reinterpret_cast<uint4*>(s_terms + j * 128 + term_bytes) =
            make_uint4(low[j][0], low[j][1], low[j][2], low[j][3]);
      }
    }
  }
  if constexpr (has_scales(kTerms)) {
    bool scaled = !common_scale_fits(magnitudes, channel < args.in_channels, plan, own);
    if (__builtin_expect(scaled, false)) {
      scaled = scale_by_frame<kTerms, kPointwise>(args, launch, s, own, channel, term_bytes, s_terms,
                                                  s.s_inverse + stage_index * Tile::kFrames + part * Sm90::kPartFrames,
                                                  sum_of_frame);
      meet_team(plan, own);
    }
    if (own.leads()) s.s_scaled[stage_index * Sm90::kMaxParts + part] = scaled ? 1 : 0;
  } else {
    __syncwarp();
  }
  if (own.arrives<kTerms>()) sm90::barrier_arrive(&s.s_stage_full[stage_index]);
}

// Queues the copy of the warp's share of a slab sample by sample: every so many-th row of its own channels.
// Frames that are not real become zeros. The whole warp; every lane arrives at the barrier.
template <typename X>
__device__ __forceinline__ void gather_rows(const BlockArgs& args, const Sm90Launch& launch, const Team& own,
                                            std::int64_t tile, int first_channel, char* s_slab, std::uint64_t* s_full) {
  const Sm90Plan& plan = launch.plan;
  const int channels = args.in_channels - first_channel;
  const int first_row = own.member * Sm90::kWarpChannels + own.team;
  const int end_row = (own.member + 1) * Sm90::kWarpChannels;
  const int frames = launch.segment_samples;
#pragma unroll 1
  for (int segment = 0; segment < args.tile_segments; ++segment) {
    Quad quad = quad_at(args, tile, segment * (args.segment_frames / Tile::kQuadFrames));
    // Behind the last item its own samples again: zeros would be scaled frame by frame.
    if (quad.item < 0) quad = {args.items.count - 1, 0};
    const Item item = item_at<sizeof(X), sizeof(X)>(args.items, quad.item);
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
        const X* x = real ? static_cast<const X*>(item.x) + (first_channel + first_row) * item.x_channel_stride + t
                          : static_cast<const X*>(args.d_mix);
        const std::int64_t stride = real ? plan.teams * item.x_channel_stride : 0;
        char* s_sample = s_rows + base * static_cast<int>(sizeof(X));
#pragma unroll 4
        for (int row = first_row; row < end_row; row += plan.teams) {
          const bool there = real && row < channels;
          if constexpr (sizeof(X) == 4) {
            sm90::copy_sample(s_sample, x, there);
          } else {
            *reinterpret_cast<X*>(s_sample) = there ? *x : from_float<X>(0.0f);
          }
          if (row + plan.teams < channels) x += stride;
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

// Asks for the slabs of a block of the usual layer, by one thread of warps that do nothing else.
template <Terms kTerms>
__device__ __forceinline__ void copy_role(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                          const CUtensorMap* map, TileRange range) {
  const Sm90Plan& plan = launch.plan;
  using Roles = Sm90Roles<false, true>;
  const bool leads = threadIdx.x == 32 * (Roles::kMixWarps + Roles::kDepthwiseWarps);
  const auto copy = [&](int index, int slot) {
    copy_slab(args, launch, map, range.tile(index), 0, s.s_slabs + slot * plan.slab_bytes, &s.s_slab_full[slot]);
  };
  // Two on the way are enough at first: further ones would be in the way of those of blocks that begin later.
  const int first_slabs = min(plan.slots, 2);
  if (leads) {
#pragma unroll 1
    for (int slot = 0; slot < plan.slots; ++slot) {
      sm90::barrier_init(&s.s_slab_full[slot], 1);
      sm90::barrier_init(&s.s_slab_empty[slot], plan.parts * part_arrivals<kTerms>(plan));
    }
    for (int i = 0; i < SharedMemory::kHalfways; ++i) sm90::barrier_init(&s.s_halfway[i], plan.teams / 2);
    sm90::fence_barrier_init();
    sm90::prefetch_map(map);
    sm90::wait_for_previous_launch();
#pragma unroll 1
    for (int slot = 0; slot < min(first_slabs, range.count); ++slot) copy(slot, slot);
  }
  __syncthreads();  // all barriers are there
  if (!leads) return;
  RingPlace slot;
#pragma unroll 1
  for (int index = first_slabs; index < range.count; ++index) {
    if (index < plan.slots) {
      sm90::barrier_wait(&s.s_slab_full[index - first_slabs], 0);
      copy(index, index);
      continue;
    }
    sm90::barrier_wait(&s.s_slab_empty[slot.index], slot.parity);
    copy(index, slot.index);
    slot.advance(plan.slots);
  }
}

template <typename X, Terms kTerms, int kTaps, int kDilation, bool kPointwise, bool kWide>
__device__ __forceinline__ void depthwise_role(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                               const CUtensorMap* map, TileRange range) {
  constexpr bool kSilu = kTaps > 0 && !kPointwise;  // kernels of a compiled size are for SiLU alone
  const Sm90Plan& plan = launch.plan;
  const Team own(plan);
  const int row = own.row();
  const int slabs = kWide ? range.count * plan.passes : range.count;
  // Asked for before the copies, behind which they would wait.
  ThreadTaps<kTaps> taps(args, s, row);

  std::uint64_t* s_slab_full = s.s_slab_full + own.crew * launch.slots;
  std::uint64_t* s_slab_empty = s.s_slab_empty + own.crew * launch.slots;
  char* s_slabs = s.s_slabs + own.crew * (plan.slots * plan.slab_bytes);
  const auto copy = [&](int index, int slot) {
    const PassPlace<kWide> place(plan, index);
    copy_slab(args, launch, map, range.tile(place.index), place.first_channel(), s_slabs + slot * plan.slab_bytes,
              &s_slab_full[slot]);
  };
  const auto gather = [&](int index, int slot) {
    const PassPlace<kWide> place(plan, index);
    gather_rows<X>(args, launch, own, range.tile(place.index), place.first_channel(),
                   s_slabs + slot * launch.slab_bytes, &s_slab_full[slot]);
  };
  // A crew's first bulk copies go out before all else, by the lane that sets up its ring.
  if (own.team == 0 && own.leads() && own.crew < plan.crews) {
#pragma unroll 1
    for (int slot = 0; slot < launch.slots; ++slot) {
      sm90::barrier_init(&s_slab_full[slot], launch.gather ? 32 * plan.teams * plan.team_warps : 1);
      sm90::barrier_init(&s_slab_empty[slot],
                         plan.parts * (launch.gather ? 32 * plan.team_warps : part_arrivals<kTerms>(plan)));
    }
    sm90::fence_barrier_init();
    if (!launch.gather) {
      sm90::prefetch_map(map);
      sm90::wait_for_previous_launch();
#pragma unroll 1
      for (int slot = 0; slot < launch.slots; ++slot) {
        const int index = own.crew + slot * plan.crews;
        if (index < slabs) copy(index, slot);
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
      if (index < slabs) gather(index, slot);
    }
  }

  RingPlace slot;
  RingPlace stage;
  int part = own.team;  // of the current tile, or beyond; a crew has no more teams than a tile has parts
#pragma unroll 1
  for (int index = own.crew; index < slabs; index += plan.crews) {
    const int first_channel = PassPlace<kWide>(plan, index).first_channel();
    // The next pass's, asked for a slab ahead.
    [[maybe_unused]] const ThreadTaps<kTaps> next_taps(
        args, s, kWide ? PassPlace<kWide>(plan, index + plan.crews).first_channel() + row : row);
    sm90::barrier_wait(&s_slab_full[slot.index], slot.parity);
    const int later = index + launch.slots * plan.crews;
    const int stage_index = own.crew * plan.stages + stage.index;
    bool stage_is_free = false;
#pragma unroll 1
    for (; part < plan.parts; part += plan.teams) {
      const char* s_row = s_slabs + slot.index * launch.slab_bytes + row * launch.row_bytes;
      Part a;
      sum_taps<X, kTaps, kDilation, false>(args, launch, taps, s_row, part, a);
      const auto wait_for_stage = [&](std::uint32_t) {
        if (!stage_is_free) sm90::barrier_wait(&s.s_stage_empty[stage_index], stage.parity ^ 1);
        stage_is_free = true;
      };
      store_part<kTerms, kSilu, kPointwise>(
          args, launch, s, own, a, first_channel, stage_index, part, wait_for_stage, [&](int frame) {
            return sum_taps_of_frame<X, kTaps, false>(args, launch, taps, s_row, 4 * part + frame / 4, frame % 4,
                                                      first_channel + row);
          });
      if (launch.gather) {
        sm90::barrier_arrive(&s_slab_empty[slot.index]);  // every lane, for its own reads
      } else if (own.arrives<kTerms>() && sm90::barrier_arrive_last(&s_slab_empty[slot.index], 1) && later < slabs) {
        sm90::barrier_wait(&s_slab_empty[slot.index], slot.parity);  // over, but now seen to be
        copy(later, slot.index);
      }
    }
    part -= plan.parts;
    if (launch.gather && later < slabs) {
      sm90::barrier_wait(&s_slab_empty[slot.index], slot.parity);
      gather(later, slot.index);
    }
    if constexpr (kWide) taps = next_taps;
    slot.advance(launch.slots);
    stage.advance(plan.stages);
  }
}

// Asks for a block's first slab in the second-level cache, while the launch before ends: what that still writes reaches
// this cache too. By the depthwise's threads, `kRowThreads` for each row.
template <typename X>
__device__ __forceinline__ void prefetch_first_slab(const BlockArgs& args, const Sm90Launch& launch, TileRange range) {
  constexpr int kRowThreads = 32 * Sm90Roles<false, true>::kDepthwiseWarps / Tile::kPassChannels;
  constexpr int kLineFrames = 128 / static_cast<int>(sizeof(X));
  const int thread = static_cast<int>(threadIdx.x) - 32 * Sm90::kMixWarps;
  const Item& item = args.items.first;
  const TilePlace place = place_of(args, launch, range.tile(0));
  const auto* x =
      static_cast<const X*>(item.x) + place.item * args.items.x_stride + thread / kRowThreads * item.x_channel_stride;
  const int first = place.tile_of_item * Tile::kFrames - args.left_frames - launch.before_samples;
  const int last = first + launch.row_bytes / static_cast<int>(sizeof(X)) - 1;
#pragma unroll 1
  for (int frame = first + thread % kRowThreads * kLineFrames; frame < last + kLineFrames;
       frame += kRowThreads * kLineFrames) {
    const int real = max(min(frame, min(last, static_cast<int>(item.x_end) - 1)), static_cast<int>(item.x_begin));
    sm90::prefetch(x + real);
  }
}

// The same for the usual layer: one crew, with a team for each part of a tile. With two terms the second half of the
// teams begins a tile when the first is half through with it: then not all wait for the special functions at one time,
// and for shared memory at another.
template <typename X, Terms kTerms, int kTaps, int kDilation>
__device__ __forceinline__ void usual_depthwise_role(const BlockArgs& args, const Sm90Launch& launch,
                                                     const SharedMemory& s, TileRange range) {
  constexpr bool kHalves = kTerms == Terms::kTwoFloat16;
  const Sm90Plan& plan = launch.plan;
  const Team own(plan, true);
  const int row = own.row();
  const int part = own.team;
  const bool second_half = kHalves && own.team >= plan.teams / 2;
  prefetch_first_slab<X>(args, launch, range);
  const ThreadTaps<kTaps> taps(args, s, row);
  __syncthreads();  // all barriers are there
  RingPlace slot;
#pragma unroll 1
  for (int index = 0; index < range.count; ++index) {
    const int stage = index % plan.stages;
    sm90::barrier_wait(&s.s_slab_full[slot.index], slot.parity);
    // The first half gets no further ahead than a tile, since it waits for stages: two barriers are enough.
    std::uint64_t* s_halfway = &s.s_halfway[index % SharedMemory::kHalfways];
    if (second_half) sm90::barrier_wait(s_halfway, index / SharedMemory::kHalfways % 2);
    const char* s_row = s.s_slabs + slot.index * launch.slab_bytes + row * launch.row_bytes;
    Part a;
    sum_taps<X, kTaps, kDilation, true>(args, launch, taps, s_row, part, a);
    const auto wait_for_stage = [&](std::uint32_t terms) {
      sm90::barrier_wait(&s.s_stage_empty[stage], index / plan.stages % 2 ^ 1);
      if (kHalves && !second_half && own.leads()) sm90::barrier_arrive_knowing(terms, s_halfway);
    };
    store_part<kTerms, true, false>(args, launch, s, own, a, 0, stage, part, wait_for_stage, [&](int frame) {
      return sum_taps_of_frame<X, kTaps, true>(args, launch, taps, s_row, 4 * part + frame / 4, frame % 4, row);
    });
    if (own.arrives<kTerms>()) sm90::barrier_arrive(&s.s_slab_empty[slot.index]);
    slot.advance(plan.slots);
  }
}

}  // namespace
}  // namespace halotap::kernels::cuda
