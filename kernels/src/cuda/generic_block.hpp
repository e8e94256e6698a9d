// The block kernel for any layer and any card of compute capability 8.0 or more.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/block_args.hpp"

namespace halotap::kernels::cuda {

// Queues the mix of every tile. [worker]
cudaError_t launch_generic_block(const BlockArgs& args, const BlockOptions& options, cudaStream_t stream) noexcept;

// Queues softmax over the channels of every item's y (float32), in place. [worker]
cudaError_t launch_softmax(const BlockArgs& args, cudaStream_t stream) noexcept;

}  // namespace halotap::kernels::cuda
