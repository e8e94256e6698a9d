// A clock that a test winds.
#pragma once

#include <chrono>

#include "halotap/pipeline/clock.hpp"

namespace halotap::test {

// Stands still but for what it is wound by, and for a tick each time that it is looked at.
class WoundClock final : public pipeline::Clock {
 public:
  explicit WoundClock(std::chrono::nanoseconds tick = std::chrono::nanoseconds{0}) : tick_(tick) {}

  pipeline::Instant now() const noexcept HALOTAP_NONBLOCKING override { return now_ += tick_; }
  void sleep(std::chrono::nanoseconds time) const override { wind(time); }
  void wind(std::chrono::nanoseconds time) const { now_ += time; }

 private:
  std::chrono::nanoseconds tick_;
  mutable pipeline::Instant now_{std::chrono::hours(1)};
};

}  // namespace halotap::test
