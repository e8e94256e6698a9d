#include "cuda/sm90_plan.hpp"

#include <algorithm>

#include "cuda/pack.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

// The plan with tiles of so many frames, if it fits.
std::optional<Sm90Plan> plan_with(const LayerSpec& spec, const BlockOptions& options, std::int64_t tile_frames) {
  const std::int64_t bytes = element_bytes(options.x);
  Sm90Plan plan;
  plan.pointwise = spec.type == LayerType::kPointwise;
  const std::int64_t unit = 16 / bytes;
  std::int64_t window = tile_frames + spec.halo_frames();
  plan.tap_rows = window > Sm90::kMaxBoxFrames - 8 || window > spec.kernel_size * tile_frames;
  // Bulk copies begin at multiples of 16 bytes, and the first of four taps at a quad.
  if (plan.tap_rows) {
    plan.bulk = spec.left_frames() % unit == 0 && spec.dilation % unit == 0;
  } else {
    while (plan.skipped_taps < Tile::kQuadFrames &&
           (spec.left_frames() + plan.skipped_taps * spec.dilation) % Tile::kQuadFrames != 0) {
      ++plan.skipped_taps;
    }
    plan.bulk = plan.skipped_taps < Tile::kQuadFrames;
    if (plan.bulk) {
      const std::int64_t lead =
          round_up(spec.left_frames() + plan.skipped_taps * spec.dilation, unit) - spec.left_frames();
      plan.lead = static_cast<std::int32_t>(lead);
      window += lead;
    } else {
      plan.skipped_taps = 0;
    }
  }
  plan.dilation = spec.dilation <= 2 ? static_cast<std::int32_t>(spec.dilation) : 0;
  if (!plan.tap_rows && !plan.pointwise) {
    plan.any_dilation = static_cast<std::int32_t>(spec.dilation < 4 ? spec.dilation : 4 + spec.dilation % 4);
  }
  const bool compiled = (spec.kernel_size == 3 || spec.kernel_size == 5) && spec.padding == Padding::kCausal &&
                        spec.activation == Activation::kSilu && !plan.pointwise && plan.bulk &&
                        (plan.dilation != 0 || spec.dilation % unit == 0);
  plan.taps = compiled ? static_cast<std::int32_t>(spec.kernel_size) : 0;
  // The lanes of a warp read one row each, 16 bytes at a time: rows an odd multiple of 16 bytes apart lie in different
  // banks. What that takes lies in front: bulk copies go by lines of 128 bytes, and there it seldom reaches another
  // line.
  const std::int64_t packed_bytes = round_up((plan.tap_rows ? tile_frames : window) * bytes, 16);
  plan.pad_bytes = packed_bytes % 32 == 0 ? 16 : 0;
  const std::int64_t row_bytes = packed_bytes + plan.pad_bytes;
  if (row_bytes / bytes > Sm90::kMaxBoxFrames) return std::nullopt;

  const std::int64_t in_padded = image_layout(spec, terms_of(options)).in_padded;
  const std::int64_t pass_channels = std::min<std::int64_t>(in_padded, Tile::kPassChannels);
  const std::int64_t passes = round_up(in_padded, Tile::kPassChannels) / Tile::kPassChannels;
  const std::int64_t team_warps = passes > 1 ? Tile::kPassChannels / Sm90::kWarpChannels
                                             : round_up(spec.in_channels, Sm90::kWarpChannels) / Sm90::kWarpChannels;
  const std::int64_t rows = team_warps * Sm90::kWarpChannels;
  const std::int64_t boxes = plan.tap_rows ? spec.kernel_size : 1;
  const std::int64_t slab_bytes = boxes * rows * row_bytes;
  const std::int64_t stage_bytes = count_of(terms_of(options)) * pass_channels * Tile::kFrames * 2;

  const std::int64_t parts = tile_frames / Sm90::kPartFrames;
  const std::int64_t taps_bytes = spec.kernel_size * in_padded * 4;
  const std::int64_t room = Sm90::kSharedBytes - Sm90::kFixedBytes - taps_bytes;
  if (room < 0) return std::nullopt;
  std::int64_t teams = 0;
  std::int64_t crews = 1;
  std::int64_t stages = 0;
  std::int64_t slots = 0;
  if (passes == 1) {
    // As many crews as there are warps and room for. Then a second stage for each, so that a tile is computed while the
    // one before is mixed; then more slabs on the way. A crew of three teams is busy all the time with tiles of four
    // parts.
    teams = std::min<std::int64_t>(team_warps == 3 ? 4 : 3, parts);
    crews = Sm90Roles<false>::kDepthwiseWarps / (team_warps * teams);
    const auto slots_beside = [&](std::int64_t some_stages) {
      return std::min((room / crews - some_stages * stage_bytes) / slab_bytes, Sm90::kMaxSlabs / crews);
    };
    while (crews > 0 && slots_beside(1) < 1) --crews;
    if (crews == 0) return std::nullopt;
    stages = slots_beside(2) >= std::min<std::int64_t>(slots_beside(1), 2) ? 2 : 1;
    slots = slots_beside(stages);
  } else {
    // All passes of a tile are kept in stages while its rows of y are computed, 64 after 64. Then a second slab, so
    // that one is on the way while one is read; then stages for passes of the next tile.
    teams = Sm90Roles<true>::kDepthwiseWarps / team_warps;
    const auto stages_beside = [&](std::int64_t some_slots) {
      return std::min<std::int64_t>((room - some_slots * slab_bytes) / stage_bytes, 2 * passes);
    };
    slots = stages_beside(2) >= passes ? 2 : 1;
    stages = stages_beside(slots);
    if (stages < passes) return std::nullopt;
    slots = std::min<std::int64_t>((room - stages * stage_bytes) / slab_bytes, Sm90::kMaxSlabs);
  }

  plan.tile_frames = static_cast<std::int32_t>(tile_frames);
  plan.parts = static_cast<std::int32_t>(parts);
  plan.team_warps = static_cast<std::int32_t>(team_warps);
  plan.teams = static_cast<std::int32_t>(teams);
  plan.crews = static_cast<std::int32_t>(crews);
  plan.stages = static_cast<std::int32_t>(stages);
  plan.slots = static_cast<std::int32_t>(slots);
  plan.passes = static_cast<std::int32_t>(passes);
  plan.row_blocks = static_cast<std::int32_t>(round_up(spec.out_channels, 64) / 64);
  plan.stage_bytes = static_cast<std::int32_t>(stage_bytes);
  plan.box_frames = static_cast<std::int32_t>(row_bytes / bytes);
  plan.boxes = static_cast<std::int32_t>(boxes);
  plan.row_bytes = static_cast<std::int32_t>(row_bytes);
  plan.tap_stride_bytes = static_cast<std::int32_t>(plan.tap_rows ? rows * row_bytes : spec.dilation * bytes);
  plan.slab_bytes = static_cast<std::int32_t>(slab_bytes);
  plan.shared_bytes =
      static_cast<std::int32_t>(Sm90::kFixedBytes + taps_bytes + crews * (slots * slab_bytes + stages * stage_bytes));
  return plan;
}

