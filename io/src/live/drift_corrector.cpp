#include "live/drift_corrector.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace halotap::io {
namespace {

constexpr std::int64_t kWindowNs = 1'000'000'000;
constexpr double kLeastSurplusSeconds = 0.02;  // below it discarding would be heard more than it helps
// A device that has not called back for so long, or for four blocks, may be lost: its ring says nothing of its clock.
constexpr double kSilentDeviceSeconds = 0.1;

}  // namespace

DriftCorrector::DriftCorrector(const Spec& spec, std::shared_ptr<Playback> playback)
    : spec_(spec), playback_(std::move(playback)), resampler_(spec.channels) {}

void DriftCorrector::look_at_ring(std::int64_t now_ns) {
  const PlaybackCounters played = playback_->counters();
  const double since_block_s = static_cast<double>(now_ns - played.last_block_ns) * 1e-9;
  const double block_s = static_cast<double>(played.last_block_frames) / spec_.rate_hz;
  const double elapsed_s = static_cast<double>(now_ns - std::exchange(last_look_ns_, now_ns)) * 1e-9;
  if (played.is_playing == 0 || since_block_s > std::max(kSilentDeviceSeconds, 4 * block_s)) return;

  const double taken = static_cast<double>(played.frames_played + played.frames_discarded) +
                       std::clamp(since_block_s, 0.0, block_s) * spec_.rate_hz;
  const double above_s =
      (static_cast<double>(frames_pushed_) - taken - static_cast<double>(spec_.reserve_frames)) / spec_.rate_hz;
  if (std::exchange(beginnings_, played.beginnings) != played.beginnings) {
    control_.begin_anew();
    window_began_ns_ = now_ns;
    window_least_s_ = above_s;
    return;
  }
  control_.update(above_s, elapsed_s);

  window_least_s_ = std::min(window_least_s_, above_s);
  if (now_ns - window_began_ns_ < kWindowNs) return;
  const double most_s = std::max(kLeastSurplusSeconds, static_cast<double>(spec_.reserve_frames) / spec_.rate_hz);
  if (window_least_s_ > most_s) {
    playback_->discard(std::llround(window_least_s_ * spec_.rate_hz));
    control_.begin_anew();
  }
  window_began_ns_ = now_ns;
  window_least_s_ = above_s;
}

void DriftCorrector::resample(const float* samples, std::int64_t frames, std::int64_t most_frames) {
  VariableResampler::Made made = resampler_.process(samples, frames);
  made.frames = std::min(made.frames, most_frames);
  const std::int64_t accepted = playback_->write(made.samples, made.frames);
  frames_made_ += made.frames;
  frames_pushed_ += accepted;
  counters_.frames_dropped += static_cast<std::uint64_t>(made.frames - accepted);
}

void DriftCorrector::write(const float* samples, std::int64_t frames, std::int64_t now_ns) {
  look_at_ring(now_ns);
  const double correction = control_.correction();
  resampler_.change(correction, frames);
  resample(samples, frames, std::numeric_limits<std::int64_t>::max());
  (correction > 0 ? frames_added_ : frames_removed_) += std::abs(correction) * static_cast<double>(frames);
  counters_.frames_in += static_cast<std::uint64_t>(frames);
  counters_.frames_added = static_cast<std::uint64_t>(std::llround(frames_added_));
  counters_.frames_removed = static_cast<std::uint64_t>(std::llround(frames_removed_));
  counters_.samples_zeroed = resampler_.samples_zeroed();
  counters_.correction_ppm = correction * 1e6;
  counters_.is_at_limit = control_.is_at_limit() ? 1 : 0;
  published_.store(counters_);
}

void DriftCorrector::end() {
  // Until all that went in is out, to the frame. That takes some frames fewer than the filter's delay, which is that of
  // a peak: its first frames come out sooner.
  const auto frames_due =
      static_cast<std::int64_t>(counters_.frames_in + counters_.frames_added - counters_.frames_removed);
  const std::vector<float> silence(static_cast<std::size_t>(spec_.channels));
  while (frames_made_ < frames_due) resample(silence.data(), 1, frames_due - frames_made_);
  published_.store(counters_);
  playback_->end();
}

}  // namespace halotap::io
