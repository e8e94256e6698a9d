// The backend of cuda_tests, as every test of executors finds it.
#include "executor_backends.hpp"

#include "cuda/device.hpp"
#include "cuda/stack_plan.hpp"

namespace halotap::kernels {

std::vector<ExecutorBackend> executor_backends() {
  std::optional<std::string> missing;
  try {
    cuda::require_device();
  } catch (const BackendUnavailable& why) {
    missing = why.what();
  }
  const auto make_stack = [](const std::shared_ptr<const Stack>& stack, const ExecutorSpec& spec) {
    ExecutorSpec launched = spec;
    launched.cuda_invocation = CudaInvocation::kLaunch;
    return make_cuda_executor(stack, launched);
  };
  // Stacks that take a kernel a layer are launched all the same.
  const auto make_resident = [](const std::shared_ptr<const Stack>& stack, const ExecutorSpec& spec) {
    ExecutorSpec resident = spec;
    cuda::StackPlan plan;
    if (cuda::compute_capability() >= 90 && cuda::plan_stack(*stack, spec.precision, plan).empty()) {
      resident.cuda_invocation = CudaInvocation::kResident;
    }
    return make_cuda_executor(stack, resident);
  };
  const auto make_on_two = [](const std::shared_ptr<const Stack>& stack, const ExecutorSpec& spec) {
    ExecutorSpec shared = spec;
    shared.cuda_devices = {0, 1};
    return make_cuda_executor(stack, shared);
  };
  std::vector<ExecutorBackend> backends{{"Cuda", make_cuda_executor, missing},
                                        {"CudaStack", make_stack, missing},
                                        {"CudaResident", make_resident, missing}};
  // Not skipped where there are not two: that would look like a test that should have run.
  int cards = 0;
  if (!missing) cuda::require(cudaGetDeviceCount(&cards), "cudaGetDeviceCount");
  if (cards > 1) backends.push_back({"CudaOnTwoCards", make_on_two});
  return backends;
}

}  // namespace halotap::kernels
