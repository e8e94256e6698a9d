#include "cuda/sm90_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cuda/block_args.hpp"
#include "cuda/sm90_kernels.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::draw;
using test::Random;
using test::toss;

LayerSpec spec_of(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size,
                  std::int64_t dilation) {
  LayerSpec spec;
  spec.name = "layer";
  spec.in_channels = in_channels;
  spec.out_channels = out_channels;
  spec.kernel_size = kernel_size;
  spec.dilation = dilation;
  return spec;
}

TEST(Sm90Plan, TakesTheBatchShapeWithCompiledTapsAndTilesOnTheWay) {
  const auto plan = sm90_plan(spec_of(128, 128, 5, 2), {});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->taps, 5);
  EXPECT_EQ(plan->dilation, 2);
  EXPECT_TRUE(plan->bulk);
  EXPECT_EQ(plan->lead, 0);
  EXPECT_EQ(plan->tile_frames, 64);
  EXPECT_EQ(plan->team_warps, 4);
  EXPECT_EQ(plan->teams, 3);
  EXPECT_EQ(plan->crews, 1);
  EXPECT_EQ(plan->slots, 4);
  EXPECT_EQ(plan->stages, 2);
}

TEST(Sm90Plan, IsThatOfTheUsualLayersKernelsButForItsTeams) {
  for (const std::int64_t kernel_size : {3, 5, 31}) {
    for (const std::int64_t dilation : {1, 2}) {
      for (const Element element : {Element::kFloat32, Element::kBfloat16}) {
        for (const Math math : {Math::kFp32, Math::kTf32, Math::kBf16}) {
          const LayerSpec spec = spec_of(128, 128, kernel_size, dilation);
          const BlockOptions options{math, element, element};
          const auto plan = sm90_plan(spec, options);
          ASSERT_TRUE(plan);
          BlockArgs args;
          args.taps = static_cast<std::int32_t>(kernel_size);
          Sm90Launch launch;
          launch.plan = *plan;
          set_usual(static_cast<int>(element_bytes(element)), terms_of(options), plan->taps, static_cast<int>(dilation),
                    args, launch);
          EXPECT_EQ(launch.plan.teams, launch.plan.parts);
          launch.plan.teams = plan->teams;
          EXPECT_TRUE(launch.plan == *plan);
          EXPECT_EQ(args.taps, kernel_size);
        }
      }
    }
  }
}

TEST(Sm90Plan, KeepsEveryWarpBusyWithFewChannels) {
  EXPECT_EQ(sm90_plan(spec_of(16, 16, 5, 2), {})->crews, 4);
  EXPECT_EQ(sm90_plan(spec_of(64, 64, 5, 2), {})->crews, 2);
  EXPECT_EQ(sm90_plan(spec_of(96, 96, 5, 2), {})->teams, 4);
}

TEST(Sm90Plan, ShortensTilesForLongHalos) {
  EXPECT_EQ(sm90_plan(spec_of(128, 128, 5, 16), {})->tile_frames, 64);
  EXPECT_EQ(sm90_plan(spec_of(128, 128, 9, 64), {})->tile_frames, 32);
}

TEST(Sm90Plan, BringsTapsThatLieWholeChunksApartThroughARing) {
  const auto plan = sm90_plan(spec_of(128, 128, 5, 64), {});
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->ring);
  EXPECT_EQ(plan->ring_slots, 11);  // eight of the halo, one of the tile, two on the way
  EXPECT_EQ(plan->ring_stages, 1);
  EXPECT_EQ(plan->ring_teams, 3);
  EXPECT_EQ(sm90_plan(spec_of(128, 128, 5, 32), {})->ring_stages, 2);
  EXPECT_TRUE(sm90_plan(spec_of(96, 64, 3, 64), {})->ring);
  EXPECT_FALSE(sm90_plan(spec_of(128, 128, 9, 64), {})->ring);   // too much halo
  EXPECT_FALSE(sm90_plan(spec_of(128, 128, 5, 48), {})->ring);   // taps in the midst of a chunk
  EXPECT_FALSE(sm90_plan(spec_of(128, 128, 3, 128), {})->ring);  // a chunk of a short run would have no reader
  EXPECT_FALSE(sm90_plan(spec_of(64, 64, 5, 64), {})->ring);
  EXPECT_FALSE(sm90_plan(spec_of(128, 128, 5, 64), {Math::kBf16, Element::kBfloat16, Element::kBfloat16})->ring);
}

