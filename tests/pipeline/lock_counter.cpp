#include "pipeline/lock_counter.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

#include <atomic>

namespace {

thread_local std::uint64_t calls = 0;

// Counts, and calls the C library's own function of that name, which stands behind this program's.
template <typename... Parameters>
int count_and_call(const char* name, std::atomic<int (*)(Parameters...)>& found, Parameters... parameters) {
  ++calls;
  auto function = found.load(std::memory_order_relaxed);  // the same whoever finds it
  if (function == nullptr) {
    function = reinterpret_cast<int (*)(Parameters...)>(dlsym(RTLD_NEXT, name));
    found.store(function, std::memory_order_relaxed);
  }
  return function(parameters...);
}

}  // namespace

namespace halotap::test {
std::uint64_t lock_calls() { return calls; }
}  // namespace halotap::test

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static std::atomic<int (*)(pthread_mutex_t*)> found{nullptr};
  return count_and_call("pthread_mutex_lock", found, mutex);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static std::atomic<int (*)(pthread_mutex_t*)> found{nullptr};
  return count_and_call("pthread_mutex_trylock", found, mutex);
}

int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* until) noexcept {
  static std::atomic<int (*)(pthread_mutex_t*, const timespec*)> found{nullptr};
  return count_and_call("pthread_mutex_timedlock", found, mutex, until);
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* until) noexcept {
  static std::atomic<int (*)(pthread_mutex_t*, clockid_t, const timespec*)> found{nullptr};
  return count_and_call("pthread_mutex_clocklock", found, mutex, clock, until);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static std::atomic<int (*)(pthread_rwlock_t*)> found{nullptr};
  return count_and_call("pthread_rwlock_rdlock", found, lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static std::atomic<int (*)(pthread_rwlock_t*)> found{nullptr};
  return count_and_call("pthread_rwlock_wrlock", found, lock);
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) noexcept {
  static std::atomic<int (*)(pthread_rwlock_t*)> found{nullptr};
  return count_and_call("pthread_rwlock_tryrdlock", found, lock);
}

int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) noexcept {
  static std::atomic<int (*)(pthread_rwlock_t*)> found{nullptr};
  return count_and_call("pthread_rwlock_trywrlock", found, lock);
}

int pthread_spin_lock(pthread_spinlock_t* lock) noexcept {
  static std::atomic<int (*)(pthread_spinlock_t*)> found{nullptr};
  return count_and_call("pthread_spin_lock", found, lock);
}

int sem_wait(sem_t* semaphore) {
  static std::atomic<int (*)(sem_t*)> found{nullptr};
  return count_and_call("sem_wait", found, semaphore);
}
}
