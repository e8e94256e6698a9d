#include "halotap/pipeline/clock.hpp"

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

}  // namespace halotap::pipeline
