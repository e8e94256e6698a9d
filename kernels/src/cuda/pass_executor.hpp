// The streams of the CUDA backend: which frames of which stream go into which pass.
#pragma once

#include <memory>
#include <vector>

#include "cuda/pass.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels::cuda {

// An executor over devices that were each made for the same shape and give the same bits: slot s is slot s / n of
// device s % n of n, so there are n times as many slots as the shape has, and all devices compute at once. What a
// stream is, besides its halos, lives on the host: reset touches no device. When one of them fails, all is over. Memory
// of allocate_samples is the first one's, and must be that for the others, too. Throws std::bad_alloc. [control]
std::unique_ptr<Executor> make_pass_executor(const PassShape& shape, std::vector<std::unique_ptr<PassDevice>> devices);
// Over one. [control]
std::unique_ptr<Executor> make_pass_executor(const PassShape& shape, std::unique_ptr<PassDevice> device);

}  // namespace halotap::kernels::cuda
