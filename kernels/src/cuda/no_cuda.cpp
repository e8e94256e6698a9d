// The CUDA backend of a build without it.
#include "cuda/no_cuda.hpp"

namespace halotap::kernels {

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack>, const ExecutorSpec&) {
  cuda::refuse_without_toolkit();
}

}  // namespace halotap::kernels
