#include <algorithm>
#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/stage_fault.hpp"
#include "stages/stage_values.hpp"

namespace halotap::pipeline {
namespace {

constexpr double kMaxFloor = 1e30;

class Log final : public Stage {
 public:
  explicit Log(LogSpec spec) : spec_(std::move(spec)) {}

  StageOutput prepare(const StageFormat& input) override {
    samples_ = samples_of("channel", spec_.channel, input);
    frame_samples_ = input.frame_samples();
    return {.channels = input.channels, .channel_names = input.channel_names};
  }

  bool process(const float* frame, float* result, EventList&) noexcept HALOTAP_NONBLOCKING override {
    std::copy_n(frame, frame_samples_, result);
    for (const std::size_t i : samples_) {
      const double size = std::abs(static_cast<double>(frame[i]));
      // In this order a NaN is kept.
      result[i] = static_cast<float>(log_of(size < spec_.floor ? spec_.floor : size));
    }
    return true;
  }

  void reset() noexcept HALOTAP_NONBLOCKING override {}

 private:
  double log_of(double size) const noexcept {
    switch (spec_.unit) {
      case LogUnit::kDecibel:
        return 20 * std::log10(size);
      case LogUnit::kNatural:
        return std::log(size);
      case LogUnit::kDecade:
        break;
    }
    return std::log10(size);
  }

  LogSpec spec_;
  std::vector<std::size_t> samples_;  // that it changes
  std::int64_t frame_samples_ = 0;
};

}  // namespace

std::string_view to_string(LogUnit unit) {
  switch (unit) {
    case LogUnit::kDecibel:
      return "db";
    case LogUnit::kNatural:
      return "ln";
    case LogUnit::kDecade:
      return "log10";
  }
  return "?";
}

StageMaker log_stage(const LogSpec& spec) {
  // Written so that a NaN is refused too.
  if (!(spec.floor > 0 && spec.floor <= kMaxFloor)) {
    throw StageFault("floor", "a number above 0 and at most " + text_of(kMaxFloor), text_of(spec.floor));
  }
  return [spec] { return std::make_unique<Log>(spec); };
}

}  // namespace halotap::pipeline
