// How long the CUDA backend takes in a build without it: a file of its own, as with a toolkit, so that a test may put
// an executor in the place of the missing one.
#include "cuda/no_cuda.hpp"
#include "halotap/kernels/device_timing.hpp"

namespace halotap::kernels {

DeviceTiming time_on_device(const Stack&, const DeviceTimingSpec&) { cuda::refuse_without_toolkit(); }

}  // namespace halotap::kernels
