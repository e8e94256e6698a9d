// The kernels of the block for compute capability 9.0: which there are, and what they are given.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "cuda/block_args.hpp"
#include "cuda/sm90_plan.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {

// What a launch adds to the plan.
struct Sm90Launch {
  Sm90Plan plan;
  bool ring = false;           // x goes through the ring: the plan's crew, slots and slabs are the ring's
  std::int32_t run_tiles = 0;  // with a ring: tiles of a run but for an item's last
  std::int32_t item_runs = 0;
  std::int32_t runs = 0;              // of all items
  std::int32_t block_tiles = 0;       // without one: tiles of a block
  std::uint32_t longer_blocks = 0;    // the first so many blocks have one more
  std::int32_t block_rows = 0;        // with several passes: rows of y of a block, 64 each
  std::uint32_t item_multiplier = 0;  // see item_of
  std::uint32_t item_shift = 0;
  std::uint32_t absent = 0;  // columns of each tile's last part that are no item's: bits as in Magnitudes
  bool gather = false;       // samples are copied one by one
  std::int32_t slots = 0;    // slabs in a crew's ring
  std::int32_t slab_bytes = 0;
  std::int32_t row_bytes = 0;        // from one channel's row of a slab to the next
  std::int32_t segment_samples = 0;  // of a row, for each item of a gathered tile
  std::int32_t tap_stride_bytes = 0;
  std::int32_t pad_bytes = 0;       // the plan's, unless segmented
  std::int32_t before_samples = 0;  // of a row before the first tap's first frame
  // Taps that would lie before the first, for which rows have room so that what four taps read is aligned.
  std::int32_t skipped_taps = 0;
  std::int32_t quad_bytes[Tile::kQuads] = {};  // where each quad's first tap lies in a row, the skipped ones included
};

// How taps are read: in a loop, from rows that hold all that a tile's taps reach or from the ring, or in registers.
enum class Taps { kLoop, kRing, kCompiled };

// How results are stored: a quad of frames at a time where quads are aligned and real, or sample by sample.
enum class Store { kQuads, kSamples };

using Sm90Kernel = void (*)(BlockArgs, Sm90Launch, CUtensorMap);

// The kernel for samples of one type, each compiled on its own. `wide` ones are for plans of several passes. [any
// thread]
Sm90Kernel sm90_kernel_float32(const Sm90Plan& plan, Math math, Taps taps, Store store);
Sm90Kernel sm90_kernel_bfloat16(const Sm90Plan& plan, Math math, Taps taps, Store store);
Sm90Kernel sm90_kernel_float16(const Sm90Plan& plan, Math math, Taps taps, Store store);
Sm90Kernel sm90_wide_kernel_float32(const Sm90Plan& plan, Math math, Taps taps, Store store);
Sm90Kernel sm90_wide_kernel_bfloat16(const Sm90Plan& plan, Math math, Taps taps, Store store);
Sm90Kernel sm90_wide_kernel_float16(const Sm90Plan& plan, Math math, Taps taps, Store store);

}  // namespace halotap::kernels::cuda
