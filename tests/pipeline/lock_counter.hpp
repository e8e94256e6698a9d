// Counts every lock that this program takes.
#pragma once

#include <cstdint>

namespace halotap::test {

// Calls of pthread_mutex_lock, and with it of std::mutex, so far, by this thread.
std::uint64_t lock_calls();

}  // namespace halotap::test
