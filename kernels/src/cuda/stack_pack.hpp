// Host side of a stack that one kernel runs: its weights in the order the kernel's blocks read them.
#pragma once

#include <cstddef>
#include <vector>

#include "cuda/stack_plan.hpp"

namespace halotap::kernels::cuda {

// The images of all blocks, one behind the other, for a stack that `plan` was made for. Of block b a layer has, at the
// offsets of its StackLayer:
//
//   mix   [out_blocks, 2 terms, 32 lanes, 8] float16: B operands of two matrix steps of 16 channels by 8 rows, from b's
//         channels to each block's rows. Number i of lane l is channel 4*(l%4) + i%4 and row 4*(l/8) + 2*(i/4) + l/4%2:
//         a thread then holds operands and sums of four channels side by side. Terms as in pack.hpp.
//   taps  [taps + 1, 16] float32: as in pack.hpp, and their biases
//   rows  [2, 16] float32: scales and biases of the mix, of b's rows
// [control]
std::vector<std::byte> pack_stack(const Stack& stack, const StackPlan& plan);

}  // namespace halotap::kernels::cuda
