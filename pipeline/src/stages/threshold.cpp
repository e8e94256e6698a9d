#include <algorithm>
#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/stage_fault.hpp"
#include "stages/stage_values.hpp"

namespace halotap::pipeline {
namespace {

class Threshold final : public Stage {
 public:
  explicit Threshold(ThresholdSpec spec)
      : spec_(std::move(spec)), on_(static_cast<float>(spec_.on)), off_(static_cast<float>(spec_.off)) {}

  StageOutput prepare(const StageFormat& input) override {
    samples_ = samples_of("channel", spec_.channel, input);
    channels_ = input.channels;
    frame_samples_ = input.frame_samples();
    switches_.assign(samples_.size(), {});
    min_on_frames_ = frames_lasting(spec_.min_on_ms, input.rate_hz);
    min_off_frames_ = frames_lasting(spec_.min_off_ms, input.rate_hz);
    return {.channels = input.channels,
            .channel_names = input.channel_names,
            .latency_frames = std::max(min_on_frames_, min_off_frames_) - 1,
            .events_a_frame = static_cast<std::int64_t>(samples_.size()),
            .latency_key = latency_key(1e3 / input.rate_hz)};
  }

  bool process(const float* frame, float* result, EventList& events) noexcept HALOTAP_NONBLOCKING override {
    std::copy_n(frame, frame_samples_, result);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      Switch& state = switches_[i];
      const float x = frame[samples_[i]];
      if (x >= on_) {
        state.is_above = true;
      } else if (x < off_) {
        state.is_above = false;
      }
      state.frames_apart = state.is_above == state.is_on ? 0 : state.frames_apart + 1;
      if (state.frames_apart == (state.is_above ? min_on_frames_ : min_off_frames_)) {
        state.is_on = state.is_above;
        const auto sample = static_cast<std::int64_t>(samples_[i]);
        events.add(state.is_on ? "on" : "off", sample / channels_, sample % channels_, frame_ + 1 - state.frames_apart);
        state.frames_apart = 0;
      }
      result[samples_[i]] = state.is_on ? 1.0f : 0.0f;
    }
    ++frame_;
    return true;
  }

  void reset() noexcept HALOTAP_NONBLOCKING override {
    std::fill(switches_.begin(), switches_.end(), Switch{});
    frame_ = 0;
  }

 private:
  // A limit of the latency is one of both times, unless one of them is no wait at all. Times that are no wait at this
  // rate may be one at another.
  LatencyKey latency_key(double frame_ms) const {
    if (spec_.min_on_ms == 0 && spec_.min_off_ms == 0) return {};
    const char* const name = min_off_frames_ == 1  ? "min_on_ms"
                             : min_on_frames_ == 1 ? "min_off_ms"
                                                   : "min_on_ms and min_off_ms";
    return {name, frame_ms, frame_ms};
  }

  struct Switch {
    bool is_above = false;          // hysteresis alone
    bool is_on = false;             // what comes out
    std::int64_t frames_apart = 0;  // for how long the two have differed
  };

  ThresholdSpec spec_;
  float on_;  // rounded as the samples are: one of 0.7 is not below a level of 0.7
  float off_;
  std::vector<std::size_t> samples_;  // that it changes
  std::vector<Switch> switches_;      // of each
  std::int64_t channels_ = 0;
  std::int64_t frame_samples_ = 0;
  std::int64_t min_on_frames_ = 1;
  std::int64_t min_off_frames_ = 1;
  std::int64_t frame_ = 0;  // since the beginning
};

}  // namespace

StageMaker threshold_stage(const ThresholdSpec& spec) {
  require_finite("on", spec.on);
  require_finite("off", spec.off);
  if (spec.off > spec.on) throw StageFault("off", "at most on, " + text_of(spec.on), text_of(spec.off));
  require_time("min_on_ms", spec.min_on_ms);
  require_time("min_off_ms", spec.min_off_ms);
  return [spec] { return std::make_unique<Threshold>(spec); };
}

}  // namespace halotap::pipeline
