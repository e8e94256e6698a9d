// The card: whether it can be used, and memory on it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace halotap::kernels::cuda {

// The oldest cards that the kernels run on, as compute capability.
inline constexpr int kLeastComputeCapability = 80;

// Why a card of this compute capability (90 for 9.0) cannot be used, given CUDA's answer to whether the build has code
// for it; empty when it can. [any thread]
std::string refusal(const std::string& card, int compute_capability, bool has_code);

// The current device's name. Throws BackendUnavailable when there is no driver, no device, or one that the kernels do
// not run on or that this build has no code for. [control]
std::string require_device();

// The current device's, 90 for 9.0. Throws as `require`. [control]
int compute_capability();

// Throws std::bad_alloc when CUDA is out of memory, and BackendUnavailable, naming the call and CUDA's reason, for any
// other error. [control]
void require(cudaError_t result, const char* call);

struct DeviceFree {
  void operator()(void* memory) const noexcept { cudaFree(memory); }
};
struct HostFree {
  void operator()(void* memory) const noexcept { cudaFreeHost(memory); }
};
template <typename T>
using DeviceArray = std::unique_ptr<T[], DeviceFree>;
template <typename T>
using PinnedArray = std::unique_ptr<T[], HostFree>;

// Zeroed memory of the current device, and zeroed host memory that it can read and write under the same address. Throw
// as `require`. [control]
template <typename T>
DeviceArray<T> allocate_on_device(std::int64_t count) {
  void* memory = nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count > 0 ? count : 1) * sizeof(T);
  require(cudaMalloc(&memory, bytes), "cudaMalloc");
  DeviceArray<T> array(static_cast<T*>(memory));
  require(cudaMemset(memory, 0, bytes), "cudaMemset");
  return array;
}
template <typename T>
PinnedArray<T> allocate_pinned(std::int64_t count) {
  void* memory = nullptr;
  const std::size_t bytes = static_cast<std::size_t>(count > 0 ? count : 1) * sizeof(T);
  require(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable), "cudaHostAlloc");
  PinnedArray<T> array(static_cast<T*>(memory));
  for (std::int64_t i = 0; i < count; ++i) array[static_cast<std::size_t>(i)] = T{};
  return array;
}

// Samples in host memory as allocate_pinned's, which begin with a page, unlike CUDA's own.
class PinnedSamples {
 public:
  // Throws as `require`. [control]
  float* allocate(std::int64_t count) {
    constexpr std::size_t kPageBytes = 4096;
    const auto page_floats = static_cast<std::int64_t>(kPageBytes / sizeof(float));
    void* memory = samples_.emplace_back(allocate_pinned<float>(count + page_floats)).get();
    std::size_t room = static_cast<std::size_t>(count + page_floats) * sizeof(float);
    return static_cast<float*>(std::align(kPageBytes, static_cast<std::size_t>(count) * sizeof(float), memory, room));
  }

 private:
  std::vector<PinnedArray<float>> samples_;
};

struct StreamDestroy {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
};
using OwnedStream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, StreamDestroy>;

// A stream that does not wait for the default one. Throws as `require`. [control]
OwnedStream make_stream();

// A word on the current device by which its kernels know that nobody waits for their results any more: where these were
// to go may be the caller's again.
class GiveUp {
 public:
  // Throws as `require`. [control]
  GiveUp() : d_word_(allocate_on_device<int>(1)), one_(allocate_pinned<int>(1)), stream_(make_stream()) { one_[0] = 1; }

  const volatile int* d_word() const noexcept { return d_word_.get(); }

  // Kernels do not keep this from getting there, unless nothing does: then they write nothing either. [worker]
  void tell() noexcept {
    cudaMemcpyAsync(d_word_.get(), one_.get(), sizeof(int), cudaMemcpyHostToDevice, stream_.get());
  }

 private:
  DeviceArray<int> d_word_;  // not 0: given up
  PinnedArray<int> one_;
  OwnedStream stream_;
};

// Streaming multiprocessors of the current device. [worker]
cudaError_t count_processors(int& processors) noexcept;

// Makes `device` the calling thread's current one, and the one before again at the end. [worker]
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) noexcept {
    cudaGetDevice(&before_);
    if (before_ == device) return;
    cudaSetDevice(device);
    changed_ = true;
  }
  ~CurrentDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace halotap::kernels::cuda
