// From the device's thread to the reader's.
#pragma once

#include <atomic>
#include <cstdint>

#include "halotap/pipeline/annotations.hpp"
#include "halotap/pipeline/published.hpp"
#include "halotap/pipeline/ring.hpp"
#include "live/capture_clock.hpp"
#include "live/gap_queue.hpp"

namespace halotap::io {

// What a device has delivered since the start. frames_delivered = frames read + frames_dropped + frames in the ring.
struct CaptureCounters {
  std::uint64_t blocks = 0;
  std::uint64_t frames_delivered = 0;
  std::uint64_t frames_dropped = 0;  // delivered while the ring was full
  std::uint64_t frames_lost = 0;     // never delivered, as the clock tells
  std::uint64_t blocks_flagged = 0;  // the device itself spoke of a loss; a hint, no more
  std::int64_t last_block_ns = 0;    // monotonic time of the last block
  double measured_rate_hz = 0;       // 0: not known yet
  std::uint64_t is_off_rate = 0;     // CaptureClock::is_off_rate
};

// The body of a device's callback, and the ring behind it. Frames come out in order, each gap at its place: one that
// the ring made, exactly there; one that the clock found, where frames came again, or, once the reader is past that, as
// soon as it is known (a block later).
class Capture {
 public:
  Capture(std::int64_t channels, double rate_hz, std::int64_t ring_capacity_frames);

  // `frames` (0 or more) frames, [frames, channels], delivered at `now_ns` of the monotonic clock. [producer]
  void on_block(const float* samples, std::int64_t frames, std::int64_t now_ns,
                bool flagged) noexcept HALOTAP_NONBLOCKING;
  // The device was opened anew. While no callback runs. [control]
  void on_reopen() noexcept;

  // Up to `frames` frames, none beyond the next gap. [consumer]
  std::int64_t read(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // Whether a gap is what comes next. [consumer]
  bool is_at_gap() const noexcept HALOTAP_NONBLOCKING;
  // The gap in front of the next frame, all of it; none when there is no gap. [consumer]
  Gap take_gap() noexcept HALOTAP_NONBLOCKING;

  // When the last frame read was meant to be captured, in nanoseconds of the monotonic clock. After the first.
  // [consumer]
  std::int64_t captured_ns() const noexcept HALOTAP_NONBLOCKING { return captured_ns_of(read_line_, taken_ - 1); }
  // Frames that wait, and how many may. [consumer]
  std::int64_t waiting_frames() const noexcept HALOTAP_NONBLOCKING { return ring_.readable_frames(); }
  std::int64_t capacity_frames() const noexcept HALOTAP_NONBLOCKING { return capacity_frames_; }

  // [any thread]
  CaptureCounters counters() const noexcept { return published_.load(); }

 private:
  std::int64_t captured_ns_of(const PlacedGap& line, std::int64_t frame) const noexcept HALOTAP_NONBLOCKING;
  void tell_time() noexcept HALOTAP_NONBLOCKING;
  void wait_with(const Gap& gap, std::int64_t at_frame) noexcept HALOTAP_NONBLOCKING;

  const double ns_a_frame_;
  const std::int64_t capacity_frames_;
  pipeline::Ring ring_;
  CaptureClock clock_;
  CaptureCounters counters_;  // the producer's own copy
  pipeline::Published<CaptureCounters> published_;
  std::int64_t pushed_ = 0;  // into the ring, all
  bool reopened_ = false;
  PlacedGap waiting_;  // the producer's, until frames go into the ring behind it
  PlacedGap newest_;   // frames of the newest block by their places in the ring; its line in time
  PlacedGap told_;     // the line that the consumer knows, or will when it gets there
  GapQueue gaps_;
  std::int64_t taken_ = 0;  // the consumer's
  PlacedGap read_line_;     // likewise: the line that the frames taken last are on
};

}  // namespace halotap::io
