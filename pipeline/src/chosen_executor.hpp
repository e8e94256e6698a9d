// Which executor an engine's spec comes to.
#pragma once

#include <memory>

#include "failover_executor.hpp"
#include "halotap/kernels/executor.hpp"
#include "halotap/pipeline/engine.hpp"

namespace halotap::pipeline {

struct ChosenExecutor {
  Backend backend = Backend::kCpu;
  std::unique_ptr<kernels::Executor> executor;
  BackendChoice choice;
  const FailoverExecutor* fallback = nullptr;  // the executor, when it has one
};

// Makes it, and where the spec leaves the backend open finds out which is faster. Throws what the factories of
// executors throw. [control]
ChosenExecutor choose_executor(const std::shared_ptr<const kernels::Stack>& stack, const EngineSpec& spec);

}  // namespace halotap::pipeline
