#include "pipeline/host_card.hpp"

#include <stdexcept>
#include <utility>

#include "cuda/injected_failure.hpp"
#include "cuda/pass_executor.hpp"

namespace halotap::test {

kernels::cuda::HostPassDevice* card = nullptr;
kernels::ExecutorSpec card_spec;
const char* card_refusal = nullptr;
std::vector<std::int64_t> card_chunks;

}  // namespace halotap::test

namespace halotap::kernels {

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack> stack, const ExecutorSpec& spec) {
  if (test::card_refusal != nullptr) throw std::invalid_argument(test::card_refusal);
  const cuda::PassShape shape = cuda::make_pass_shape(*stack, spec);
  auto made = std::make_unique<cuda::HostPassDevice>(stack, shape);
  test::card = made.get();
  test::card_spec = spec;
  test::card_chunks.push_back(spec.max_chunk_frames);
  return cuda::make_pass_executor(shape, cuda::with_injected_failure(std::move(made), shape, spec.now_ns));
}

}  // namespace halotap::kernels
