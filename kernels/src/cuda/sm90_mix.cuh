// The mix of a block (sm90_kernels.cuh): products of weights in registers with the stages of the depthwise, and stores.
#pragma once

#include <type_traits>
#include <utility>

#include "cuda/sm90_tile.cuh"

namespace halotap::kernels::cuda {
namespace {

template <typename Y>
__device__ __forceinline__ void store_quad(Y* y, const float (&quad)[4]);
template <>
__device__ __forceinline__ void store_quad<float>(float* y, const float (&quad)[4]) {
  // Written out, here and below: the compiler has been seen to store such a quad number by number.
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(y), "f"(quad[0]), "f"(quad[1]), "f"(quad[2]),
               "f"(quad[3])
               : "memory");
}
__device__ __forceinline__ void store_pairs(void* y, uint2 pairs) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(y), "r"(pairs.x), "r"(pairs.y) : "memory");
}
template <>
__device__ __forceinline__ void store_quad<__nv_bfloat16>(__nv_bfloat16* y, const float (&quad)[4]) {
  const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(quad[0], quad[1]), __floats2bfloat162_rn(quad[2], quad[3])};
  store_pairs(y, *reinterpret_cast<const uint2*>(pairs));
}
template <>
__device__ __forceinline__ void store_quad<__half>(__half* y, const float (&quad)[4]) {
  const __half2 pairs[2] = {__floats2half2_rn(quad[0], quad[1]), __floats2half2_rn(quad[2], quad[3])};
  store_pairs(y, *reinterpret_cast<const uint2*>(pairs));
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

// Where a thread's first quad of an item's first tile lies in y, for the 16 rows of a warp.
template <typename X>
__device__ __forceinline__ X* first_quad(const BlockArgs& args, int first_row) {
  const Item& item = args.items.first;
  const auto lane = static_cast<int>(threadIdx.x % 32);
  return static_cast<X*>(item.y) + (first_row + lane / 4) * item.y_channel_stride + Tile::kQuadFrames * (lane % 4);
}

// As store_quads, for the usual layer: no quad has a branch of its own. What addresses take of the row is computed for
// each tile anew, or it would take registers all the time. kResidual: all of x is asked for before any of it is added;
// that takes more registers than a kernel with taps in a loop has.
template <typename X, bool kResidual>
__device__ __forceinline__ void store_usual_quads(const BlockArgs& args, const TilePlace& place, int row,
                                                  const float2 (&rows)[2], const float (&sums)[8][4]) {
  if (!kResidual && args.residual) {
    store_quads<X, false>(args, place, Tile::kFrames, sm90::opaque(row), rows, sums);
    return;
  }
  const Item& item = args.items.first;
  const int quad_frame = Tile::kQuadFrames * static_cast<int>(threadIdx.x % 4);
  const std::int64_t tile_frame = std::int64_t{place.tile_of_item} * Tile::kFrames;
  // Frames that are left for this thread's first quad and on.
  const int left = static_cast<int>(min(item.frames - tile_frame, std::int64_t{Tile::kFrames})) - quad_frame;
  // The tile's share of the address is one number, or the compiler would mix it with the row's.
  std::int64_t y_tile = (place.item * args.items.y_stride + tile_frame) * static_cast<int>(sizeof(X));
  asm volatile("" : "+l"(y_tile));
  X* y_row = first_quad<X>(args, sm90::opaque(row) - static_cast<int>(threadIdx.x % 32 / 4));
  auto* y = reinterpret_cast<X*>(reinterpret_cast<char*>(y_row) + y_tile);
  float quads[2][4][4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int part = 0; part < 4; ++part) finish_quad(sums, part, h, rows[h].x, rows[h].y, quads[h][part]);
  }
  if (kResidual && args.residual) {
    const std::int64_t x_tile = place.item * args.items.x_stride + tile_frame;
    const auto* x = static_cast<const X*>(item.x) + x_tile + sm90::opaque(row) * item.x_channel_stride + quad_frame;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        if (Sm90::kPartFrames * part >= left) continue;
        float added[4];
        load_quad<X>(added, reinterpret_cast<const char*>(x + Sm90::kPartFrames * part));
#pragma unroll
        for (int f = 0; f < 4; ++f) quads[h][part][f] += added[f];
      }
      x += 8 * item.x_channel_stride;
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      if (Sm90::kPartFrames * part < left) store_quad(y + Sm90::kPartFrames * part, quads[h][part]);
    }
    y += 8 * item.y_channel_stride;
  }
}

