#include "pipeline/lock_counter.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>

namespace {

thread_local std::uint64_t calls = 0;

using Lock = int (*)(pthread_mutex_t*);

// The C library's own, behind this program's.
Lock c_library_lock() {
  static std::atomic<Lock> found{nullptr};
  Lock lock = found.load(std::memory_order_relaxed);  // the same whoever finds it
  if (lock == nullptr) {
    lock = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    found.store(lock, std::memory_order_relaxed);
  }
  return lock;
}

}  // namespace

namespace halotap::test {
std::uint64_t lock_calls() { return calls; }
}  // namespace halotap::test

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  ++calls;
  return c_library_lock()(mutex);
}
