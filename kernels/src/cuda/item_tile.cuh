// Which item and which frames the columns of a tile stand for.
#pragma once

#include <cstdint>

#include "cuda/block_args.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {

// Item `index` of the launch. `kXBytes`, `kYBytes`: bytes of a sample.
template <int kXBytes, int kYBytes>
__device__ __forceinline__ Item item_at(const Items& items, std::int64_t index) {
  if (items.table != nullptr) return items.table[index];
  Item item = items.first;
  item.x = static_cast<const char*>(item.x) + index * items.x_stride * kXBytes;
  item.y = static_cast<char*>(item.y) + index * items.y_stride * kYBytes;
  return item;
}

// Four frames side by side of one item: a quad of a tile's columns.
struct Quad {
  std::int64_t item;   // -1: none
  std::int64_t frame;  // the first
};
__device__ __forceinline__ Quad quad_at(const BlockArgs& args, std::int64_t tile, int quad) {
  const int segment_quads = args.segment_frames / Tile::kQuadFrames;
  if (args.tile_segments == 1) {
    if (quad >= segment_quads) return {-1, 0};
    const std::int64_t item = tile / args.item_tiles;
    return {item, (tile - item * args.item_tiles) * args.segment_frames + quad * Tile::kQuadFrames};
  }
  const int segment = quad / segment_quads;
  const std::int64_t item = tile * args.tile_segments + segment;
  if (segment >= args.tile_segments || item >= args.items.count) return {-1, 0};
  return {item, (quad - segment * segment_quads) * Tile::kQuadFrames};
}

// Which quad of frames lane `lane` (0 to 15) of a half-warp computes. Column n of the B operand belongs to lane n % 16
// and frame n / 16 of its quad; a thread of the matrix instruction holds columns 8j + 2q + e. With this order those of
// one e are the four frames of a quad, and threads q = 0 to 3 hold 16 frames side by side: stores of 64 bytes a row.
__device__ __forceinline__ int quad_of_lane(int lane) { return lane % 8 / 2 + 4 * (lane % 2) + 8 * (lane / 8); }

}  // namespace halotap::kernels::cuda