// Of four lanes side by side, each with a row of a 4 x 4 matrix, lane i gets column i.
__device__ __forceinline__ void transpose_quads(float (&row)[4]) {
#pragma unroll
  for (int apart = 1; apart < 4; apart *= 2) {
    const bool upper = (threadIdx.x & apart) != 0;
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const int first = apart == 1 ? 2 * pair : pair;
      float& kept = row[first];
      float& other = row[first + apart];
      const float got = __shfl_xor_sync(0xffffffffu, upper ? kept : other, apart);
      (upper ? kept : other) = got;
    }
  }
}

// Stores any tile, sample by sample: four lanes side by side four frames side by side, if those are of one item.
template <typename X, bool kPointwise>
__device__ __forceinline__ void store_samples(const BlockArgs& args, const Sm90Plan& plan, std::int64_t tile,
                                              const TilePlace& tile_place, int row, const float2 (&rows)[2],
                                              const float (&sums)[8][4]) {
  const bool across = args.tile_segments == 1;
  const int own = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    if (part >= plan.parts) break;
    Quad place = {tile_place.item,
                  std::int64_t{tile_place.tile_of_item} * plan.tile_frames + Sm90::kPartFrames * part + own};
    if (!across) place = quad_at(args, tile, 4 * part + own);
    const int step = across ? 4 : 1;  // frames from one of a lane's four to the next
    const bool any = place.item >= 0;
    const Item item = any ? item_at<sizeof(X), sizeof(X)>(args.items, place.item) : Item{};
    const auto* x = static_cast<const X*>(item.x) + row * item.x_channel_stride + place.frame;
    auto* y = static_cast<X*>(item.y) + row * item.y_channel_stride + place.frame;
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
      if (across) transpose_quads(value);
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        const std::int64_t frame = place.frame + step * f;
        if (!any || frame >= item.frames) break;
        if (args.residual && frame >= item.x_begin && frame < item.x_end) value[f] += to_float(x[step * f]);
        y[step * f] = from_float<X>(frame >= item.y_begin && frame < item.y_end ? value[f] : 0.0f);
      }
      x += 8 * item.x_channel_stride;
      y += 8 * item.y_channel_stride;
    }
  }
}

// The products of one tile, `kSteps` times 16 channels. The corrections come first: added to a sum that is already
// large they would be rounded with it again and again. `after_low` is called when the low weights are no longer needed,
// while the other products go on.
template <Terms kTerms, typename AfterLow, int... kStep>
__device__ __forceinline__ void multiply_steps(float (&sums)[8][4], const uint4 (&high)[Sm90::kMaxSteps],
                                               const uint4 (&low)[kTerms == Terms::kTwoFloat16 ? Sm90::kMaxSteps : 1],
                                               std::uint32_t b, const AfterLow& after_low,
                                               std::integer_sequence<int, kStep...>) {
  constexpr int kSteps = sizeof...(kStep);
  constexpr bool kBfloat16 = kTerms == Terms::kBfloat16;
  sm90::products_begin();
  if constexpr (kTerms == Terms::kTwoFloat16) {
    (sm90::multiply_add<kBfloat16, (kStep > 0), kStep * kStepBytes>(sums, low[kStep], b), ...);
    if constexpr (!std::is_null_pointer_v<AfterLow>) sm90::products_commit();
    (sm90::multiply_add<kBfloat16, true, (kSteps + kStep) * kStepBytes>(sums, high[kStep], b), ...);
  }
  (sm90::multiply_add<kBfloat16, (kTerms == Terms::kTwoFloat16 || kStep > 0), kStep * kStepBytes>(sums, high[kStep], b),
   ...);
  sm90::products_commit();
  if constexpr (!std::is_null_pointer_v<AfterLow>) {
    if constexpr (kTerms == Terms::kTwoFloat16) sm90::products_wait<1>();
    after_low();
  }
  sm90::products_wait<0>();
}

