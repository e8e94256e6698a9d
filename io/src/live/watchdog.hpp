// When a device counts as lost, and when to try it again.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace halotap::io {

// Says when a device has called back too long ago. Time in which nobody looked does not count: a program that was
// suspended finds its device as it left it.
class Watchdog {
 public:
  using Duration = std::chrono::nanoseconds;

  // `first_limit` until the first block: a device may take a while to start.
  Watchdog(Duration limit, Duration first_limit) : limit_(limit), first_limit_(first_limit) {}

  // A look at the device at `now`, when it has delivered `blocks` blocks. True: it is lost.
  bool is_lost(Duration now, std::uint64_t blocks) {
    if (!looked_) {
      looked_ = true;
      blocks_at_start_ = blocks_ = blocks;
    } else if (blocks != blocks_) {
      blocks_ = blocks;
      quiet_ = Duration(0);
    } else {
      quiet_ += std::min(now - last_look_, kLongestLook);
    }
    last_look_ = now;
    return quiet_ >= (blocks_ == blocks_at_start_ ? first_limit_ : limit_);
  }

 private:
  static constexpr Duration kLongestLook = std::chrono::milliseconds(50);

  Duration limit_;
  Duration first_limit_;
  bool looked_ = false;
  std::uint64_t blocks_at_start_ = 0;
  std::uint64_t blocks_ = 0;
  Duration last_look_{0};
  Duration quiet_{0};
};

// Pauses between the tries to open a lost device: each twice as long as the one before.
class Backoff {
 public:
  using Duration = std::chrono::nanoseconds;

  Backoff(Duration first, Duration longest) : next_(first), longest_(longest) {}

  Duration next() {
    const Duration pause = std::min(next_, longest_);
    next_ = std::min(2 * pause, longest_);
    return pause;
  }

 private:
  Duration next_;
  Duration longest_;
};

}  // namespace halotap::io
