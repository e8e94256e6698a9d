// The CPU backend of a build without it.
#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/roofline.hpp"

namespace halotap::kernels {
namespace {

[[noreturn]] void refuse() {
  throw BackendUnavailable("backend cpu: this build has none (it was configured without the Highway library)");
}

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(std::shared_ptr<const Stack>, const ExecutorSpec&) { refuse(); }
std::int64_t multiply_add_loop(std::int64_t) { refuse(); }
std::int64_t read_loop(std::span<const float>, std::int64_t) { refuse(); }

}  // namespace halotap::kernels