template <Terms kTerms, typename AfterLow>
__device__ __forceinline__ void multiply(float (&sums)[8][4], const uint4 (&high)[Sm90::kMaxSteps],
                                         const uint4 (&low)[kTerms == Terms::kTwoFloat16 ? Sm90::kMaxSteps : 1],
                                         std::uint32_t b, int steps, const AfterLow& after_low) {
  switch (steps) {
    case 1:
      return multiply_steps<kTerms>(sums, high, low, b, after_low, std::make_integer_sequence<int, 1>());
    case 2:
      return multiply_steps<kTerms>(sums, high, low, b, after_low, std::make_integer_sequence<int, 2>());
    case 4:
      return multiply_steps<kTerms>(sums, high, low, b, after_low, std::make_integer_sequence<int, 4>());
    default:
      return multiply_steps<kTerms>(sums, high, low, b, after_low, std::make_integer_sequence<int, 8>());
  }
}

// The terms of a stage as an operand. The same in all lanes, which the compiler does not see by itself: descriptors
// then live in uniform registers.
__device__ __forceinline__ std::uint32_t uniform_operand(const char* s_stage) {
  return __shfl_sync(0xffffffffu, sm90::operand(s_stage, kStrideBytes), 0);
}

// The two warpgroups multiply in turn, so that one multiplies while the other stores.
__device__ __forceinline__ void take_turn(int warpgroup) {
  asm volatile("bar.sync %0, 256;" ::"r"(Sm90::kTurnBarrier + warpgroup) : "memory");
}
__device__ __forceinline__ void give_turn(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" ::"r"(Sm90::kTurnBarrier + 1 - warpgroup) : "memory");
}

// Asks for one term of the weights of 16 rows and `steps` times 16 channels.
__device__ __forceinline__ void load_weights(uint4 (&weights)[Sm90::kMaxSteps], const uint4* d_weights, int steps) {
#pragma unroll
  for (int step = 0; step < Sm90::kMaxSteps; ++step) {
    if (step >= steps) break;
    weights[step] = d_weights[step * 32];
  }
}

// Brings the sums of frames that have a scale of their own to what they would be had they the common one.
__device__ __forceinline__ void to_common_scale(float (&sums)[8][4], const SharedMemory& s, int stage_index) {
  const int4 scaled = *reinterpret_cast<const int4*>(s.s_scaled + stage_index * Sm90::kMaxParts);
  if ((scaled.x | scaled.y | scaled.z | scaled.w) == 0) return;
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    if ((part == 0 ? scaled.x : part == 1 ? scaled.y : part == 2 ? scaled.z : scaled.w) == 0) continue;
    const float4 inverse =
        reinterpret_cast<const float4*>(s.s_inverse)[stage_index * Tile::kQuads + 4 * part + threadIdx.x % 4];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sums[2 * part][2 * h] *= inverse.x * CommonScale::kScale;
      sums[2 * part][2 * h + 1] *= inverse.y * CommonScale::kScale;
      sums[2 * part + 1][2 * h] *= inverse.z * CommonScale::kScale;
      sums[2 * part + 1][2 * h + 1] *= inverse.w * CommonScale::kScale;
    }
  }
}

// What sums of a row are multiplied by, given its scale.
template <Terms kTerms>
__device__ __forceinline__ float scale_of_sums(float row_scale) {
  return has_scales(kTerms) ? row_scale * (1.0f / CommonScale::kScale) : row_scale;
}

// Stores 16 rows of a tile, from `first_row` on, by one warp.
template <typename X, bool kPointwise, Store kStore>
__device__ __forceinline__ void store_rows(const BlockArgs& args, const Sm90Plan& plan, std::int64_t tile,
                                           const TilePlace& place, int first_row, const float2 (&rows)[2],
                                           const float (&sums)[8][4]) {
  if (first_row >= args.out_channels) return;
  const int row = first_row + static_cast<int>(threadIdx.x % 32 / 4);
  if constexpr (kStore == Store::kQuads) {
    store_quads<X, kPointwise>(args, place, plan.tile_frames, row, rows, sums);
  } else {
    store_samples<X, kPointwise>(args, plan, tile, place, row, rows, sums);
  }
}

