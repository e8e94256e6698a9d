#include "live/playback.hpp"

#include <algorithm>

namespace halotap::io {

Playback::Playback(std::int64_t channels, std::int64_t ring_capacity_frames)
    : ring_(channels, ring_capacity_frames), channels_(channels), capacity_(ring_capacity_frames) {}

std::int64_t Playback::write(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  const std::int64_t accepted = std::min(frames, ring_.writable_frames());
  ring_.push(samples, accepted);
  return accepted;
}

void Playback::on_block(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  // In this order: what was written before the end is in the ring.
  const bool ended = ended_.load(std::memory_order_acquire);  // pairs with end
  const std::int64_t readable = ring_.readable_frames();
  playing_ = playing_ || ended || 2 * readable >= capacity_;
  const std::int64_t count = playing_ ? std::min(frames, readable) : 0;
  ring_.pop(samples, count);
  std::fill(samples + count * channels_, samples + frames * channels_, 0.0F);
  ++counters_.blocks;
  counters_.frames_played += static_cast<std::uint64_t>(count);
  if (playing_ && !ended) counters_.frames_silent += static_cast<std::uint64_t>(frames - count);
  published_.store(counters_);
}

}  // namespace halotap::io
