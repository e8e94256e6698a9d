// From the session's thread to the device's.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "halotap/pipeline/annotations.hpp"
#include "halotap/pipeline/published.hpp"
#include "halotap/pipeline/ring.hpp"

namespace halotap::io {

// What a device has played since the start. Frames written = frames_played + frames_discarded + frames in the ring.
struct PlaybackCounters {
  std::uint64_t blocks = 0;
  std::uint64_t frames_played = 0;
  std::uint64_t frames_discarded = 0;  // given up unplayed, for they had waited too long
  std::uint64_t frames_silent = 0;     // underrun: due while the ring was empty, silence in their place
  std::uint64_t underruns = 0;         // times that it ran empty
  std::uint64_t blocks_flagged = 0;    // the device itself spoke of an underrun, its own; a hint, no more
  std::uint64_t beginnings = 0;        // times that it began to play
  std::uint64_t is_playing = 0;        // 0 or 1
  std::int64_t last_block_ns = 0;      // monotonic time of the last block
  std::int64_t last_block_frames = 0;
};

// The body of an output device's callback, and the ring in front of it. Silence before the first frame and behind the
// last counts as no underrun. Two ways to begin:
//   - who writes can wait, so the ring is full as a rule: when half of it is, and behind an underrun at once;
//   - who writes cannot (`reserve_frames`): so long after the first frame came, and again behind each underrun, that
//     many frames are in the ring when the next ones come. What came for a device that was lost is discarded.
class Playback {
 public:
  Playback(std::int64_t channels, std::int64_t ring_capacity_frames, std::optional<std::int64_t> reserve_frames = {});

  // Takes as many of `frames` frames, [frames, channels], as fit, and returns how many. [producer]
  std::int64_t write(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // The oldest `frames` frames are not to be played. [producer]
  void discard(std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
    discard_asked_.fetch_add(frames, std::memory_order_relaxed);  // carries nothing but itself, as on_block's exchange
  }
  // Nothing more will be written. [producer]
  void end() noexcept HALOTAP_NONBLOCKING { ended_.store(true, std::memory_order_release); }
  // Fills the device's block at `now_ns` of the monotonic clock. [consumer]
  void on_block(float* samples, std::int64_t frames, std::int64_t now_ns, bool flagged) noexcept HALOTAP_NONBLOCKING;
  // The device was opened anew. While no callback runs. [control]
  void on_reopen() noexcept { reopened_ = true; }

  // Frames in the ring. [producer]
  std::int64_t waiting_frames() const noexcept HALOTAP_NONBLOCKING { return capacity_ - ring_.writable_frames(); }
  std::int64_t capacity_frames() const { return capacity_; }
  // [any thread]
  PlaybackCounters counters() const noexcept { return published_.load(); }

 private:
  // Takes up to `frames` frames out of the ring, by way of `room`, which has place for `room_frames`.
  void drop_oldest(std::int64_t frames, float* room, std::int64_t room_frames) noexcept HALOTAP_NONBLOCKING;

  pipeline::Ring ring_;
  const std::int64_t channels_;
  const std::int64_t capacity_;
  const std::optional<std::int64_t> reserve_;
  std::atomic<bool> ended_{false};  // release by the producer, acquire by the consumer: all is in the ring by then
  std::atomic<std::int64_t> discard_asked_{0};  // by the producer, of the consumer
  // The consumer's.
  bool is_leading_in_ = false;
  std::int64_t lead_in_ = 0;  // frames of silence still to come then
  bool is_playing_ = false;
  bool has_played_ = false;
  bool is_dry_ = false;  // since the last underrun nothing came
  bool reopened_ = false;
  PlaybackCounters counters_;
  pipeline::Published<PlaybackCounters> published_;
};

}  // namespace halotap::io