// The mix of a layer of several passes. The warpgroups take the tiles' rows of y in turn, 64 at a time; tiles come into
// their stages in order, each team having a part of all.
template <typename X, Terms kTerms, bool kPointwise, Store kStore>
__device__ __forceinline__ void mix_passes_role(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s,
                                                TileRange range) {
  const Sm90Plan& plan = launch.plan;
  const int warp = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x / 32), 0);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int all_steps = args.in_padded / Tile::kStepChannels;
  const RowRange own(launch);
  uint4 high[Sm90::kMaxSteps];
  uint4 low[kTerms == Terms::kTwoFloat16 ? Sm90::kMaxSteps : 1];
  const auto steps_of = [&](int pass) { return min(all_steps - pass * Sm90::kMaxSteps, Sm90::kMaxSteps); };

  // A place in the order in which this warpgroup multiplies: tiles, rows of y, passes.
  struct Place {
    int index;  // of the tile
    int row_block;
    int pass;
  };
  const auto settle = [&](Place& place) {
    while (place.row_block >= own.count) {
      place.row_block -= own.count;
      ++place.index;
    }
  };
  const auto row_tile_of = [&](const Place& place) { return 4 * (own.first + place.row_block) + warp % 4; };
  const auto load = [&](auto& weights, int term, const Place& place) {
    if (place.index >= range.count) return;
    const std::int64_t step = static_cast<std::int64_t>(row_tile_of(place)) * all_steps + place.pass * Sm90::kMaxSteps;
    load_weights(weights, static_cast<const uint4*>(args.d_mix) + term * (args.term_bytes / 16) + step * 32 + lane,
                 steps_of(place.pass));
  };

  // With one block of rows and stages of one tile, a warpgroup would wait for the second phase of a stage whose first
  // it does not know to be over; so then the first takes all tiles.
  const bool in_turn = own.count > 1 || plan.stages > plan.passes;
  Place place{in_turn || warp < 4 ? 0 : range.count, in_turn ? warp / 4 : 0, 0};
  settle(place);
  if constexpr (kTerms == Terms::kTwoFloat16) load(low, 1, place);
  load(high, 0, place);
  __syncthreads();  // all barriers are there; the weights may still be on their way
  sm90::wait_for_previous_launch();
  float sums[8][4];
#pragma unroll 1
  while (place.index < range.count) {
    Place next = place;
    if (++next.pass == plan.passes) {
      next.pass = 0;
      next.row_block += in_turn ? 2 : 1;
      settle(next);
    }
    const int slab = place.index * plan.passes + place.pass;
    const int turn = slab / plan.stages;
    const int stage_index = slab - turn * plan.stages;
    sm90::barrier_wait(&s.s_stage_full[stage_index], static_cast<std::uint32_t>(turn & 1));
    sm90::fence_for_async_reads();
    float products[8][4];
    const char* s_stage = s.s_stages + stage_index * plan.stage_bytes;
    multiply<kTerms>(products, high, low, uniform_operand(s_stage), steps_of(place.pass), [&] {
      if constexpr (kTerms == Terms::kTwoFloat16) load(low, 1, next);
    });
    load(high, 0, next);
    if constexpr (has_scales(kTerms)) to_common_scale(products, s, stage_index);
    __syncwarp();
    if (lane == 0) sm90::barrier_arrive(&s.s_stage_empty[stage_index]);
    if (place.pass == 0) {
#pragma unroll
      for (int i = 0; i < 32; ++i) sums[i / 4][i % 4] = products[i / 4][i % 4];
    } else {
#pragma unroll
      for (int i = 0; i < 32; ++i) sums[i / 4][i % 4] += products[i / 4][i % 4];
    }
    if (place.pass + 1 == plan.passes) {
      const std::int64_t tile = range.tile(place.index);
      const int first_row = row_tile_of(place) * 16;
      float2 rows[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first_row + lane / 4 + 8 * h;
        rows[h] = make_float2(scale_of_sums<kTerms>(args.d_row_scale[row]), args.d_mix_bias[row]);
      }
      store_rows<X, kPointwise, kStore>(args, plan, tile, place_of(args, launch, tile), first_row, rows, sums);
    }
    place = next;
  }
}

