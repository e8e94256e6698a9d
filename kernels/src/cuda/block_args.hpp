// What a block kernel is given: plain numbers and device pointers, passed by value. Compiled by the host's compiler and
// by nvcc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/block.hpp"

namespace halotap::kernels::cuda {

struct BlockArgs {
  // The packed layer (pack.hpp).
  const void* d_mix = nullptr;
  const float* d_taps = nullptr;
  const float* d_tap_bias = nullptr;
  const float* d_row_scale = nullptr;
  const float* d_mix_bias = nullptr;
  std::int64_t term_bytes = 0;
  std::int32_t in_channels = 0;
  std::int32_t out_channels = 0;
  std::int32_t in_padded = 0;
  std::int32_t out_padded = 0;
  std::int32_t taps = 0;
  std::int32_t dilation = 0;
  std::int32_t left_frames = 0;
  Activation before_mix = Activation::kIdentity;
  Activation after_mix = Activation::kIdentity;
  bool residual = false;

  // The items.
  Items items;
  std::int64_t tiles = 0;
  std::int32_t segment_frames = 0;  // frames of one item in a tile: a multiple of 4
  std::int32_t tile_segments = 0;   // items in a tile: 1 when an item spans several tiles
  std::int64_t item_tiles = 0;      // tiles of an item when tile_segments is 1

  // Frames that the taps of one frame span, but for that one. [any thread]
  std::int64_t halo_frames() const { return std::int64_t{taps - 1} * dilation; }
  // Divides the items into tiles of `tile_frames` columns, a multiple of 4. Short items share a tile when there are
  // more of them than `processors`. [any thread]
  void divide(std::int64_t tile_frames, std::int64_t processors);

  friend bool operator==(const BlockArgs&, const BlockArgs&) = default;
};

inline void BlockArgs::divide(std::int64_t tile_frames, std::int64_t processors) {
  const std::int64_t frames = items.table != nullptr ? items.max_frames : items.first.frames;
  segment_frames = static_cast<std::int32_t>(std::min((frames + 3) / 4 * 4, tile_frames));
  tile_segments = static_cast<std::int32_t>(
      std::clamp<std::int64_t>((items.count + processors - 1) / processors, 1, tile_frames / segment_frames));
  item_tiles = (frames + segment_frames - 1) / segment_frames;
  tiles = tile_segments == 1 ? items.count * item_tiles : (items.count + tile_segments - 1) / tile_segments;
}

}  // namespace halotap::kernels::cuda
