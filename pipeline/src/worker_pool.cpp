#include "worker_pool.hpp"

#include <pthread.h>
#include <sched.h>

#include <cstring>
#include <string>
#include <system_error>

#include "halotap/pipeline/errors.hpp"
#include "waiting.hpp"

namespace halotap::pipeline {
namespace {

// Looks at the call counter before a thread goes to sleep: tens of microseconds, the gap between two calls of a busy
// caller.
constexpr int kLooks = 20'000;

void pin(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  if (const int error = pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set); error != 0) {
    throw ConfigError("worker_cpus: a worker thread cannot be put on processor " + std::to_string(cpu) + ": " +
                      std::strerror(error));
  }
}

}  // namespace

WorkerPool::WorkerPool(std::int64_t threads, const std::vector<int>& cpus) {
  try {
    threads_.reserve(static_cast<std::size_t>(threads));
    for (std::int64_t worker = 1; worker <= threads; ++worker) {
      threads_.emplace_back([this, worker] { work(worker); });
      pthread_setname_np(threads_.back().native_handle(), "halotap-engine");
      if (!cpus.empty()) pin(threads_.back(), cpus[static_cast<std::size_t>(worker - 1)]);
    }
  } catch (const std::system_error& error) {
    stop();
    throw ConfigError("worker_threads: the system refused to start " + std::to_string(threads) +
                      " threads: " + error.what());
  } catch (...) {
    stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { stop(); }

void WorkerPool::stop() noexcept {
  stop_.store(true, std::memory_order_relaxed);  // published by the release below
  calls_.fetch_add(1, std::memory_order_release);
  calls_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(std::size_t count, Task task, void* context) noexcept {
  task_ = task;
  context_ = context;
  items_done_.store(0, std::memory_order_relaxed);
  ticket_.store(std::uint64_t{count} << 32, std::memory_order_release);  // pairs with run_one's draw: task and context
  // seq_cst, with work's: either this sees the sleeper, or the sleeper sees the new count of calls before it sleeps.
  calls_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    const SystemCall wake;
    calls_.notify_all();
  }
  while (run_one(0)) {
  }
  // acquire, with run_one's release: what the items wrote
  for (int looks = 0; items_done_.load(std::memory_order_acquire) != count; ++looks) {
    if (looks < kLooks) {
      relax();
    } else {
      const SystemCall yield;
      std::this_thread::yield();  // a worker lost its processor; it may need this one
    }
  }
}

bool WorkerPool::run_one(std::int64_t worker) noexcept {
  const auto open = [](std::uint64_t ticket) { return (ticket & 0xFFFFFFFFu) < ticket >> 32; };
  if (!open(ticket_.load(std::memory_order_relaxed))) return false;              // keeps the low half from running over
  const std::uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acquire);  // pairs with run's store
  if (!open(ticket)) return false;
  task_(context_, static_cast<std::size_t>(ticket & 0xFFFFFFFFu), worker);
  items_done_.fetch_add(1, std::memory_order_release);  // pairs with run's wait
  return true;
}

void WorkerPool::work(std::int64_t worker) noexcept {
  std::uint32_t seen = 0;
  for (;;) {
    for (int looks = 0; looks < kLooks && calls_.load(std::memory_order_relaxed) == seen; ++looks) relax();
    sleepers_.fetch_add(1, std::memory_order_seq_cst);  // pairs with run's look at sleepers_
    calls_.wait(seen, std::memory_order_seq_cst);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
    seen = calls_.load(std::memory_order_acquire);  // pairs with stop's release
    if (stop_.load(std::memory_order_relaxed)) return;
    while (run_one(worker)) {
    }
  }
}

}  // namespace halotap::pipeline
