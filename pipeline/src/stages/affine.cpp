#include <algorithm>

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/stage_values.hpp"

namespace halotap::pipeline {
namespace {

class Affine final : public Stage {
 public:
  explicit Affine(AffineSpec spec) : spec_(std::move(spec)) {}

  StageOutput prepare(const StageFormat& input) override {
    samples_ = samples_of("channel", spec_.channel, input);
    frame_samples_ = input.frame_samples();
    return {.channels = input.channels, .channel_names = input.channel_names};
  }

  bool process(const float* frame, float* result, EventList&) noexcept HALOTAP_NONBLOCKING override {
    std::copy_n(frame, frame_samples_, result);
    for (const std::size_t i : samples_) {
      result[i] = static_cast<float>(spec_.gain * static_cast<double>(frame[i]) + spec_.offset);
    }
    return true;
  }

  void reset() noexcept HALOTAP_NONBLOCKING override {}

 private:
  AffineSpec spec_;
  std::vector<std::size_t> samples_;  // that it changes
  std::int64_t frame_samples_ = 0;
};

}  // namespace

StageMaker affine_stage(const AffineSpec& spec) {
  require_finite("gain", spec.gain);
  require_finite("offset", spec.offset);
  return [spec] { return std::make_unique<Affine>(spec); };
}

}  // namespace halotap::pipeline