template <typename X, Terms kTerms, int kTaps, bool kPointwise, Store kStore, bool kRing>
__device__ __forceinline__ void mix_role(const BlockArgs& args, const Sm90Launch& launch, const SharedMemory& s) {
  const Sm90Plan& plan = launch.plan;
  constexpr bool kUsual = kStore == Store::kUsualQuads;
  const auto warp = static_cast<int>(__shfl_sync(0xffffffffu, threadIdx.x / 32, 0) % Sm90::kMixWarps);
  const int warpgroup = warp / 4;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int first_row_block = kUsual ? 0 : 2 * static_cast<int>(blockIdx.y);
  const bool alone = plan.row_blocks - first_row_block < 2;
  const int row_block = first_row_block + (alone ? 0 : warpgroup);
  const int row_tile = 4 * row_block + warp % 4;
  const int steps = args.in_padded / Tile::kStepChannels;

  // Scale and bias of the warp's own 16 rows.
  float2* s_rows = s.s_rows + 64 * warpgroup + 16 * (warp % 4);
  uint4 high[Sm90::kMaxSteps];
  uint4 low[kTerms == Terms::kTwoFloat16 ? Sm90::kMaxSteps : 1];
  const auto* weights = static_cast<const uint4*>(args.d_mix) + static_cast<std::int64_t>(row_tile) * steps * 32 + lane;
  load_weights(high, weights, steps);
  if constexpr (kTerms == Terms::kTwoFloat16) load_weights(low, weights + args.term_bytes / 16, steps);
  float2 own_row = {};
  if (lane < 16) own_row = make_float2(args.d_row_scale[row_tile * 16 + lane], args.d_mix_bias[row_tile * 16 + lane]);
  __syncthreads();  // all barriers are there; the weights may still be on their way
  if (lane < 16) s_rows[lane] = make_float2(scale_of_sums<kTerms>(own_row.x), own_row.y);
  __syncwarp();

  sm90::wait_for_previous_launch();
  // Where there is no second block of rows the warpgroups take tiles in turn, if that leaves each stage to one of them:
  // who waits for a phase must know that the phase before is over. Else the first takes all.
  const bool in_turn = alone && plan.crews * plan.stages % 2 == 0;
  if (alone && !in_turn && warpgroup == 1) return;
  // Stages in the order of tiles: a crew's next one in turn.
  TileCursor<kRing> cursor(args, launch);
  int crew = 0;
  RingPlace stage;
  const auto advance = [&] {
    cursor.advance(args, launch);
    if (++crew == plan.crews) {
      crew = 0;
      stage.advance(plan.stages);
    }
  };
  if (!alone && warpgroup == 1 && cursor.there()) give_turn(warpgroup);
  if (in_turn && warpgroup == 1 && cursor.there()) advance();
#pragma unroll 1
  while (cursor.there()) {
    const int stage_index = crew * plan.stages + stage.index;
    const char* s_stage = s.s_stages + stage_index * plan.stage_bytes;
    const bool last = cursor.last();
    const std::int64_t tile = cursor.tile(args);
    const TilePlace place = cursor.place(args, launch);
    sm90::barrier_wait(&s.s_stage_full[stage_index], stage.parity);
    sm90::fence_for_async_reads();
    float sums[8][4];
    if (!alone) take_turn(warpgroup);
    multiply<kTerms>(sums, high, low, uniform_operand(s_stage), steps, nullptr);
    if (!alone && (warpgroup == 0 || !last)) give_turn(warpgroup);
    if constexpr (has_scales(kTerms)) to_common_scale(sums, s, stage_index);
    __syncwarp();
    if (lane == 0) sm90::barrier_arrive(&s.s_stage_empty[stage_index]);
    advance();
    if (in_turn && !last) advance();
    const float2 rows[2] = {s_rows[lane / 4], s_rows[lane / 4 + 8]};
    if constexpr (kUsual) {
      store_usual_quads<X, (kTaps > 0)>(args, place, row_tile * 16 + static_cast<int>(threadIdx.x % 32 / 4), rows,
                                        sums);
    } else {
      store_rows<X, kPointwise, kStore>(args, plan, tile, place, row_tile * 16, rows, sums);
    }
  }
}

}  // namespace
}  // namespace halotap::kernels::cuda
