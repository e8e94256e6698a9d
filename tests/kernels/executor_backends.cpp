// The backends of kernels_tests: those that need no card.
#include "executor_backends.hpp"

#include "cuda/host_pass_device.hpp"
#include "cuda/pass_executor.hpp"

namespace halotap::kernels {

std::vector<ExecutorBackend> executor_backends() {
  const auto make_on_host = [](const std::shared_ptr<const Stack>& stack, const ExecutorSpec& spec) {
    const cuda::PassShape shape = cuda::make_pass_shape(*stack, spec);
    return cuda::make_pass_executor(shape, std::make_unique<cuda::HostPassDevice>(stack, shape));
  };
  std::vector<ExecutorBackend> backends{{"PassesOnTheHost", make_on_host}};
#ifdef HALOTAP_HAVE_CPU
  backends.push_back({"Cpu", make_cpu_executor});
#endif
  return backends;
}

}  // namespace halotap::kernels
