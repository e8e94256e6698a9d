#include "pipeline/host_card.hpp"

#include <utility>

#include "cuda/pass_executor.hpp"

namespace halotap::test {

kernels::cuda::HostPassDevice* card = nullptr;
std::vector<std::int64_t> card_chunks;

}  // namespace halotap::test

namespace halotap::kernels {

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack> stack, const ExecutorSpec& spec) {
  const cuda::PassShape shape = cuda::make_pass_shape(*stack, spec);
  auto made = std::make_unique<cuda::HostPassDevice>(stack, shape);
  test::card = made.get();
  test::card_chunks.push_back(spec.max_chunk_frames);
  return cuda::make_pass_executor(shape, std::move(made));
}

}  // namespace halotap::kernels
