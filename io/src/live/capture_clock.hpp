// Frames counted against the monotonic clock.
#pragma once

#include <chrono>
#include <cstdint>

#include "halotap/pipeline/annotations.hpp"

namespace halotap::io {

// Tells how many frames of a device never came. Devices do not: their flags stay silent through losses of two thirds.
//
//     lateness(block) = time since the first block * rate - frames since then
//
// Lateness wanders, for a block comes when the system gets round to it, but its least value over some time (the
// baseline) stays where it is while nothing is lost. Two rules find a loss:
//   - at once: lateness is `stall` above the baseline and has not fallen for the time of a block. What a device held
//     back during a stall it delivers at once, and then lateness falls;
//   - by and by: the least lateness of half a second is three quarters of a block, at least 5 ms, above the baseline.
// What stays below both is taken as drift between the two clocks, up to 1000 ppm. Losses are estimates, right to the
// system's own delays at that moment (about a millisecond on a quiet one).
//
// Times are those of a monotonic clock, in nanoseconds. One thread; allocates and locks nothing. [producer]
class CaptureClock {
 public:
  explicit CaptureClock(double rate_hz);

  struct Loss {
    std::int64_t frames = 0;    // 0: none was found
    std::int64_t at_frame = 0;  // they belong in front of this frame of those delivered, counted from 0
  };
  // A block of `frames` (at least 1) frames whose delivery is at `now`. Returns the loss that this block made known.
  Loss on_block(std::int64_t now_ns, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // When the last frame of the last block was meant to be delivered, as far as the clock can tell: on the line that the
  // least lateness draws.
  std::int64_t intended_ns() const noexcept HALOTAP_NONBLOCKING;
  // The next block is the first of a device that was opened anew: what is missing until it comes is a loss.
  void on_reopen() noexcept HALOTAP_NONBLOCKING { reopened_ = true; }

  // Frames a second that the device delivers, lost ones aside; 0 before it has run for three seconds without a pause.
  double measured_rate_hz() const noexcept { return measured_rate_hz_; }
  // The device has been off its rate by more than 2 % for three seconds on end: a burst of one lies in two of them.
  bool is_off_rate() const noexcept { return seconds_off_rate_ >= 3; }

 private:
  double lateness(std::int64_t now_ns) const noexcept;
  Loss lose(double frames, std::int64_t at_frame) noexcept;
  void restart_window(std::int64_t now_ns, double least) noexcept;
  void restart_rate(std::int64_t now_ns) noexcept;
  void measure_rate(std::int64_t now_ns, std::int64_t interval_ns, std::int64_t block_ns) noexcept;

  double rate_hz_;
  bool started_ = false;
  bool reopened_ = false;
  std::int64_t epoch_ns_ = 0;
  std::int64_t last_ns_ = 0;
  std::int64_t delivered_ = 0;  // all
  std::int64_t accounted_ = 0;  // delivered or lost since the first block, which itself does not count

  double baseline_ = 0;
  std::int64_t window_began_ns_ = 0;
  std::int64_t window_began_at_frame_ = 0;
  std::int64_t window_blocks_ = 0;
  double window_least_ = 0;

  bool suspects_ = false;  // a stall whose backlog may still come
  std::int64_t suspect_at_frame_ = 0;
  double suspect_least_ = 0;
  std::int64_t suspect_fell_ns_ = 0;  // when lateness last fell

  std::int64_t rate_began_ns_ = 0;
  std::int64_t rate_frames_ = 0;
  int rate_seconds_ = 0;  // whole ones measured since the last pause
  int seconds_off_rate_ = 0;
  double measured_rate_hz_ = 0;
};

}  // namespace halotap::io
