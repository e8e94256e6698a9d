#include "live/live_sink.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include "halotap/pipeline/errors.hpp"

namespace halotap::io {
namespace {

using pipeline::DeviceError;

constexpr std::chrono::duration<double> kShortestPause{0.00025};
constexpr std::chrono::duration<double> kLongestPause{0.01};

// Of the clock that stamps the playback's blocks.
std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

LiveSink::LiveSink(LiveSinkSpec spec, std::shared_ptr<Playback> playback, std::unique_ptr<DriftCorrector> corrector,
                   std::unique_ptr<DeviceKeeper> keeper)
    : spec_(std::move(spec)),
      playback_(std::move(playback)),
      corrector_(std::move(corrector)),
      keeper_(std::move(keeper)),
      pause_(std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::clamp(spec_.block_time / 2, kShortestPause, kLongestPause))) {}

bool LiveSink::stop_asked() const {
  // Relaxed: the flag carries nothing but itself.
  return spec_.stop != nullptr && spec_.stop->load(std::memory_order_relaxed);
}

void LiveSink::check_device() const {
  if (const std::string failure = keeper_->failure(); !failure.empty()) throw DeviceError(failure);
}

void LiveSink::write(const float* samples, std::int64_t frames) {
  frames_in_.fetch_add(frames, std::memory_order_relaxed);
  if (!corrector_) return write_waiting(samples, frames);
  check_device();
  corrector_->write(samples, frames, monotonic_ns());
}

void LiveSink::write_waiting(const float* samples, std::int64_t frames) {
  for (;;) {
    const std::int64_t written = playback_->write(samples, frames);
    samples += written * spec_.channels;
    frames -= written;
    if (frames == 0) return;
    if (stop_asked()) {
      // Nobody waits for a loudspeaker to end a run.
      frames_unwritten_.fetch_add(frames, std::memory_order_relaxed);
      return;
    }
    check_device();
    std::this_thread::sleep_for(pause_);
  }
}

void LiveSink::finish() {
  corrector_ ? corrector_->end() : playback_->end();
  while (playback_->waiting_frames() > 0 && !stop_asked()) {
    check_device();
    std::this_thread::sleep_for(pause_);
  }
  // Closing plays what the device still holds.
  keeper_.reset();
  frames_unwritten_.fetch_add(playback_->waiting_frames(), std::memory_order_relaxed);
  note_what_was_not_as_it_should_be();
}

void LiveSink::note_what_was_not_as_it_should_be() const {
  if (!spec_.on_note) return;
  const auto note = [this](const std::string& text) { spec_.on_note(spec_.name + ": " + text); };
  const std::int64_t unplayed = frames_unwritten_.load(std::memory_order_relaxed);
  if (unplayed > 0) note("stopped before " + std::to_string(unplayed) + " frames were played");
  const PlaybackCounters counters = playback_->counters();
  if (counters.frames_silent > 0) {
    note("underrun: silence was played for " + std::to_string(counters.frames_silent) + " frames");
  }
  if (!corrector_) return;
  const DriftCounters drift = corrector_->counters();
  if (drift.frames_dropped + counters.frames_discarded > 0) {
    note(std::to_string(drift.frames_dropped + counters.frames_discarded) +
         " frames were not played: they came faster than the device took them");
  }
  if (drift.samples_zeroed > 0) {
    note("played as 0, for not finite or beyond 1e6: samples: " + std::to_string(drift.samples_zeroed));
  }
  if (drift.is_at_limit != 0) {
    note("the two devices' clocks are further apart than drift=correct can correct (1000 ppm)");
  }
}

std::optional<PlayedCounters> LiveSink::played() const {
  const PlaybackCounters playback = playback_->counters();
  PlayedCounters played;
  played.frames_in = static_cast<std::uint64_t>(frames_in_.load(std::memory_order_relaxed));
  played.frames_played = playback.frames_played;
  played.frames_dropped = static_cast<std::uint64_t>(frames_unwritten_.load(std::memory_order_relaxed));
  played.frames_discarded = playback.frames_discarded;
  played.frames_silent = playback.frames_silent;
  played.underruns = playback.underruns;
  played.device_underruns = playback.blocks_flagged;
  if (corrector_) {
    const DriftCounters drift = corrector_->counters();
    played.frames_in = drift.frames_in;
    played.frames_dropped += drift.frames_dropped;
    played.corrects_drift = 1;
    played.frames_added = drift.frames_added;
    played.frames_removed = drift.frames_removed;
    played.samples_zeroed = drift.samples_zeroed;
    played.correction_ppm = drift.correction_ppm;
  }
  return played;
}

}  // namespace halotap::io
