// Threads that share the entries of a process call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

namespace halotap::pipeline {

// Runs numbered items on a fixed set of threads and the caller. An idle thread looks out for work for a moment and then
// sleeps. construct (starts the threads; throws) -> run, any number of times -> destroy (joins them).
class WorkerPool {
 public:
  using Task = void (*)(void* context, std::size_t item, std::int64_t worker) noexcept;

  // `cpus`: the processor of each thread, or empty. Throws ConfigError when one cannot be had. [control]
  WorkerPool(std::int64_t threads, const std::vector<int>& cpus);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Calls `task` once for every item in [0, count), count below 2^20, each with the number of the thread it runs on: 0
  // for the caller, 1 and up for the pool's. Returns when all are done. [worker]
  void run(std::size_t count, Task task, void* context) noexcept;

 private:
  void work(std::int64_t worker) noexcept;
  bool run_one(std::int64_t worker) noexcept;
  void stop() noexcept;

  // What run hands over: written before ticket_ is, read by those who drew from it.
  Task task_ = nullptr;
  void* context_ = nullptr;

  // The next item in the low half, the count in the high half: both change in one step, so that a thread that comes
  // late never takes an item of one call for another's.
  std::atomic<std::uint64_t> ticket_{0};
  std::atomic<std::uint64_t> items_done_{0};
  std::atomic<std::uint32_t> calls_{0};  // what idle threads watch
  std::atomic<std::int64_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

}  // namespace halotap::pipeline
