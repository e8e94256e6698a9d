// The backends that a test program runs the executor's tests over.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "halotap/kernels/executor.hpp"

namespace halotap::kernels {

struct ExecutorBackend {
  std::string name;  // of the test's instance
  std::function<std::unique_ptr<Executor>(std::shared_ptr<const Stack>, const ExecutorSpec&)> make;
  std::optional<std::string> missing = std::nullopt;  // why it cannot run on this machine
};

// How a test that fails names it.
inline void PrintTo(const ExecutorBackend& backend, std::ostream* out) { *out << backend.name; }

// Each program defines its own.
std::vector<ExecutorBackend> executor_backends();

}  // namespace halotap::kernels
