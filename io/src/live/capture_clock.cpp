#include "live/capture_clock.hpp"

#include <algorithm>
#include <cmath>

namespace halotap::io {
namespace {

constexpr double kStallSeconds = 0.03;  // above what a busy system delays a thread by
constexpr double kStallBlocks = 2;
constexpr std::int64_t kWindowNs = 500'000'000;
constexpr std::int64_t kLeastWindowBlocks = 8;
constexpr double kSlowLossSeconds = 0.005;
constexpr double kSlowLossBlocks = 0.75;
constexpr double kMostDrift = 1e-3;
constexpr std::int64_t kRateWindowNs = 1'000'000'000;
constexpr std::int64_t kPauseNs = 50'000'000;  // longer ones, or of four blocks, belong to no rate
constexpr double kMostRateError = 0.02;

}  // namespace

CaptureClock::CaptureClock(double rate_hz) : rate_hz_(rate_hz) {}

double CaptureClock::lateness(std::int64_t now_ns) const noexcept {
  return static_cast<double>(now_ns - epoch_ns_) * 1e-9 * rate_hz_ - static_cast<double>(accounted_);
}

std::int64_t CaptureClock::intended_ns() const noexcept HALOTAP_NONBLOCKING {
  return epoch_ns_ + std::llround((static_cast<double>(accounted_) + baseline_) / rate_hz_ * 1e9);
}

CaptureClock::Loss CaptureClock::lose(double frames, std::int64_t at_frame) noexcept {
  const auto lost = std::max<std::int64_t>(std::llround(frames), 0);
  accounted_ += lost;
  suspects_ = false;
  return {lost, at_frame};
}

void CaptureClock::restart_window(std::int64_t now_ns, double least) noexcept {
  window_began_ns_ = now_ns;
  window_began_at_frame_ = delivered_;
  window_blocks_ = 0;
  window_least_ = least;
}

void CaptureClock::restart_rate(std::int64_t now_ns) noexcept {
  rate_began_ns_ = now_ns;
  rate_frames_ = 0;
  rate_seconds_ = 0;
  seconds_off_rate_ = 0;
}

void CaptureClock::measure_rate(std::int64_t now_ns, std::int64_t interval_ns, std::int64_t block_ns) noexcept {
  if (interval_ns > std::max(kPauseNs, 4 * block_ns)) return restart_rate(now_ns);
  const std::int64_t span_ns = now_ns - rate_began_ns_;
  if (span_ns < kRateWindowNs) return;
  const double rate_hz = static_cast<double>(rate_frames_) / (static_cast<double>(span_ns) * 1e-9);
  // The first second may hold what had gathered before the start.
  if (++rate_seconds_ > 1) {
    seconds_off_rate_ = std::abs(rate_hz / rate_hz_ - 1) > kMostRateError ? seconds_off_rate_ + 1 : 0;
  }
  if (rate_seconds_ > 2) measured_rate_hz_ = rate_hz;
  rate_began_ns_ = now_ns;
  rate_frames_ = 0;
}

CaptureClock::Loss CaptureClock::on_block(std::int64_t now_ns, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  const std::int64_t at_frame = delivered_;
  delivered_ += frames;
  if (!started_) {
    started_ = true;
    reopened_ = false;
    epoch_ns_ = last_ns_ = now_ns;
    restart_window(now_ns, 0);
    restart_rate(now_ns);
    return {};
  }
  const std::int64_t interval_ns = now_ns - last_ns_;
  const auto block_ns = static_cast<std::int64_t>(static_cast<double>(frames) / rate_hz_ * 1e9);
  last_ns_ = now_ns;
  accounted_ += frames;
  const double late = lateness(now_ns);

  if (reopened_) {
    reopened_ = false;
    restart_rate(now_ns);
    const Loss loss = lose(late - baseline_, at_frame);
    restart_window(now_ns, baseline_);
    return loss;
  }
  rate_frames_ += frames;
  measure_rate(now_ns, interval_ns, block_ns);

  baseline_ = std::min(baseline_, late);
  window_least_ = window_blocks_ == 0 ? late : std::min(window_least_, late);
  ++window_blocks_;

  const double stall = std::max(kStallBlocks * static_cast<double>(frames), kStallSeconds * rate_hz_);
  if (late - baseline_ <= stall) {
    suspects_ = false;
  } else if (!suspects_) {
    suspects_ = true;
    suspect_at_frame_ = at_frame;
    suspect_least_ = late;
    suspect_fell_ns_ = now_ns;
  } else {
    if (late < suspect_least_ - static_cast<double>(frames) / 4) suspect_fell_ns_ = now_ns;
    suspect_least_ = std::min(suspect_least_, late);
    // A little less than a block, for it is measured between two deliveries.
    if (now_ns - suspect_fell_ns_ >= block_ns - block_ns / 8) {
      const Loss loss = lose(suspect_least_ - baseline_, suspect_at_frame_);
      restart_window(now_ns, baseline_);
      return loss;
    }
  }

  if (now_ns - window_began_ns_ < kWindowNs || window_blocks_ < kLeastWindowBlocks || suspects_) return {};
  const double rise = window_least_ - baseline_;
  const double slow_loss = std::max(kSlowLossBlocks * static_cast<double>(frames), kSlowLossSeconds * rate_hz_);
  const std::int64_t began_at_frame = window_began_at_frame_;
  Loss loss;
  if (rise > slow_loss) {
    loss = lose(rise, began_at_frame);
  } else {
    const double most = kMostDrift * static_cast<double>(now_ns - window_began_ns_) * 1e-9 * rate_hz_;
    baseline_ += std::min(rise, most);
  }
  restart_window(now_ns, late);
  return loss;
}

}  // namespace halotap::io
