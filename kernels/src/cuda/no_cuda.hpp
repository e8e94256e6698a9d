// What a build without a CUDA toolkit says.
#pragma once

#include "halotap/kernels/executor.hpp"

namespace halotap::kernels::cuda {

[[noreturn]] inline void refuse_without_toolkit() {
  throw BackendUnavailable("backend cuda: this build has none (it was configured without a CUDA toolkit)");
}

}  // namespace halotap::kernels::cuda
