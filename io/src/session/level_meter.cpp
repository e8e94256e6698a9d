#include "session/level_meter.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace halotap::io {

std::int64_t LevelMeter::metered_channels() const noexcept HALOTAP_NONBLOCKING {
  return std::min(channels_, static_cast<std::int64_t>(SessionTelemetry::kMostChannels));
}

Level LevelMeter::Sum::level() const noexcept HALOTAP_NONBLOCKING {
  return {peak, samples == 0 ? 0 : std::sqrt(squares / static_cast<double>(samples))};
}

void LevelMeter::add(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  const std::int64_t metered = metered_channels();
  for (std::int64_t frame = 0; frame < frames; ++frame, samples += frame_samples_) {
    for (std::int64_t i = 0; i < frame_samples_; ++i) {
      if (!std::isfinite(samples[i])) continue;
      const double magnitude = std::abs(static_cast<double>(samples[i]));
      const auto count = [magnitude](Sum& sum) {
        sum.peak = std::max(sum.peak, magnitude);
        sum.squares += magnitude * magnitude;
        ++sum.samples;
      };
      count(all_);
      if (i < metered) count(first_[static_cast<std::size_t>(i)]);
    }
  }
}

void LevelMeter::tell(SessionTelemetry& telemetry) noexcept HALOTAP_NONBLOCKING {
  telemetry.level = all_.level();
  telemetry.channels = metered_channels();
  for (std::size_t i = 0; i < first_.size(); ++i) telemetry.channel_levels[i] = first_[i].level();
  all_ = {};
  first_ = {};
}

}  // namespace halotap::io
