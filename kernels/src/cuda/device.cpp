#include "cuda/device.hpp"

#include <new>

#include "cuda/pass_kernels.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels::cuda {
namespace {

[[noreturn]] void refuse(const std::string& why) { throw BackendUnavailable("backend cuda: " + why); }

std::string version_text(int number) { return std::to_string(number / 10) + "." + std::to_string(number % 10); }

// CUDA's own numbers for its versions: 13000 for 13.0.
std::string cuda_version_text(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

void require_driver_and_device() {
  int driver = 0;
  // 0 where the driver's library is not installed.
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) refuse("expected an NVIDIA driver, found none");
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result == cudaErrorInsufficientDriver) {
    refuse("expected a driver for CUDA " + cuda_version_text(CUDART_VERSION) + " or later, found one for " +
           cuda_version_text(driver));
  }
  if (result == cudaErrorNoDevice || (result == cudaSuccess && devices == 0)) {
    refuse("expected a CUDA device, the driver shows none");
  }
  if (result != cudaSuccess) refuse(std::string("expected a CUDA device, got: ") + cudaGetErrorString(result));
}

}  // namespace

std::string refusal(const std::string& card, int compute_capability, bool has_code) {
  const std::string found = card + " has compute capability " + version_text(compute_capability);
  if (compute_capability < kLeastComputeCapability) {
    return found + ", expected " + version_text(kLeastComputeCapability) + " or later";
  }
  if (!has_code) {
    return found + ", for which this build has no code: configure with -DHALOTAP_CUDA_ARCHITECTURES=" +
           std::to_string(compute_capability) + " or =all";
  }
  return "";
}

std::string require_device() {
  require_driver_and_device();
  int device = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  const cudaError_t loaded = load_pass_kernels();
  const bool has_code = loaded != cudaErrorNoKernelImageForDevice && loaded != cudaErrorUnsupportedPtxVersion;
  const std::string why = refusal(properties.name, compute_capability(), has_code);
  if (!why.empty()) refuse(why);
  require(loaded, "cudaFuncGetAttributes");
  return properties.name;
}

int compute_capability() {
  int device = 0;
  int major = 0;
  int minor = 0;
  require(cudaGetDevice(&device), "cudaGetDevice");
  require(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  require(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  return 10 * major + minor;
}

void require(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  // Out of memory is not sticky, but stays the thread's last error until it is read.
  cudaGetLastError();
  if (result == cudaErrorMemoryAllocation) throw std::bad_alloc();
  refuse(std::string(call) + ": " + cudaGetErrorString(result));
}

OwnedStream make_stream() {
  cudaStream_t stream = nullptr;
  require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return OwnedStream(stream);
}

cudaError_t count_processors(int& processors) noexcept {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  return error != cudaSuccess ? error : cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace halotap::kernels::cuda
