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

}  // namespace

LiveSink::LiveSink(LiveSinkSpec spec, std::shared_ptr<Playback> playback, std::unique_ptr<DeviceKeeper> keeper)
    : spec_(std::move(spec)),
      playback_(std::move(playback)),
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
  for (;;) {
    const std::int64_t written = playback_->write(samples, frames);
    samples += written * spec_.channels;
    frames -= written;
    if (frames == 0) return;
    if (stop_asked()) {
      frames_unplayed_ += frames;  // nobody waits for a loudspeaker to end a run
      return;
    }
    check_device();
    std::this_thread::sleep_for(pause_);
  }
}

void LiveSink::finish() {
  playback_->end();
  while (playback_->waiting_frames() > 0 && !stop_asked()) {
    check_device();
    std::this_thread::sleep_for(pause_);
  }
  frames_unplayed_ += playback_->waiting_frames();
  if (frames_unplayed_ > 0 && spec_.on_note) {
    spec_.on_note(spec_.name + ": stopped before " + std::to_string(frames_unplayed_) + " frames were played");
  }
  if (const std::uint64_t silent = playback_->counters().frames_silent; silent > 0 && spec_.on_note) {
    spec_.on_note(spec_.name + ": underrun: silence was played for " + std::to_string(silent) + " frames");
  }
  // Closing plays what the device still holds.
  keeper_.reset();
}

}  // namespace halotap::io
