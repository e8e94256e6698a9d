// Which stacks one kernel runs whole, and how it lays them out. Nothing of CUDA: tested without a card.
//
// A team of blocks, a cluster or half of one, holds a stack's weights in shared memory. Block b owns channels [16 b, 16
// b + 16) of every layer's input and output: it sums over their taps, multiplies them with its own columns of the mix,
// and gives each block the partial sums of that block's channels. A block's share of a layer is in its image; of a
// stream's state, in its rows of 16 floats, a ring of frames a layer.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/pass.hpp"
#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/stack.hpp"

namespace halotap::kernels::cuda {

struct StackTile {
  static constexpr int kComputingThreads = 256;  // the others multiply
  static constexpr int kThreads = 512;
  static constexpr int kWarps = kThreads / 32;
  static constexpr int kBlockChannels = 16;  // one step of a matrix instruction
  static constexpr int kLeastBlocks = 2;     // of a team: a block alone is no cluster to Compute Sanitizer
  static constexpr int kMostBlocks = 8;      // and not every card has clusters of more
  static constexpr int kMostChannels = kBlockChannels * kMostBlocks;
  static constexpr int kUnitColumns = 8;   // half of what a matrix instruction takes
  static constexpr int kPartColumns = 16;  // that are computed at a time, a thread a channel of a column
  static constexpr int kMostParts = 4;     // of a tile
  static constexpr int kMostColumns = kPartColumns * kMostParts;
  static constexpr int kColumnSizes = 7;     // items of 1, 2, 4, ... 64 columns
  static constexpr int kLeastSplitSize = 4;  // of an item that two teams share; halves of less save nothing
  static constexpr int kMostLayers = 48;
  static constexpr std::int64_t kMostItems = (1 << 20) - 1;  // that a command counts
  static constexpr int kRowBytes = kBlockChannels * 4;       // a frame of a block's channels
  static constexpr int kUnitBytes = 32 * 16;                 // a unit's operand: 16 bytes a lane
  static constexpr int kMixBytes = 2 * kUnitBytes;           // one block's channels to another's: two terms
  // Of a part, in shared memory: a block's partial sums for another, its operands, and the inverses of their scales.
  static constexpr int kPartialBytes = kPartColumns * kRowBytes;
  static constexpr int kOperandBytes = kPartColumns / kUnitColumns * kUnitBytes;
  static constexpr int kInverseBytes = kPartColumns * 4;
  static constexpr int kOutputStride = kMostColumns + 4;  // floats; 4: stores of a warp meet in a bank only twice
  static constexpr int kSharedBytes = 217 * 1024;         // of a block, planned; the rest is the kernel's own
};
static_assert(StackTile::kMostColumns == 1 << (StackTile::kColumnSizes - 1));
static_assert(StackTile::kPartColumns * StackTile::kBlockChannels == StackTile::kComputingThreads);
// A warp has the partial sums for a block.
static_assert(StackTile::kMostBlocks * 32 == StackTile::kThreads - StackTile::kComputingThreads);

// Offsets in bytes: of the image, and of a layer's window, [items, halo and new frames, 16] floats.
struct alignas(16) StackLayer {
  std::int32_t mix_offset = 0;   // image: [out blocks], kMixBytes each
  std::int32_t taps_offset = 0;  // image: [taps + 1, 16] floats, the biases last
  std::int32_t rows_offset = 0;  // image: [2, 16] floats, scales and biases of the mix
  std::int32_t halo_bytes = 0;   // of an item
  std::int32_t step_bytes = 0;   // from a tap's frame to the next's
  std::int32_t taps = 1;
  std::int32_t residual_offset = -1;  // window: the frame that output frame 0 is added to; -1: no residual
  std::int32_t lag_frames = 0;        // of its input
  std::int32_t ring_row = 0;          // of a block's share of a slot: where the ring of its input begins
  std::int32_t ring_mask = 0;         // frames of the ring, a power of two, less one
  std::int32_t in_blocks = 1;         // that own channels of its input
  std::int32_t out_blocks = 1;        // and of its output
  Activation before_mix = Activation::kIdentity;
  Activation after_mix = Activation::kIdentity;
  std::int32_t halo_frames = 0;
  std::int32_t unused = 0;
};
static_assert(sizeof(StackLayer) == 64);

struct StackPlan {
  std::int32_t layer_count = 0;
  StackLayer layers[StackTile::kMostLayers];
  std::int32_t blocks = 1;  // of a team: 2^block_bits
  std::int32_t block_bits = 0;
  std::int32_t in_channels = 0;
  std::int32_t out_channels = 0;
  std::int32_t out_lag_frames = 0;
  std::int32_t ring_rows = 0;    // of a block's share of a slot
  std::int32_t image_bytes = 0;  // of a block
  // A tile is up to `columns` columns: items side by side, each with a power of two of them. With items of 2^i columns
  // it has up to items[i].
  std::int32_t columns = 0;
  std::int32_t items[StackTile::kColumnSizes] = {};
  std::int32_t most_split_size = 0;  // shared memory has room for all layers' inputs of half of a larger item; 0: none
  std::int32_t window_frames = 0;    // the longest halo
  std::int32_t taps = 0;             // of every layer, pointwise ones (1) too; 0: they differ
  // Shared memory, bytes; the image is at 0, the layers are behind all that is planned.
  std::int32_t partials_offset = 0;  // [2, kMostParts, blocks] partial sums, [kPartColumns, 16] floats
  std::int32_t operand_offset = 0;   // [2] operands
  std::int32_t inverse_offset = 0;   // [2] inverses
  std::int32_t output_offset = 0;    // [16, kOutputStride] floats
  std::int32_t windows_offset = 0;

  // A layer's input of so many items of 2^size columns, and how many of these shared memory has room for.
  HALOTAP_HOST_DEVICE constexpr int window_bytes(int size, int of_items) const {
    return of_items * (window_frames + (1 << size)) * StackTile::kRowBytes;
  }
  HALOTAP_HOST_DEVICE constexpr int windows(int size, int of_items) const {
    const int most = (StackTile::kSharedBytes - windows_offset) / window_bytes(size, of_items);
    return most < layer_count ? most : layer_count;
  }

  // Whether two teams of a cluster take half an item each, of a pass of `count` items of 2^size columns.
  HALOTAP_HOST_DEVICE constexpr bool splits(int size, int count, bool holds, int clusters) const {
    return size >= StackTile::kLeastSplitSize && size <= most_split_size && count <= clusters && !holds;
  }
};

// Fills `plan` for a stack that one kernel can run in this precision; else says why it cannot, as in "softmax", and
// leaves the plan undefined. The answer depends on the arguments alone. [control]
std::string plan_stack(const Stack& stack, Precision precision, StackPlan& plan);

// make_pass_shape for a device that runs `plan`: a step is at most a tile's columns, a state is what the rings hold,
// and there are no windows. Throws as that. [control]
PassShape make_stack_shape(const Stack& stack, const StackPlan& plan, const ExecutorSpec& spec);

}  // namespace halotap::kernels::cuda
