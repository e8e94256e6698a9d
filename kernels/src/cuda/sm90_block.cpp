#include "cuda/sm90_block.hpp"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "cuda/device.hpp"
#include "cuda/sm90_kernels.hpp"

namespace halotap::kernels::cuda {
namespace {

Sm90Kernel kernel_of(const Sm90Plan& plan, const BlockOptions& options, Taps taps, Store store) {
  const bool wide = plan.passes > 1;
  switch (options.x) {
    case Element::kBfloat16:
      return (wide ? sm90_wide_kernel_bfloat16 : sm90_kernel_bfloat16)(plan, terms_of(options), taps, store);
    case Element::kFloat16:
      return (wide ? sm90_wide_kernel_float16 : sm90_kernel_float16)(plan, terms_of(options), taps, store);
    case Element::kFloat32:
      break;
  }
  return (wide ? sm90_wide_kernel_float32 : sm90_kernel_float32)(plan, terms_of(options), taps, store);
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
// multiples of 16 bytes, and frames, items and where an item's frames begin and end below 2^31.
bool describe_x(const BlockArgs& args, const Sm90Plan& plan, Element element, bool ring, CUtensorMap& map) {
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
  if (first.x_begin >= kMost || first.x_end >= kMost) return false;
  if (first.frames - first.x_begin >= kMost || channel_bytes >= kMost << 9 || item_bytes >= kMost << 9) return false;

  const cuuint64_t extents[3] = {static_cast<cuuint64_t>(frames), static_cast<cuuint64_t>(args.in_channels),
                                 static_cast<cuuint64_t>(args.items.count)};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(channel_bytes), static_cast<cuuint64_t>(item_bytes)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(ring ? Sm90::kChunkFrames : plan.box_frames),
                             static_cast<cuuint32_t>(plan.team_warps * Sm90::kWarpChannels), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUtensorMapDataType type = element == Element::kFloat32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                   : element == Element::kBfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                                   : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return map_encoder()(
             &map, type, 3, const_cast<char*>(base), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             ring ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
             // More at a time is slower where rows begin and end in the middle of a line, as the ring's do not.
             ring ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

// Whether every quad of frames is real and aligned in y, and in x when that is added.
bool has_whole_quads(const BlockArgs& args, Element element) {
  const Item& first = args.items.first;
  const std::int64_t quad_bytes = Tile::kQuadFrames * element_bytes(element);
  const auto aligned = [&](const void* data, std::int64_t channel_stride, std::int64_t item_stride) {
    return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(quad_bytes) == 0 &&
           channel_stride % Tile::kQuadFrames == 0 && (args.items.count == 1 || item_stride % Tile::kQuadFrames == 0);
  };
  if (args.items.table != nullptr || args.tile_segments != 1 || first.frames % Tile::kQuadFrames != 0) return false;
  if (first.y_begin > 0 || first.y_end < first.frames) return false;
  if (!aligned(first.y, first.y_channel_stride, args.items.y_stride)) return false;
  if (!args.residual) return true;
  return first.x_begin <= 0 && first.x_end >= first.frames &&
         aligned(first.x, first.x_channel_stride, args.items.x_stride);
}

// Whether a kernel for the usual layer reads its taps as this plan does.
bool has_usual_kernel(const Sm90Plan& plan, Taps taps) {
  if (plan.passes > 1 || plan.pointwise || taps == Taps::kRing) return false;
  return taps == Taps::kCompiled || plan.any_dilation < 4;
}

// Whether the launch is one of the usual layer.
bool is_usual(const BlockArgs& args, const Sm90Launch& launch, const BlockOptions& options, Taps taps) {
  const Sm90Plan& plan = launch.plan;
  if (!has_usual_kernel(plan, taps)) return false;
  BlockArgs usual_args = args;
  Sm90Launch usual_launch = launch;
  const bool compiled = taps == Taps::kCompiled;
  set_usual(static_cast<int>(element_bytes(options.x)), terms_of(options), compiled ? plan.taps : 0,
            compiled ? plan.dilation : plan.any_dilation, usual_args, usual_launch);
  usual_launch.plan.teams = plan.teams;  // it has more warps for them
  return args == usual_args && launch == usual_launch;
}

// The division of item_of: with 2^shift >= divisor the smallest such, multiplier = 2^32 * (2^shift - d) / d + 1.
void set_item_division(std::int64_t item_parts, Sm90Launch& launch) {
  const auto divisor = static_cast<std::uint64_t>(item_parts);
  while ((std::uint64_t{1} << launch.item_shift) < divisor) ++launch.item_shift;
  launch.item_multiplier =
      static_cast<std::uint32_t>(((((std::uint64_t{1} << launch.item_shift) - divisor) << 32) / divisor) + 1);
}

// Tiles of a run: those with which the busiest block copies the fewest chunks. Short ones, so that what all blocks read
// at one time lies side by side in memory, in whole pages.
std::int64_t tiles_of_run(const BlockArgs& args, std::int64_t processors) {
  constexpr std::int64_t kMostTiles = 16;
  std::int64_t best = 1;
  std::int64_t least = 0;
  for (std::int64_t tiles = 1; tiles <= std::min(args.item_tiles, kMostTiles); ++tiles) {
    const std::int64_t runs = args.items.count * ((args.item_tiles + tiles - 1) / tiles);
    const std::int64_t block_runs = (runs + processors - 1) / processors;
    const std::int64_t chunks = block_runs * (tiles * Tile::kFrames + args.halo_frames()) / Sm90::kChunkFrames;
    if (least == 0 || chunks < least) {
      least = chunks;
      best = tiles;
    }
  }
  return best;
}

}  // namespace

cudaError_t prepare_sm90_block(const Sm90Plan& plan, const BlockOptions& options) noexcept {
  for (const Taps taps : {Taps::kLoop, Taps::kRing, Taps::kCompiled}) {
    for (const Store store : {Store::kQuads, Store::kSamples, Store::kUsualQuads}) {
      if (store == Store::kUsualQuads && !has_usual_kernel(plan, taps)) continue;
      if ((taps == Taps::kCompiled && plan.taps == 0) || (taps == Taps::kRing && !plan.ring)) continue;
      const auto* kernel = reinterpret_cast<const void*>(kernel_of(plan, options, taps, store));
      cudaFuncAttributes attributes;
      cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
      if (error != cudaSuccess) return error;
      // No body in this build: see the kernel.
      if (attributes.sharedSizeBytes != 0) return cudaErrorInvalidKernelImage;
      error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Sm90::kSharedBytes);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t launch_sm90_block(const BlockArgs& block_args, const Sm90Plan& plan, const BlockOptions& options,
                              cudaStream_t stream) noexcept {
  int processors = 0;
  if (const cudaError_t error = count_processors(processors); error != cudaSuccess) return error;
  BlockArgs args = block_args;
  Sm90Launch launch;
  launch.plan = plan;
  CUtensorMap map = {};
  if (plan.ring) {
    args.divide(Tile::kFrames, processors);
    launch.ring = args.segment_frames == Tile::kFrames && describe_x(args, plan, options.x, true, map);
  }
  if (launch.ring) {
    launch.plan.tile_frames = Tile::kFrames;
    launch.plan.crews = 1;
    launch.plan.slots = plan.ring_slots;
    launch.plan.slab_bytes = plan.chunk_bytes;
    launch.plan.stages = plan.ring_stages;
  } else {
    args.divide(plan.tile_frames, processors);
    launch.gather = !describe_x(args, plan, options.x, false, map);
  }
  const std::int64_t bytes = element_bytes(options.x);
  launch.row_bytes = plan.row_bytes;
  launch.slots = plan.slots;
  launch.slab_bytes = plan.slab_bytes;
  const std::int32_t slab_rows = plan.boxes * plan.team_warps * Sm90::kWarpChannels;
  // Short items lie side by side in a tile, as segments of a slab's rows, each with a window of its own. Longer rows
  // mean fewer slots.
  const bool segmented = args.tile_segments != 1;
  const std::int64_t halo_frames = plan.tap_rows ? 0 : args.halo_frames();
  const std::int64_t window = args.segment_frames + halo_frames;
  if (segmented) {
    const std::int64_t window_bytes = (window + 3) / 4 * 4 * bytes;
    const std::int64_t row_room = std::int64_t{plan.slots} * plan.slab_bytes / slab_rows / 16 * 16;
    const std::int64_t fit = std::max<std::int64_t>(row_room / window_bytes, 1);
    if (args.tile_segments > fit) {
      args.tile_segments = static_cast<std::int32_t>(fit);
      args.tiles = (args.items.count + fit - 1) / fit;
    }
    launch.segment_samples = static_cast<std::int32_t>(window_bytes / bytes);
    launch.row_bytes = static_cast<std::int32_t>(
        std::max((args.tile_segments * window_bytes + 15) / 16 * 16, std::int64_t{plan.row_bytes}));
    launch.slab_bytes = slab_rows * launch.row_bytes;
    launch.slots = plan.slots * plan.slab_bytes / launch.slab_bytes;
  }
  // Only parts with columns of an item are computed, and of the last one's results only those count.
  const int columns_used = args.tile_segments * args.segment_frames;
  launch.plan.parts = (columns_used + Sm90::kPartFrames - 1) / Sm90::kPartFrames;
  launch.plan.teams = launch.ring ? plan.ring_teams : std::min(plan.teams, launch.plan.parts);
  for (int column = columns_used; column < launch.plan.parts * Sm90::kPartFrames; ++column) {
    launch.absent |= std::uint32_t{1} << (column % Sm90::kPartFrames / 2 + column % 2 * 16);
  }
  if (!segmented) {
    launch.pad_bytes = plan.pad_bytes;
    launch.skipped_taps = plan.skipped_taps;
    launch.before_samples = static_cast<std::int32_t>(plan.pad_bytes / bytes) + plan.lead;
    launch.segment_samples =
        launch.before_samples + launch.plan.parts * Sm90::kPartFrames + static_cast<std::int32_t>(halo_frames);
  }
  launch.tap_stride_bytes =
      plan.tap_rows ? slab_rows / plan.boxes * launch.row_bytes : static_cast<std::int32_t>(args.dilation * bytes);
  const std::int32_t first_tap = launch.before_samples - launch.skipped_taps * args.dilation;
  const int segment_quads = args.segment_frames / Tile::kQuadFrames;
  for (int quad = 0; quad < plan.tile_frames / Tile::kQuadFrames; ++quad) {
    const int segment = quad / segment_quads;
    const int first = segment * launch.segment_samples + quad % segment_quads * Tile::kQuadFrames;
    // A column of no item reads anything.
    launch.quad_bytes[quad] = segment < args.tile_segments ? static_cast<std::int32_t>((first_tap + first) * bytes) : 0;
  }
  Store store = has_whole_quads(args, options.x) ? Store::kQuads : Store::kSamples;
  const Taps taps = launch.ring ? Taps::kRing : plan.taps != 0 && !segmented ? Taps::kCompiled : Taps::kLoop;
  if (args.tiles > std::int64_t{1} << 30) return cudaErrorInvalidValue;  // more frames than any card holds
  // Pairs of row blocks are spread over blocks: all of them, or, with several passes, when there are processors left,
  // since each block computes the depthwise anew.
  const std::int64_t pairs = (plan.row_blocks + 1) / 2;
  const std::int64_t most_parts =
      plan.passes == 1 ? pairs : std::clamp<std::int64_t>(processors / args.tiles, 1, pairs);
  const std::int64_t block_pairs = (pairs + most_parts - 1) / most_parts;
  const int row_parts = static_cast<int>((pairs + block_pairs - 1) / block_pairs);
  launch.block_rows = static_cast<std::int32_t>(2 * block_pairs);
  const std::int64_t most_columns = std::max(processors / row_parts, 1);
  std::int64_t shares = args.tiles;  // what the columns of blocks divide
  if (launch.ring) {
    launch.run_tiles = static_cast<std::int32_t>(tiles_of_run(args, most_columns));
    launch.item_runs = static_cast<std::int32_t>((args.item_tiles + launch.run_tiles - 1) / launch.run_tiles);
    shares = args.items.count * launch.item_runs;
    launch.runs = static_cast<std::int32_t>(shares);
  }
  set_item_division(launch.ring ? launch.item_runs : args.item_tiles, launch);
  const std::int64_t columns = std::clamp<std::int64_t>(shares, 1, most_columns);
  launch.block_tiles = static_cast<std::int32_t>(shares / columns);
  launch.longer_blocks = static_cast<std::uint32_t>(shares % columns);

  if (store == Store::kQuads && is_usual(args, launch, options, taps)) store = Store::kUsualQuads;

  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(columns), static_cast<unsigned>(row_parts));
  config.blockDim = dim3(plan.passes > 1               ? Sm90Roles<true>::kThreads
                         : store == Store::kUsualQuads ? Sm90Roles<false, true>::kThreads
                                                       : Sm90Roles<false>::kThreads);
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  void* arguments[] = {&args, &launch, &map};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel_of(plan, options, taps, store)), arguments);
}

}  // namespace halotap::kernels::cuda
