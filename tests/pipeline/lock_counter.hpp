// Counts every lock that this program takes.
#pragma once

#include <cstdint>

namespace halotap::test {

// Calls that take a mutex, a reader-writer lock, a spin lock or a semaphore, waiting for it or trying to, so far, by
// this thread: what std::mutex, std::timed_mutex, std::shared_mutex and everything built on them come down to.
std::uint64_t lock_calls();

}  // namespace halotap::test
