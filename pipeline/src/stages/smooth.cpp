#include <algorithm>
#include <cmath>
#include <utility>

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/stage_values.hpp"

namespace halotap::pipeline {
namespace {

// Below it y becomes 0: a level that dies away for long would end in denormals, which slow the loop down.
constexpr double kLeastLevel = 1e-30;

class Smooth final : public Stage {
 public:
  explicit Smooth(SmoothSpec spec) : spec_(std::move(spec)) {}

  StageOutput prepare(const StageFormat& input) override {
    samples_ = samples_of("channel", spec_.channel, input);
    frame_samples_ = input.frame_samples();
    levels_.assign(samples_.size(), 0.0);
    attack_ = coefficient(spec_.attack_ms, input.rate_hz);
    release_ = coefficient(spec_.release_ms, input.rate_hz);
    return {.channels = input.channels, .channel_names = input.channel_names};
  }

  bool process(const float* frame, float* result, EventList&) noexcept HALOTAP_NONBLOCKING override {
    std::copy_n(frame, frame_samples_, result);
    for (std::size_t i = 0; i < samples_.size(); ++i) {
      const double x = frame[samples_[i]];
      // One NaN in the recursion would stay for ever.
      if (!std::isfinite(x)) continue;
      const double rise = x - levels_[i];
      const double part = rise > 0 ? attack_ : release_;
      // All of it is not the sum below, which loses a small x behind a large y.
      const double level = part == 1 ? x : levels_[i] + part * rise;
      levels_[i] = std::abs(level) < kLeastLevel ? 0.0 : level;
      result[samples_[i]] = static_cast<float>(levels_[i]);
    }
    return true;
  }

  void reset() noexcept HALOTAP_NONBLOCKING override { std::fill(levels_.begin(), levels_.end(), 0.0); }

 private:
  // 1 - exp(-1 / (rate * time)), without the cancellation where the time is long.
  static double coefficient(double milliseconds, double rate_hz) {
    return milliseconds == 0 ? 1.0 : -std::expm1(-1e3 / (rate_hz * milliseconds));
  }

  SmoothSpec spec_;
  std::vector<std::size_t> samples_;  // that it changes
  std::vector<double> levels_;        // y of each; in float, small steps would be lost beside a large y
  std::int64_t frame_samples_ = 0;
  double attack_ = 1;
  double release_ = 1;
};

}  // namespace

StageMaker smooth_stage(const SmoothSpec& spec) {
  require_time("attack_ms", spec.attack_ms);
  require_time("release_ms", spec.release_ms);
  return [spec] { return std::make_unique<Smooth>(spec); };
}

}  // namespace halotap::pipeline
