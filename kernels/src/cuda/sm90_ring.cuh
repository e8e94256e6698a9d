// The depthwise of a block whose taps lie whole chunks apart (sm90_kernels.cuh): x goes through a ring, so that frames
// which several taps and tiles read come into shared memory once.
#pragma once

#include "cuda/sm90_depthwise.cuh"
#include "cuda/sm90_tile.cuh"

namespace halotap::kernels::cuda {
namespace {

// A chunk is 32 frames of every channel, channel after channel, the eight quads of a channel in an order, quad ^
// channel % 8, in which the lanes' reads meet in no bank. The dilation is a multiple of a chunk's frames, so whatever
// the tap, a part's samples lie at the same place of some chunk.
constexpr int kChunkParts = Sm90::kChunkFrames / Sm90::kPartFrames;

// A run's chunks, numbered from the first that a tap reads.
struct RunChunks {
  int apart;   // from one tap's chunk to the next one's: 1 or 2, no more than a tile has
  int beside;  // of no tile of the run, before and behind it

  __device__ __forceinline__ explicit RunChunks(const BlockArgs& args)
      : apart(args.dilation / Sm90::kChunkFrames), beside((args.taps - 1) * apart) {}
  __device__ __forceinline__ int count(const Run& run) const { return beside + run.tiles * Sm90::kTileChunks; }
};

// Queues the copy of one chunk of a run. One thread.
__device__ __forceinline__ void copy_chunk(const BlockArgs& args, const Sm90Launch& launch, const CUtensorMap* map,
                                           const Run& run, int chunk, const SharedMemory& s, int slot) {
  sm90::barrier_arrive_expecting(&s.s_slab_full[slot], launch.plan.slab_bytes);
  const std::int64_t frame = std::int64_t{run.first.tile_of_item} * Tile::kFrames +
                             std::int64_t{chunk} * Sm90::kChunkFrames - args.left_frames - args.items.first.x_begin;
  sm90::copy_box(s.s_slabs + slot * launch.plan.slab_bytes, map, &s.s_slab_full[slot], static_cast<int>(frame), 0,
                 run.first.item);
}

// One crew, each team of which has a part of every tile.
template <Terms kTerms>
__device__ __forceinline__ void ring_depthwise_role(const BlockArgs& args, const Sm90Launch& launch,
                                                    const SharedMemory& s, const CUtensorMap* map) {
  static_assert(has_scales(kTerms), "a team arrives as one");
  const Sm90Plan& plan = launch.plan;
  const Team own(plan);
  const int row = own.row();
  const ThreadTaps<0> taps(args, s, row);
  const RunChunks chunks(args);

  Run run = Run::first_of_block(args, launch);
  if (own.team == 0 && own.leads()) {
    sm90::prefetch_map(map);
#pragma unroll 1
    for (int slot = 0; slot < plan.slots; ++slot) {
      sm90::barrier_init(&s.s_slab_full[slot], 1);
      sm90::barrier_init(&s.s_slab_empty[slot], args.taps * kChunkParts);
    }
    sm90::fence_barrier_init();
    sm90::wait_for_previous_launch();
    Run copied = run;
    int chunk = 0;
#pragma unroll 1
    for (int slot = 0; slot < plan.slots && copied.there(launch); ++slot) {
      copy_chunk(args, launch, map, copied, chunk, s, slot);
      if (++chunk == chunks.count(copied)) {
        chunk = 0;
        copied.advance(args, launch);
      }
    }
  }
  __syncthreads();  // all barriers are there
  if (own.crew >= plan.crews) return;

  // Where a chunk lies: its slot, and the parity of that slot's phase.
  struct Place {
    int slot;
    std::uint32_t parity;
  };
  const auto moved = [&](Place place, int by) {
    place.slot += by;
    while (place.slot >= plan.slots) {
      place.slot -= plan.slots;
      place.parity ^= 1;
    }
    return place;
  };
  const char* s_channel = s.s_slabs + row * Sm90::kChunkRowBytes;
  const int flip = row % 8;
  Place first{0, 0};    // of the run
  int first_tile = 0;   // of the run, counted over the block
  int part = own.team;  // of the run, or beyond
#pragma unroll 1
  for (; run.there(launch); run.advance(args, launch)) {
    const int parts = run.tiles * Sm90::kMaxParts;
#pragma unroll 1
    for (; part < parts; part += plan.teams) {
      const int chunk = part / kChunkParts;  // of the first tap, of the run
      const int first_quad = part % kChunkParts * kQuads;
      const Place begin = moved(first, chunk);
      Part a;
#pragma unroll
      for (int i = 0; i < Sm90::kPartFrames; ++i) a[i / 4][i % 4] = taps.bias;
      Place place = begin;
      const float* s_tap = taps.s_taps;
#pragma unroll 1
      for (int k = 0; k < args.taps; ++k) {
        sm90::barrier_wait(&s.s_slab_full[place.slot], place.parity);
        const float tap = *s_tap;
        const char* s_chunk = s_channel + place.slot * plan.slab_bytes;
        Part samples;
#pragma unroll
        for (int q = 0; q < kQuads; ++q) load_quad<float>(samples[q], s_chunk + ((first_quad + q) ^ flip) * 16);
#pragma unroll
        for (int i = 0; i < Sm90::kPartFrames; ++i) {
          a[i / 4][i % 4] = fmaf(tap, samples[i / 4][i % 4], a[i / 4][i % 4]);
        }
        place = moved(place, chunks.apart);
        s_tap += args.in_padded;
      }

      const int tile = first_tile + part / Sm90::kMaxParts;
      const int turn = tile / plan.stages;
      const int stage = tile - turn * plan.stages;
      store_part<kTerms, false, false>(
          args, launch, s, own, a, 0, stage, part % Sm90::kMaxParts,
          [&](std::uint32_t) { sm90::barrier_wait(&s.s_stage_empty[stage], static_cast<std::uint32_t>(turn & 1) ^ 1); },
          [&](int frame) {
            float z = taps.bias;
            Place sample = begin;
            const float* s_sample_tap = taps.s_taps;
            const int offset = ((first_quad + frame / 4) ^ flip) * 16 + frame % 4 * 4;
#pragma unroll 1
            for (int k = 0; k < args.taps; ++k) {
              const char* s_sample = s_channel + sample.slot * plan.slab_bytes + offset;
              z = fmaf(*s_sample_tap, *reinterpret_cast<const float*>(s_sample), z);
              sample = moved(sample, chunks.apart);
              s_sample_tap += args.in_padded;
            }
            return z;
          });

      // The team has read its part of one chunk a tap. Each chunk waits for a reader a tap; where the run's ends leave
      // some out, the first and the last of the others arrive for them.
      if (own.leads()) {
        place = begin;
#pragma unroll 1
        for (int k = 0; k < args.taps; ++k) {
          int arrivals = 1;
          if (chunk + chunks.apart >= run.tiles * Sm90::kTileChunks) arrivals += k;
          if (chunk < chunks.apart) arrivals += args.taps - 1 - k;
          std::uint64_t* s_empty = &s.s_slab_empty[place.slot];
          if (sm90::barrier_arrive_last(s_empty, arrivals)) {
            Run later = run;
            int later_chunk = chunk + k * chunks.apart + plan.slots;
            while (later.there(launch) && later_chunk >= chunks.count(later)) {
              later_chunk -= chunks.count(later);
              later.advance(args, launch);
            }
            if (later.there(launch)) {
              sm90::barrier_wait(s_empty, place.parity);  // over, but now seen to be
              copy_chunk(args, launch, map, later, later_chunk, s, place.slot);
            }
          }
          place = moved(place, chunks.apart);
        }
      }
    }
    part -= parts;
    first = moved(first, chunks.count(run));
    first_tile += run.tiles;
  }
}

}  // namespace
}  // namespace halotap::kernels::cuda
