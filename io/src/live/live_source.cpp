#include "live/live_source.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <thread>
#include <utility>

#include "halotap/pipeline/errors.hpp"

namespace halotap::io {
namespace {

using Clock = std::chrono::steady_clock;
using pipeline::DeviceError;

constexpr std::chrono::milliseconds kPatience{50};
// The callback may not wake anybody (a system call), so the reader looks: four times a block.
constexpr double kLooksABlock = 4;
constexpr std::chrono::duration<double> kShortestPause{0.00025};
constexpr std::chrono::duration<double> kLongestPause{0.002};

}  // namespace

std::chrono::nanoseconds look_pause(std::chrono::duration<double> block_time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::clamp(block_time / kLooksABlock, kShortestPause, kLongestPause));
}

pipeline::LatencyTerm ring_latency(std::chrono::duration<double> block_time) {
  pipeline::LatencyTerm term;
  term.place = "ring";
  term.kind = pipeline::LatencyKind::kBuffering;
  term.time_alone = look_pause(block_time);
  term.is_timed = true;
  term.note = "until it is looked into, four times a block and at least every 2 ms";
  return term;
}

LiveSource::LiveSource(SourceInfo info, std::shared_ptr<Capture> capture, std::unique_ptr<DeviceKeeper> keeper,
                       std::string name, std::chrono::duration<double> block_time)
    : info_(std::move(info)),
      capture_(std::move(capture)),
      keeper_(std::move(keeper)),
      name_(std::move(name)),
      pause_(look_pause(block_time)) {}

std::int64_t LiveSource::read(float* samples, std::int64_t frames) {
  check_rate();
  const Clock::time_point deadline = Clock::now() + kPatience;
  for (;;) {
    if (const std::int64_t got = capture_->read(samples, frames); got > 0) {
      has_read_ = true;
      return got;
    }
    if (Clock::now() >= deadline || capture_->is_at_gap()) break;
    std::this_thread::sleep_for(pause_);
  }
  if (const std::string failure = keeper_->failure(); !failure.empty()) throw DeviceError(failure);
  return 0;
}

std::optional<pipeline::Instant> LiveSource::capture_time() const {
  if (!has_read_) return std::nullopt;
  return pipeline::Instant(std::chrono::nanoseconds(capture_->captured_ns()));
}

void LiveSource::check_rate() const {
  const CaptureCounters counters = capture_->counters();
  if (counters.is_off_rate != 0) {
    throw DeviceError(name_ + ": delivers about " + std::to_string(std::llround(counters.measured_rate_hz)) +
                      " frames a second, where it claims " + std::to_string(std::llround(info_.rate_hz)) + " Hz");
  }
}

}  // namespace halotap::io
