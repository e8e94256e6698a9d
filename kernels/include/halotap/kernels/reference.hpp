// The oracle: the operator written as its equations, in double precision, over a whole recording.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/stack.hpp"

namespace halotap::kernels {

// Runs `stack` offline over `input` [in_channels, frames] (frames fastest) and returns [out_channels, frames]. With a
// fill other than zeros the past before frame 0 is that frame, repeated for ever. Written to be read and compared
// with, not to be fast. `input` must hold in_channels * frames samples. [control]
std::vector<double> run_reference(const Stack& stack, std::span<const float> input, std::int64_t frames,
                                  const Fill& fill = {});

}  // namespace halotap::kernels