TEST(Sm90Plan, LeavesOtherChannelCountsAndMixedSampleTypesToTheGenericBlock) {
  EXPECT_FALSE(sm90_plan(spec_of(120, 128, 5, 2), {}));
  EXPECT_FALSE(sm90_plan(spec_of(128, 120, 5, 2), {}));
  EXPECT_FALSE(sm90_plan(spec_of(896, 128, 5, 2), {}));  // too much for one block
  EXPECT_FALSE(sm90_plan(spec_of(128, 128, 513, 512), {}));
  EXPECT_FALSE(sm90_plan(spec_of(128, 128, 5, 2), {Math::kFp32, Element::kFloat32, Element::kBfloat16}));
  EXPECT_FALSE(sm90_plan(spec_of(128, 128, 5, 2), {.generic = true}));  // asked for
}

TEST(Sm90Plan, BeginsRowsEarlyWhereBulkCopiesAndQuadsOfTapsAskForIt) {
  const BlockOptions half{Math::kFp32, Element::kBfloat16, Element::kBfloat16};
  EXPECT_EQ(sm90_plan(spec_of(32, 32, 3, 1), {})->lead, 2);
  EXPECT_EQ(sm90_plan(spec_of(32, 32, 3, 1), {})->skipped_taps, 2);
  EXPECT_EQ(sm90_plan(spec_of(32, 32, 3, 1), half)->lead, 6);
  EXPECT_EQ(sm90_plan(spec_of(32, 32, 5, 2), half)->lead, 0);
  EXPECT_EQ(sm90_plan(spec_of(32, 32, 3, 3), {})->lead, 6);
  LayerSpec same = spec_of(32, 32, 2, 2);
  same.padding = Padding::kSame;
  EXPECT_FALSE(sm90_plan(same, {})->bulk);  // one frame to the left: no number of taps of dilation 2 makes that even
}

TEST(Sm90Plan, KeepsAllPassesOfATileInStages) {
  const auto plan = sm90_plan(spec_of(256, 256, 5, 2), {});
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->passes, 2);
  EXPECT_EQ(plan->row_blocks, 4);
  EXPECT_EQ(plan->stages, 4);  // those of the next tile too
  EXPECT_EQ(plan->slots, 2);
  EXPECT_EQ(sm90_plan(spec_of(512, 512, 5, 2), {})->stages, 4);
  EXPECT_EQ(sm90_plan(spec_of(640, 640, 5, 2), {})->slots, 1);
  EXPECT_EQ(sm90_plan(spec_of(1024, 64, 5, 2), {Math::kTf32})->passes, 8);
}

