// Function annotations that tools check.
#pragma once

// Marks a function that never blocks: no allocation, lock, system call or exception on any path. Placed after
// `noexcept`. Clang 20 and later check it, at run time with -fsanitize=realtime; elsewhere it is empty.
#if defined(__clang__) && __clang_major__ >= 20
#define HALOTAP_NONBLOCKING [[clang::nonblocking]]
#else
#define HALOTAP_NONBLOCKING
#endif
