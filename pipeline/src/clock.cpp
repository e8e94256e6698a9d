#include "halotap/pipeline/clock.hpp"

#include <cstdio>
#include <thread>

namespace halotap::pipeline {
namespace {

class MonotonicClock final : public Clock {
 public:
  Instant now() const noexcept HALOTAP_NONBLOCKING override { return std::chrono::steady_clock::now(); }
  void sleep(std::chrono::nanoseconds time) const override { std::this_thread::sleep_for(time); }
};

// Set up before main: a static inside the function would be guarded by a lock.
const MonotonicClock kClock;

}  // namespace

const Clock& monotonic_clock() noexcept HALOTAP_NONBLOCKING { return kClock; }

std::string duration_text(std::chrono::nanoseconds time) {
  // A unit up to where three digits would round to its thousand, which %g writes as 1e+03.
  constexpr double kMost = 999.5;
  const auto ns = static_cast<double>(time.count());
  char text[64];
  if (ns < kMost * 1e3) {
    std::snprintf(text, sizeof text, "%.3g us", ns / 1e3);
  } else if (ns < kMost * 1e6) {
    std::snprintf(text, sizeof text, "%.3g ms", ns / 1e6);
  } else {
    std::snprintf(text, sizeof text, ns < kMost * 1e9 ? "%.4g s" : "%.0f s", ns / 1e9);
  }
  return text;
}

}  // namespace halotap::pipeline
