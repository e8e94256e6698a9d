// The processor's floating-point mode while a backend computes or packs weights.
#pragma once

#include <cstdint>
#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace halotap::kernels {

// Sets round-to-nearest, denormal numbers read and written as zero, no traps; puts the caller's mode back at the end.
// Denormals would slow a loop by two orders of magnitude, and with the mode fixed here results do not depend on the
// caller's. On processors other than x86 and 64-bit Arm the caller's mode stays. [worker]
class FloatMode {
 public:
  FloatMode() : saved_(get()) { set(kMode); }
  ~FloatMode() { set(saved_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
#if defined(__x86_64__) || defined(__i386__)
  // MXCSR: flush to zero (bit 15), exceptions masked (7 to 12), denormals are zero (6), round to nearest (13, 14 clear)
  static constexpr std::uint32_t kMode = 0x9FC0;
  static std::uint32_t get() { return _mm_getcsr(); }
  static void set(std::uint32_t mode) { _mm_setcsr(mode); }
  std::uint32_t saved_;
#elif defined(__aarch64__)
  // FPCR: flush to zero (bit 24), round to nearest (22, 23 clear), no traps (8 to 15 clear)
  static constexpr std::uint64_t kMode = std::uint64_t{1} << 24;
  static std::uint64_t get() {
    std::uint64_t mode;
    asm volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set(std::uint64_t mode) { asm volatile("msr fpcr, %0" : : "r"(mode)); }
  std::uint64_t saved_;
#else
  static constexpr int kMode = 0;
  static int get() { return 0; }
  static void set(int) {}
  int saved_;
#endif
};

}  // namespace halotap::kernels
