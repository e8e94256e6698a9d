// How a thread of the real-time path waits.
#pragma once

#if defined(__has_feature)
#if __has_feature(realtime_sanitizer)
#define HALOTAP_REALTIME_SANITIZER
#include <sanitizer/rtsan_interface.h>
#endif
#endif

namespace halotap::pipeline {

// Stands where such a thread may call the system, because its function's comment says so: RealtimeSanitizer passes over
// this scope and over nothing else.
struct SystemCall {
#ifdef HALOTAP_REALTIME_SANITIZER
  __rtsan::ScopedDisabler disabler;
#else
  SystemCall() {}  // a use, so that no compiler calls the variable unused
#endif
};

// Between two looks at what another thread writes.
inline void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace halotap::pipeline
