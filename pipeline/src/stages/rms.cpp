#include <algorithm>
#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/stage_fault.hpp"
#include "stages/stage_values.hpp"
#include "stages/window.hpp"

namespace halotap::pipeline {
namespace {

struct RootMeanSquare {
  static double first(double x) { return x * x; }
  static double next(double sum, double x) { return sum + x * x; }
  static double result(double sum, double frames) { return std::sqrt(sum / frames); }
};

class Rms final : public WindowStage<RootMeanSquare> {
 public:
  explicit Rms(const RmsSpec& spec) : spec_(spec) {}

  StageOutput prepare(const StageFormat& input) override {
    const double frame_ms = 1e3 / input.rate_hz;
    const std::int64_t frames = std::max<std::int64_t>(1, std::llround(spec_.window_ms * input.rate_hz / 1e3));
    return prepare_window(input, frames, {"window_ms", frame_ms, frame_ms});
  }

 private:
  RmsSpec spec_;
};

}  // namespace

StageMaker rms_stage(const RmsSpec& spec) {
  require_time("window_ms", spec.window_ms);
  if (spec.window_ms == 0) throw StageFault("window_ms", "milliseconds above 0", "0");
  return [spec] { return std::make_unique<Rms>(spec); };
}

}  // namespace halotap::pipeline
