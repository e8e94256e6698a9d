// Counts every call of the allocator in this program.
#pragma once

#include <cstdint>

namespace halotap::test {

// Calls of malloc, calloc, realloc, aligned allocation, free and everything built on them so far, by this thread.
std::uint64_t allocator_calls();

}  // namespace halotap::test
