#include "pipeline/allocation_counter.hpp"

#include <cerrno>
#include <cstddef>

// The program's own malloc family goes in front of the C library's, which it calls by its other names (GNU libc).
// NOLINTBEGIN(bugprone-reserved-identifier, readability-identifier-naming)
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);
}
// NOLINTEND(bugprone-reserved-identifier, readability-identifier-naming)

namespace {
thread_local std::uint64_t calls = 0;
}

namespace halotap::test {
std::uint64_t allocator_calls() { return calls; }
}  // namespace halotap::test

extern "C" {

void* malloc(std::size_t size) {
  ++calls;
  return __libc_malloc(size);
}

void* calloc(std::size_t count, std::size_t size) {
  ++calls;
  return __libc_calloc(count, size);
}

void* realloc(void* memory, std::size_t size) {
  ++calls;
  return __libc_realloc(memory, size);
}

void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++calls;
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  ++calls;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

void free(void* memory) {
  if (memory != nullptr) ++calls;
  __libc_free(memory);
}
}
