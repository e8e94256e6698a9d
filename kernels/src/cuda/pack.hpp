// Host side of a packed layer: the numbers of one layer, scaled, split and put in the order the kernels read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/block.hpp"

namespace halotap::kernels::cuda {

// Where each part of a packed layer lies in its image: offsets in bytes, each a multiple of 16.
//
//   mix        [terms, out_padded/16, in_padded/16, 32 lanes, 8], 16 bits each: the A operands of a 16 x 16 matrix
//              step, the eight numbers of a lane side by side. Number i of lane l is row l/4 + 8*(i/2 % 2), channel
//              2*(l%4) + i%2 + 8*(i/4) of the 16 x 16 tile. Term 0 holds the scaled weights rounded, term 1 what
//              rounding left.
//   taps       [kernel_size, in_padded] float32, batch norm folded in; a pointwise layer has one tap of 1. With SiLU
//              they and their bias are times log2(e), and the row scales times ln 2; or, with bfloat16 terms, halved,
//              and the row scales as they are: see device_math.cuh.
//   tap_bias   [in_padded] float32
//   row_scale  [out_padded] float32: what a row of products is multiplied by to undo the scaling of its weights
//   mix_bias   [out_padded] float32
// Padding is zeros.
struct ImageLayout {
  std::int64_t in_padded = 0;   // in_channels rounded up to passes of 128 and one of 16, 32, 64 or 128
  std::int64_t out_padded = 0;  // out_channels rounded up to 64
  std::int64_t terms = 0;       // how many stand for a weight
  std::int64_t mix = 0;
  std::int64_t taps = 0;
  std::int64_t tap_bias = 0;
  std::int64_t row_scale = 0;
  std::int64_t mix_bias = 0;
  std::int64_t size_bytes = 0;

  // Bytes of one term of `mix`. [any thread]
  std::int64_t term_bytes() const { return in_padded * out_padded * 2; }
};

// [any thread]
ImageLayout image_layout(const LayerSpec& spec, Terms terms);

// A power of two s such that the largest of |values| * s lies in [2^14, 2^15), just below the top of float16's range.
// 1 for zeros; at most 2^126, so that 1/s is a normal float32. [any thread]
double scale_to_float16(const double* values, std::int64_t count);

// The image of a valid layer (see validate). [control]
std::vector<std::byte> pack_image(const Layer& layer, Terms terms);

}  // namespace halotap::kernels::cuda
