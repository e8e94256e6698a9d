// The card of a program that has none: its factory of CUDA executors makes passes on the host, which fail on demand.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/host_pass_device.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::test {

// Of the executor made last.
extern kernels::cuda::HostPassDevice* card;
extern kernels::ExecutorSpec card_spec;
// Why the card takes no model; null: it does.
extern const char* card_refusal;
// The longest chunks of all executors made since a test cleared this, in order.
extern std::vector<std::int64_t> card_chunks;

}  // namespace halotap::test