// Adds the ring for layers of float32 samples whose taps lie whole chunks apart, no more than a tile. Few channels do
// not need it: their halos are small. It has room for a chunk at every place from the first tap's to the last one's and
// for two more on the way. A team that stores a tile knows that those before the stages' have been stored, so their
// chunks were there; a slot's chunks must lie further apart than what it does not know of, or it could take an
// earlier phase of the slot's barrier for the one that it waits for.
void add_ring(const LayerSpec& spec, const BlockOptions& options, Sm90Plan& plan) {
  if (options.x != Element::kFloat32 || plan.pointwise || plan.passes > 1 || plan.team_warps < 3) return;
  if (spec.kernel_size == 1 || spec.dilation % Sm90::kChunkFrames != 0 || spec.dilation > Tile::kFrames ||
      spec.left_frames() % Sm90::kChunkFrames != 0) {
    return;
  }
  const std::int64_t chunk_bytes = std::int64_t{plan.team_warps} * Sm90::kWarpChannels * Sm90::kChunkRowBytes;
  const std::int64_t taps_bytes = spec.kernel_size * image_layout(spec, terms_of(options)).in_padded * 4;
  for (const std::int64_t stages : {2, 1}) {
    const std::int64_t fixed_bytes = Sm90::kFixedBytes + taps_bytes + stages * plan.stage_bytes;
    const std::int64_t slots =
        std::min<std::int64_t>((Sm90::kSharedBytes - fixed_bytes) / chunk_bytes, Sm90::kMaxSlabs);
    const std::int64_t least_slots =
        std::max(spec.halo_frames() / Sm90::kChunkFrames + 3, (stages + 1) * Sm90::kTileChunks);
    if (slots < least_slots) continue;
    plan.ring = true;
    plan.ring_slots = static_cast<std::int32_t>(slots);
    plan.ring_stages = static_cast<std::int32_t>(stages);
    plan.ring_teams = std::min(Sm90Roles<false>::kDepthwiseWarps / plan.team_warps, Sm90::kMaxParts);
    plan.chunk_bytes = static_cast<std::int32_t>(chunk_bytes);
    plan.shared_bytes = std::max(plan.shared_bytes, static_cast<std::int32_t>(fixed_bytes + slots * chunk_bytes));
    return;
  }
}

}  // namespace

std::optional<Sm90Plan> sm90_plan(const LayerSpec& spec, const BlockOptions& options) {
  if (options.generic || options.x != options.y) return std::nullopt;
  if (spec.in_channels % 16 != 0 || spec.out_channels % 16 != 0) return std::nullopt;
  // Shorter tiles read their halos more often, and leave half of each product without use.
  auto plan = plan_with(spec, options, Tile::kFrames);
  if (!plan) plan = plan_with(spec, options, Tile::kFrames / 2);
  if (plan) add_ring(spec, options, *plan);
  return plan;
}

}  // namespace halotap::kernels::cuda
