// From the session's thread to the device's.
#pragma once

#include <atomic>
#include <cstdint>

#include "halotap/pipeline/annotations.hpp"
#include "halotap/pipeline/published.hpp"
#include "halotap/pipeline/ring.hpp"

namespace halotap::io {

// What a device has played since the start. Frames written = frames_played + frames in the ring.
struct PlaybackCounters {
  std::uint64_t blocks = 0;
  std::uint64_t frames_played = 0;
  std::uint64_t frames_silent = 0;  // underrun: due while the ring was empty, silence in their place
};

// The body of an output device's callback, and the ring in front of it. It plays silence until half the ring is full or
// all has been written, so that a hiccup of the session is not heard. Silence before that and behind the end counts as
// no underrun.
class Playback {
 public:
  Playback(std::int64_t channels, std::int64_t ring_capacity_frames);

  // Takes as many of `frames` frames, [frames, channels], as fit, and returns how many. [producer]
  std::int64_t write(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // Nothing more will be written. [producer]
  void end() noexcept HALOTAP_NONBLOCKING { ended_.store(true, std::memory_order_release); }
  // Fills the device's block. [consumer]
  void on_block(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;

  // Frames in the ring. [producer]
  std::int64_t waiting_frames() const noexcept HALOTAP_NONBLOCKING { return capacity_ - ring_.writable_frames(); }
  // [any thread]
  PlaybackCounters counters() const noexcept { return published_.load(); }

 private:
  pipeline::Ring ring_;
  const std::int64_t channels_;
  const std::int64_t capacity_;
  std::atomic<bool> ended_{false};  // release by the producer, acquire by the consumer: all is in the ring by then
  bool playing_ = false;            // the consumer's
  PlaybackCounters counters_;       // likewise
  pipeline::Published<PlaybackCounters> published_;
};

}  // namespace halotap::io
