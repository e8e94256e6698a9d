#include "halotap/kernels/executor.hpp"

#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "cuda/stack_plan.hpp"
#include "halotap/kernels/names.hpp"

namespace halotap::kernels {
namespace {

constexpr std::align_val_t kPage{4096};

constexpr std::array kPrecisionNames{
    std::pair{Precision::kFp32, std::string_view{"fp32"}}, std::pair{Precision::kTf32, std::string_view{"tf32"}},
    std::pair{Precision::kBf16, std::string_view{"bf16"}}, std::pair{Precision::kFp16, std::string_view{"fp16"}}};
constexpr std::array kInvocationNames{std::pair{CudaInvocation::kLayers, std::string_view{"layers"}},
                                      std::pair{CudaInvocation::kLaunch, std::string_view{"launch"}},
                                      std::pair{CudaInvocation::kResident, std::string_view{"resident"}}};

}  // namespace

std::string_view to_string(Precision precision) { return name_of(kPrecisionNames, precision); }
std::optional<Precision> parse_precision(std::string_view word) { return value_of(kPrecisionNames, word); }
std::string_view to_string(CudaInvocation invocation) { return name_of(kInvocationNames, invocation); }
std::optional<CudaInvocation> parse_cuda_invocation(std::string_view word) { return value_of(kInvocationNames, word); }

std::string one_kernel_refusal(const Stack& stack, Precision precision) {
  cuda::StackPlan plan;
  return cuda::plan_stack(stack, precision, plan);
}

float* Executor::allocate_samples(std::int64_t count) {
  if (count < 0 || count > kMostSamples) throw std::bad_alloc();
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  samples_.emplace_back(static_cast<float*>(::operator new(bytes, kPage)));
  float* memory = samples_.back().get();
  std::memset(memory, 0, bytes);  // and every page is there from now on
  return memory;
}

void Executor::FreePages::operator()(float* memory) const noexcept { ::operator delete(memory, kPage); }

}  // namespace halotap::kernels
