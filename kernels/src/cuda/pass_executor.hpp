// The streams of the CUDA backend: which frames of which stream go into which pass.
#pragma once

#include <memory>

#include "cuda/pass.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels::cuda {

// An executor over a device that was made for the same shape. What a stream is, besides its halos, lives on the host:
// reset touches no device. Throws std::bad_alloc. [control]
std::unique_ptr<Executor> make_pass_executor(const PassShape& shape, std::unique_ptr<PassDevice> device);

}  // namespace halotap::kernels::cuda
