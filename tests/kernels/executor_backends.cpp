// The backends of kernels_tests: those that need no card.
#include "executor_backends.hpp"

#include <utility>

#include "cuda/host_pass_device.hpp"
#include "cuda/pass_executor.hpp"

namespace halotap::kernels {

std::vector<ExecutorBackend> executor_backends() {
  const auto make_on_host = [](const std::shared_ptr<const Stack>& stack, const ExecutorSpec& spec) {
    const cuda::PassShape shape = cuda::make_pass_shape(*stack, spec);
    return cuda::make_pass_executor(shape, std::make_unique<cuda::HostPassDevice>(stack, shape));
  };
  // Streams shared by three, slots of every remainder; and even chunks apart from others.
  const auto make_on_three = [](const std::shared_ptr<const Stack>& stack, const ExecutorSpec& spec) {
    ExecutorSpec share = spec;
    share.max_streams = (spec.max_streams + 2) / 3;
    const cuda::PassShape shape = cuda::make_pass_shape(*stack, spec.max_streams < 1 ? spec : share);
    std::vector<std::unique_ptr<cuda::PassDevice>> devices;
    for (int d = 0; d < 3; ++d) {
      auto device = std::make_unique<cuda::HostPassDevice>(stack, shape);
      device->go_in_lockstep(2);
      devices.push_back(std::move(device));
    }
    return cuda::make_pass_executor(shape, std::move(devices));
  };
  std::vector<ExecutorBackend> backends{{"PassesOnTheHost", make_on_host}, {"PassesOnThreeHosts", make_on_three}};
#ifdef HALOTAP_HAVE_CPU
  backends.push_back({"Cpu", make_cpu_executor});
#endif
  return backends;
}

}  // namespace halotap::kernels
