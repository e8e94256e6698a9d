// The backend of cuda_tests, as every test of executors finds it.
#include "executor_backends.hpp"

#include "cuda/device.hpp"

namespace halotap::kernels {

std::vector<ExecutorBackend> executor_backends() {
  ExecutorBackend backend{"Cuda", make_cuda_executor};
  try {
    cuda::require_device();
  } catch (const BackendUnavailable& why) {
    backend.missing = why.what();
  }
  return {backend};
}

}  // namespace halotap::kernels
