#include <cmath>
#include <limits>

#include "halotap/pipeline/built_in_stages.hpp"

namespace halotap::pipeline {
namespace {

class Argmax final : public Stage {
 public:
  StageOutput prepare(const StageFormat& input) override {
    streams_ = input.streams;
    channels_ = input.channels;
    return {.channels = 1, .channel_names = {"argmax"}};
  }

  bool process(const float* frame, float* result, EventList&) noexcept HALOTAP_NONBLOCKING override {
    for (std::int64_t stream = 0; stream < streams_; ++stream, frame += channels_) {
      std::int64_t greatest = -1;
      for (std::int64_t channel = 0; channel < channels_; ++channel) {
        if (std::isnan(frame[channel])) continue;
        if (greatest < 0 || frame[channel] > frame[greatest]) greatest = channel;
      }
      result[stream] = greatest < 0 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(greatest);
    }
    return true;
  }

  void reset() noexcept HALOTAP_NONBLOCKING override {}

 private:
  std::int64_t streams_ = 0;
  std::int64_t channels_ = 0;
};

}  // namespace

StageMaker argmax_stage() {
  return [] { return std::make_unique<Argmax>(); };
}

}  // namespace halotap::pipeline
