// Passes of a stack that one kernel runs whole (stack_plan.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cuda/pass.hpp"
#include "cuda/stack_plan.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels::cuda {

// Why the current device cannot run the plan, as in "this card has no clusters of blocks"; empty when it can. Throws as
// `require`. [control]
std::string stack_refusal(const StackPlan& plan);

// A resident kernel ends by itself after so long without a pass, or so long after its start in any case, and another
// goes on: what waits for the device to be idle, such as cudaFree, waits no longer. The host starts the next one behind
// a pass at half its life.
struct ResidentLife {
  std::uint64_t idle_ns = 50'000'000;
  std::uint64_t most_ns = 4'000'000'000;
};

// A pass is one launch, or, with CudaInvocation::kResident, a few words in the mailbox of a kernel that runs already.
// `plan` must suit the stack and the device, and `shape` be make_stack_shape's. Throws as make_cuda_executor. [control]
std::unique_ptr<PassDevice> make_stack_device(const Stack& stack, const StackPlan& plan, const PassShape& shape,
                                              const ExecutorSpec& spec, const ResidentLife& life = {});

}  // namespace halotap::kernels::cuda
