// What a block kernel is given: plain numbers and device pointers, passed by value. Compiled by the host's compiler and
// by nvcc.
#pragma once

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
  std::int64_t tiles = 0;           // tiles of kTileFrames columns
  std::int32_t segment_frames = 0;  // frames of one item in a tile: a multiple of 4
  std::int32_t tile_segments = 0;   // items in a tile: 1 when an item spans several tiles
  std::int64_t item_tiles = 0;      // tiles of an item when tile_segments is 1
};

}  // namespace halotap::kernels::cuda
