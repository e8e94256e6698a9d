// The CUDA backend of a build without it.
#include "halotap/kernels/device_timing.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels {
namespace {

[[noreturn]] void refuse() {
  throw BackendUnavailable("backend cuda: this build has none (it was configured without a CUDA toolkit)");
}

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack>, const ExecutorSpec&) { refuse(); }
DeviceTiming time_on_device(const Stack&, const DeviceTimingSpec&) { refuse(); }

}  // namespace halotap::kernels
