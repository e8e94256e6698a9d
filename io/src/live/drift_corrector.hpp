// Plays by one clock what comes by another.
#pragma once

#include <cstdint>
#include <memory>

#include "halotap/pipeline/published.hpp"
#include "live/drift_control.hpp"
#include "live/playback.hpp"
#include "resample/variable_resampler.hpp"

namespace halotap::io {

// frames_in + frames_added - frames_removed = frames into the playback's ring + frames_dropped + those in the filter;
// behind the end none are in it, and the sum is exact.
struct DriftCounters {
  std::uint64_t frames_in = 0;
  std::uint64_t frames_added = 0;    // by resampling, for the device's clock is the faster one
  std::uint64_t frames_removed = 0;  // likewise the slower
  std::uint64_t frames_dropped = 0;  // resampled, while the ring was full
  std::uint64_t samples_zeroed = 0;  // not finite, or far beyond what can be played
  double correction_ppm = 0;         // now
  std::uint64_t is_at_limit = 0;     // the two clocks are further apart than can be corrected
};

// Resamples what it is given so that `playback` keeps its reserve: how much is left in the ring when new frames come,
// reckoned as if the device took its frames one by one. Never waits: what finds the ring full is dropped and counted.
// Sound that has waited too long is given up: when for a second there was never less than twice the reserve, as when a
// session that had hung catches up, the ring is brought back to it at once. One thread. [control]
class DriftCorrector {
 public:
  struct Spec {
    std::int64_t channels = 1;
    double rate_hz = 0;
    std::int64_t reserve_frames = 0;  // the playback's
  };
  // Throws ConfigError in a build without libsoxr.
  DriftCorrector(const Spec& spec, std::shared_ptr<Playback> playback);

  // `frames` frames, [frames, channels], at `now_ns` of the playback's clock.
  void write(const float* samples, std::int64_t frames, std::int64_t now_ns);
  // Lets out what the filter holds. Nothing more will be written.
  void end();

  std::int64_t delay_frames() const { return resampler_.delay_frames(); }
  // [any thread]
  DriftCounters counters() const noexcept { return published_.load(); }

 private:
  void look_at_ring(std::int64_t now_ns);
  // Plays no more than `most_frames` of what that makes.
  void resample(const float* samples, std::int64_t frames, std::int64_t most_frames);

  const Spec spec_;
  std::shared_ptr<Playback> playback_;
  VariableResampler resampler_;
  DriftControl control_;
  std::int64_t frames_made_ = 0;  // by the resampler
  std::int64_t frames_pushed_ = 0;
  std::uint64_t beginnings_ = 0;  // of the playback, seen
  std::int64_t last_look_ns_ = 0;
  std::int64_t window_began_ns_ = 0;
  double window_least_s_ = 0;  // the least that the reserve was above the one wanted
  double frames_added_ = 0;
  double frames_removed_ = 0;
  DriftCounters counters_;
  pipeline::Published<DriftCounters> published_;
};

}  // namespace halotap::io
