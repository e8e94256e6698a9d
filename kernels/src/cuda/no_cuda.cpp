// The CUDA backend of a build without it.
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels {

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack>, const ExecutorSpec&) {
  throw BackendUnavailable("backend cuda: this build has none (it was configured without a CUDA toolkit)");
}

}  // namespace halotap::kernels
