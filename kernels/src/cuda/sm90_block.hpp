// The block kernel for cards of compute capability 9.0.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/block_args.hpp"
#include "cuda/sm90_plan.hpp"

namespace halotap::kernels::cuda {

// Lets the kernels of this plan take their shared memory on the current device; once, before the first launch. Returns
// cudaErrorInvalidKernelImage when this build has no code of the kind they need (sm_90a). [control]
cudaError_t prepare_sm90_block(const Sm90Plan& plan, const BlockOptions& options) noexcept;

// Queues the mix of every tile. [worker]
cudaError_t launch_sm90_block(const BlockArgs& args, const Sm90Plan& plan, const BlockOptions& options,
                              cudaStream_t stream) noexcept;

}  // namespace halotap::kernels::cuda
