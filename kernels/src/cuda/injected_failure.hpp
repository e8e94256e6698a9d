// A device failure on demand, to rehearse what a program does when one comes.
#pragma once

#include <memory>

#include "cuda/pass.hpp"

namespace halotap::kernels::cuda {

inline constexpr const char* kInjectedFailure = "HALOTAP_INJECT_DEVICE_FAILURE";

// `device`, or, where the environment variable of that name is set, one around it that fails in pass N, counted from 1;
// the pass with which an engine warms up is not counted:
//
//     error:N  as with an error of CUDA
//     hang:N   as with a device that does not answer: pass N is over once its limit has passed
//
// Throws std::invalid_argument for another value. [control]
std::unique_ptr<PassDevice> with_injected_failure(std::unique_ptr<PassDevice> device, const PassShape& shape,
                                                  NowNs now_ns);

}  // namespace halotap::kernels::cuda
