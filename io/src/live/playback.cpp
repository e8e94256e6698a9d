#include "live/playback.hpp"

#include <algorithm>

namespace halotap::io {

Playback::Playback(std::int64_t channels, std::int64_t ring_capacity_frames, std::optional<std::int64_t> reserve_frames)
    : ring_(channels, ring_capacity_frames),
      channels_(channels),
      capacity_(ring_capacity_frames),
      reserve_(reserve_frames) {}

std::int64_t Playback::write(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  const std::int64_t accepted = std::min(frames, ring_.writable_frames());
  ring_.push(samples, accepted);
  return accepted;
}

void Playback::drop_oldest(std::int64_t frames, float* room, std::int64_t room_frames) noexcept HALOTAP_NONBLOCKING {
  std::int64_t left = std::min(frames, ring_.readable_frames());
  counters_.frames_discarded += static_cast<std::uint64_t>(left);
  while (left > 0) {
    const std::int64_t piece = std::min(left, room_frames);
    ring_.pop(room, piece);
    left -= piece;
  }
}

void Playback::on_block(float* samples, std::int64_t frames, std::int64_t now_ns,
                        bool flagged) noexcept HALOTAP_NONBLOCKING {
  // In this order: what was written before the end is in the ring.
  const bool ended = ended_.load(std::memory_order_acquire);  // pairs with end
  if (const std::int64_t asked = discard_asked_.exchange(0, std::memory_order_relaxed); asked > 0) {
    drop_oldest(asked, samples, frames);
  }
  if (reopened_ && reserve_) {
    drop_oldest(capacity_, samples, frames);
    is_playing_ = is_leading_in_ = false;
  }
  reopened_ = false;

  const std::int64_t readable = ring_.readable_frames();
  if (!is_playing_ && !is_leading_in_ && (ended || (reserve_ ? readable > 0 : 2 * readable >= capacity_))) {
    is_leading_in_ = true;
    lead_in_ = reserve_.value_or(0);
  }
  if (ended) lead_in_ = 0;
  std::int64_t lead_in = is_leading_in_ ? std::min(frames, lead_in_) : 0;
  lead_in_ -= lead_in;
  // A device that starts may take many blocks at once: then the time has not passed, and the reserve is not there.
  const bool has_reserve = ended || readable >= reserve_.value_or(0);
  if (is_leading_in_ && lead_in_ == 0 && !has_reserve) lead_in = frames;
  if (is_leading_in_ && lead_in_ == 0 && has_reserve) {
    is_leading_in_ = false;
    is_playing_ = true;
    ++counters_.beginnings;
  }

  const std::int64_t due = is_playing_ ? frames - lead_in : 0;
  const std::int64_t count = std::min(due, readable);
  std::fill(samples, samples + lead_in * channels_, 0.0F);
  ring_.pop(samples + lead_in * channels_, count);
  std::fill(samples + (lead_in + count) * channels_, samples + frames * channels_, 0.0F);

  ++counters_.blocks;
  counters_.blocks_flagged += flagged ? 1 : 0;
  counters_.frames_played += static_cast<std::uint64_t>(count);
  if (!ended) counters_.frames_silent += static_cast<std::uint64_t>((has_played_ ? frames : due) - count);
  has_played_ = has_played_ || is_playing_;
  const bool ran_dry = count < due && !ended;
  if (ran_dry && !is_dry_) ++counters_.underruns;
  is_dry_ = ran_dry;
  if (ran_dry && reserve_) is_playing_ = is_dry_ = false;
  counters_.is_playing = is_playing_ ? 1 : 0;
  counters_.last_block_ns = now_ns;
  counters_.last_block_frames = frames;
  published_.store(counters_);
}

}  // namespace halotap::io