TEST(Sm90Plan, FitsAndAlignsWhateverTheLayer) {
  int taken = 0;
  int rings = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    Random random(seed);
    LayerSpec spec = spec_of(16 * draw(random, 1, toss(random) ? 8 : 64), 16 * draw(random, 1, 64),
                             draw(random, 1, draw(random, 1, 40)), draw(random, 1, draw(random, 1, 80)));
    if (seed % 10 == 0) spec.dilation = 32 * draw(random, 1, 2);  // a ring's
    if (spec.halo_frames() % 2 == 0 && toss(random)) spec.padding = Padding::kSame;
    const auto element = static_cast<Element>(draw(random, 0, 2));
    const auto plan = sm90_plan(spec, {static_cast<Math>(draw(random, 0, 3)), element, element});
    if (!plan) continue;
    ++taken;
    const std::int64_t bytes = element_bytes(element);
    ASSERT_LE(plan->shared_bytes, Sm90::kSharedBytes) << seed;
    ASSERT_GE(plan->slots, 1) << seed;
    ASSERT_LE(plan->crews * plan->slots, Sm90::kMaxSlabs) << seed;
    ASSERT_GE(plan->stages, 1) << seed;
    ASSERT_LE(plan->crews * plan->stages, Sm90::kMaxStages) << seed;
    ASSERT_LE(plan->crews * plan->teams * plan->team_warps,
              plan->passes > 1 ? Sm90Roles<true>::kDepthwiseWarps : Sm90Roles<false>::kDepthwiseWarps)
        << seed;
    if (plan->passes > 1) {
      ASSERT_GE(plan->stages, plan->passes) << seed;
      ASSERT_EQ(plan->crews, 1) << seed;
    }
    // A team that had no part of some tile would miss a phase of its barriers.
    ASSERT_LE(plan->teams, plan->parts) << seed;
    ASSERT_EQ(plan->parts * Sm90::kPartFrames, plan->tile_frames) << seed;
    ASSERT_GE(plan->team_warps * Sm90::kWarpChannels, std::min<std::int64_t>(spec.in_channels, Tile::kPassChannels))
        << seed;
    ASSERT_GE(plan->passes * Tile::kPassChannels, spec.in_channels) << seed;
    if (plan->ring) {
      ++rings;
      ASSERT_LE(plan->ring_slots, Sm90::kMaxSlabs) << seed;
      // From the first tap's chunk to the last one's and two more, and more than one team may be ahead of another.
      ASSERT_GE(plan->ring_slots, spec.halo_frames() / Sm90::kChunkFrames + 3) << seed;
      ASSERT_GE(plan->ring_slots, (plan->ring_stages + 1) * Sm90::kTileChunks) << seed;
      ASSERT_LE(plan->ring_teams * plan->team_warps, Sm90Roles<false>::kDepthwiseWarps) << seed;
      ASSERT_LE(plan->ring_teams, Sm90::kMaxParts) << seed;
      ASSERT_GE(plan->shared_bytes, plan->ring_slots * plan->chunk_bytes + plan->ring_stages * plan->stage_bytes)
          << seed;
      ASSERT_EQ(plan->chunk_bytes % 1024, 0) << seed;  // what the copy engine's order of 128 bytes spans
    }
    ASSERT_EQ(plan->row_bytes % 32, 16) << seed;
    ASSERT_LE(plan->box_frames, Sm90::kMaxBoxFrames) << seed;
    ASSERT_EQ(plan->slab_bytes, plan->boxes * plan->team_warps * Sm90::kWarpChannels * plan->row_bytes) << seed;
    ASSERT_EQ(plan->slab_bytes % 128, 0) << seed;
    // The last tap of the last frame lies in the row, or in the last of the rows.
    const std::int64_t first = plan->pad_bytes + plan->lead * bytes;
    const std::int64_t reach = plan->tile_frames + (plan->tap_rows ? 0 : spec.halo_frames());
    ASSERT_LE(first + reach * bytes, plan->row_bytes) << seed;
    if (!plan->bulk) continue;
    ASSERT_EQ((spec.left_frames() + plan->lead) * bytes % 16, 0) << seed;
    if (plan->tap_rows) {
      ASSERT_EQ(spec.dilation * bytes % 16, 0) << seed;
    } else {
      // Four taps in a row begin at a quad, the skipped ones included, for which the row has room.
      ASSERT_EQ((plan->lead - plan->skipped_taps * spec.dilation) % Tile::kQuadFrames, 0) << seed;
      ASSERT_GE(plan->lead, plan->skipped_taps * spec.dilation) << seed;
    }
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(rings, 5);
}

TEST(BlockArgs, DividesLongItemsIntoTilesAndPutsShortOnesSideBySide) {
  BlockArgs args;
  args.items.count = 3;
  args.items.first.frames = 100;
  args.divide(32, 132);
  EXPECT_EQ(args.segment_frames, 32);
  EXPECT_EQ(args.tile_segments, 1);
  EXPECT_EQ(args.item_tiles, 4);
  EXPECT_EQ(args.tiles, 12);

  args.items.first.frames = 5;
  args.divide(32, 132);
  EXPECT_EQ(args.segment_frames, 8);
  EXPECT_EQ(args.tile_segments, 1);  // a processor for each
  EXPECT_EQ(args.tiles, 3);
  args.items.count = 9;
  args.divide(32, 4);
  EXPECT_EQ(args.tile_segments, 3);
  EXPECT_EQ(args.tiles, 3);
  args.items.count = 100;
  args.divide(32, 4);
  EXPECT_EQ(args.tile_segments, 4);
  EXPECT_EQ(args.tiles, 25);
  args.items.count = 3;

  const Item none;
  args.items.table = &none;
  args.items.max_frames = 20;
  args.divide(32, 132);
  EXPECT_EQ(args.segment_frames, 20);
  EXPECT_EQ(args.tile_segments, 1);
  EXPECT_EQ(args.tiles, 3);
}

}  // namespace
}  // namespace halotap::kernels::cuda
