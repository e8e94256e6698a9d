// Sizes that the block kernels, the packing and the launch agree on.
#pragma once

namespace halotap::kernels::cuda {

struct Tile {
  static constexpr int kFrames = 64;     // columns of a tile
  static constexpr int kQuadFrames = 4;  // frames of one item that a thread computes side by side
  static constexpr int kQuads = kFrames / kQuadFrames;
  static constexpr int kGroupChannels = 8;   // channels that a thread computes: one 16-byte row of a B operand
  static constexpr int kStepChannels = 16;   // channels of one matrix instruction
  static constexpr int kPassChannels = 128;  // channels that are summed in one go, and share a frame's scale
  static constexpr int kPassGroups = kPassChannels / kGroupChannels;
  static constexpr int kThreads = kPassGroups * kQuads;  // of the generic block: one a (group, quad)
};
static_assert(Tile::kQuads == 16, "half a warp computes one group of channels over a whole tile");
static_assert(Tile::kThreads == 256);
static_assert(Tile::kPassChannels % Tile::kStepChannels == 0);

}  // namespace halotap::kernels::cuda
