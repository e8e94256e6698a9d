#include "cuda/sm90_plan.hpp"

#include <algorithm>

#include "cuda/pack.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

}  // namespace

std::optional<Sm90Plan> sm90_plan(const LayerSpec& spec, const BlockOptions& options) {
  constexpr std::int64_t kRows = Sm90::kWarpChannels;
  if (options.x != options.y) return std::nullopt;
  if (spec.in_channels % 16 != 0 || spec.in_channels > Tile::kPassChannels) return std::nullopt;
  if (spec.out_channels % 16 != 0) return std::nullopt;
  const std::int64_t bytes = element_bytes(options.x);

  Sm90Plan plan;
  plan.pointwise = spec.type == LayerType::kPointwise;
  plan.dilation = spec.dilation <= 2 ? static_cast<std::int32_t>(spec.dilation) : 0;
  const std::int64_t unit = 16 / bytes;
  const std::int64_t lead = (unit - spec.left_frames() % unit) % unit;
  std::int64_t window = Sm90::kHalfFrames + spec.halo_frames();
  // Reading tap by tap needs every tap aligned like a quad of frames.
  plan.tap_rows = plan.dilation == 0 && (spec.dilation % Tile::kQuadFrames != 0 || window > Sm90::kMaxBoxFrames - 8 ||
                                         window > spec.kernel_size * Sm90::kHalfFrames);
  if (plan.dilation != 0) {
    plan.bulk = lead % plan.dilation == 0;
  } else {
    plan.bulk = lead == 0 && (!plan.tap_rows || spec.dilation % unit == 0);
  }
  if (plan.bulk) {
    plan.lead = static_cast<std::int32_t>(lead);
    window += lead;
  }
  const bool compiled = (spec.kernel_size == 3 || spec.kernel_size == 5) && spec.padding == Padding::kCausal &&
                        spec.activation == Activation::kSilu && !plan.pointwise && plan.bulk &&
                        (plan.dilation != 0 || spec.dilation % unit == 0);
  plan.taps = compiled ? static_cast<std::int32_t>(spec.kernel_size) : 0;
  // The lanes of a warp read one row each, 16 bytes at a time: rows an odd multiple of 16 bytes apart lie in different
  // banks. What that takes lies in front: bulk copies go by lines of 128 bytes, and there it seldom reaches another
  // line.
  const std::int64_t row_frames = plan.tap_rows ? Sm90::kHalfFrames : window;
  const std::int64_t packed_bytes = round_up(row_frames * bytes, 16);
  plan.pad_bytes = packed_bytes % 32 == 0 ? 16 : 0;
  const std::int64_t row_bytes = packed_bytes + plan.pad_bytes;
  if (row_bytes / bytes > Sm90::kMaxBoxFrames) return std::nullopt;
  const std::int64_t boxes = plan.tap_rows ? spec.kernel_size : 1;
  const std::int64_t tap_stride_bytes = plan.tap_rows ? kRows * row_bytes : spec.dilation * bytes;
  const std::int64_t slab_bytes = boxes * kRows * row_bytes;

  plan.team_warps = static_cast<std::int32_t>((spec.in_channels + kRows - 1) / kRows);
  plan.teams = Sm90::kDepthwiseWarps / plan.team_warps;
  plan.row_blocks = static_cast<std::int32_t>(round_up(spec.out_channels, 64) / 64);
  const std::int64_t terms = options.math == Math::kFp32 ? 2 : 1;
  // Terms, float16.
  plan.stage_bytes = static_cast<std::int32_t>(terms * image_layout(spec, options.math).in_padded * Tile::kFrames * 2);

  // Every warp needs a slab and every two teams a stage. Then a second slab, so that one is read while the next is on
  // its way; then a second stage, so that a half tile is computed while the one before is mixed; then more slabs.
  const std::int64_t room = Sm90::kSharedBytes - Sm90::kFixedBytes;
  const std::int64_t warps = plan.teams * plan.team_warps;
  const std::int64_t least_stages = (plan.teams + 1) / 2;
  const auto slots_beside = [&](std::int64_t stages) {
    return std::min<std::int64_t>((room - stages * plan.stage_bytes) / (warps * slab_bytes), Sm90::kMaxSlots);
  };
  if (room < least_stages * plan.stage_bytes || slots_beside(least_stages) < 1) return std::nullopt;
  std::int64_t stages = least_stages;
  while (stages < 2 * least_stages && stages < Sm90::kMaxStages && room > (stages + 1) * plan.stage_bytes &&
         slots_beside(stages + 1) >= std::min<std::int64_t>(slots_beside(stages), 2)) {
    ++stages;
  }
  const std::int64_t slots = slots_beside(stages);
  plan.stages = static_cast<std::int32_t>(stages);
  plan.slots = static_cast<std::int32_t>(slots);
  plan.box_frames = static_cast<std::int32_t>(row_bytes / bytes);
  plan.boxes = static_cast<std::int32_t>(boxes);
  plan.row_bytes = static_cast<std::int32_t>(row_bytes);
  plan.tap_stride_bytes = static_cast<std::int32_t>(tap_stride_bytes);
  plan.slab_bytes = static_cast<std::int32_t>(slab_bytes);
  plan.shared_bytes =
      static_cast<std::int32_t>(Sm90::kFixedBytes + warps * slots * slab_bytes + stages * plan.stage_bytes);
  return plan;
}

}  // namespace halotap::kernels::cuda
