#include "live/capture.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace halotap::io {
namespace {

// The consumer is told of a line in time that differs by more. Two clocks apart by 1000 ppm make it so twice a second.
constexpr std::int64_t kLineToleranceNs = 50'000;

}  // namespace

Capture::Capture(std::int64_t channels, double rate_hz, std::int64_t ring_capacity_frames)
    : ns_a_frame_(1e9 / rate_hz),
      capacity_frames_(ring_capacity_frames),
      ring_(channels, ring_capacity_frames),
      clock_(rate_hz) {}

std::int64_t Capture::captured_ns_of(const PlacedGap& line, std::int64_t frame) const noexcept HALOTAP_NONBLOCKING {
  return line.captured_ns + std::llround(static_cast<double>(frame - line.at_frame) * ns_a_frame_);
}

void Capture::tell_time() noexcept HALOTAP_NONBLOCKING {
  const bool is_told = told_.captured_ns != 0 &&
                       std::abs(captured_ns_of(told_, newest_.at_frame) - newest_.captured_ns) <= kLineToleranceNs;
  // Gaps need the queue more: without room the line is told with a later block.
  if (is_told || !gaps_.has_room()) return;
  const PlacedGap line{pushed_, {}, captured_ns_of(newest_, pushed_)};
  if (gaps_.push(line)) told_ = line;
}

void Capture::wait_with(const Gap& gap, std::int64_t at_frame) noexcept HALOTAP_NONBLOCKING {
  if (!waiting_.gap.exists()) waiting_.at_frame = at_frame;
  waiting_.gap += gap;
}

void Capture::on_block(const float* samples, std::int64_t frames, std::int64_t now_ns,
                       bool flagged) noexcept HALOTAP_NONBLOCKING {
  ++counters_.blocks;
  counters_.last_block_ns = now_ns;
  counters_.blocks_flagged += flagged ? 1 : 0;
  if (frames > 0) {
    const CaptureClock::Loss loss = clock_.on_block(now_ns, frames);
    newest_ = {pushed_ + frames - 1, {}, clock_.intended_ns()};
    const std::int64_t dropped_before = static_cast<std::int64_t>(counters_.frames_dropped);
    counters_.frames_delivered += static_cast<std::uint64_t>(frames);
    counters_.frames_lost += static_cast<std::uint64_t>(loss.frames);
    counters_.measured_rate_hz = clock_.measured_rate_hz();
    counters_.is_off_rate = clock_.is_off_rate() ? 1 : 0;
    // The clock counts what was delivered, the ring what was pushed: all drops so far lie between them.
    wait_with({.frames_lost = loss.frames, .is_reopening = reopened_},
              std::clamp<std::int64_t>(loss.at_frame - dropped_before, 0, pushed_));
    reopened_ = false;
    std::int64_t accepted = std::min(frames, ring_.writable_frames());
    if (accepted > 0 && waiting_.gap.exists()) {
      // A gap is queued before the frames behind it: who sees those sees it. Where it cannot be, they are dropped too.
      waiting_.captured_ns = captured_ns_of(newest_, waiting_.at_frame);
      if (gaps_.push(waiting_)) {
        told_ = waiting_;
        waiting_ = {};
      } else {
        accepted = 0;
      }
    }
    if (accepted > 0) tell_time();
    ring_.push(samples, accepted);
    pushed_ += accepted;
    if (accepted < frames) {
      counters_.frames_dropped += static_cast<std::uint64_t>(frames - accepted);
      wait_with({.frames_dropped = frames - accepted}, pushed_);
    }
  }
  published_.store(counters_);
}

void Capture::on_reopen() noexcept {
  clock_.on_reopen();
  reopened_ = true;
}

std::int64_t Capture::read(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  // In this order: a gap in front of a frame seen here is in the queue.
  std::int64_t count = std::min(frames, ring_.readable_frames());
  for (const PlacedGap* next = gaps_.front(); next != nullptr; next = gaps_.front()) {
    if (next->gap.exists()) {
      count = std::min(count, std::max<std::int64_t>(next->at_frame - taken_, 0));
      break;
    }
    if (next->at_frame >= taken_ + count) break;
    read_line_ = *next;
    gaps_.pop();
  }
  ring_.pop(samples, count);
  taken_ += count;
  return count;
}

bool Capture::is_at_gap() const noexcept HALOTAP_NONBLOCKING {
  const PlacedGap* const next = gaps_.front();
  return next != nullptr && next->gap.exists() && next->at_frame <= taken_;
}

Gap Capture::take_gap() noexcept HALOTAP_NONBLOCKING {
  Gap gap;
  for (const PlacedGap* next = gaps_.front(); next != nullptr && next->at_frame <= taken_; next = gaps_.front()) {
    if (next->gap.exists()) {
      gap += next->gap;
      gap.frames_late = std::max(gap.frames_late, taken_ - next->at_frame);
    }
    read_line_ = *next;
    gaps_.pop();
  }
  return gap;
}

}  // namespace halotap::io
