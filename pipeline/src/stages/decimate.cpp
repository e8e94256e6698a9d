#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/stage_fault.hpp"
#include "stages/window.hpp"

namespace halotap::pipeline {
namespace {

struct Mean {
  static double first(double x) { return x; }
  static double next(double sum, double x) { return sum + x; }
  static double result(double sum, double frames) { return sum / frames; }
};

struct Greatest {
  static double first(double x) { return x; }
  // A NaN is above everything: no comparison with it holds, so it stays.
  static double next(double greatest, double x) { return x > greatest || std::isnan(x) ? x : greatest; }
  static double result(double greatest, double) { return greatest; }
};

struct Last {
  static double first(double x) { return x; }
  static double next(double, double x) { return x; }
  static double result(double last, double) { return last; }
};

template <typename Gather>
class Decimate final : public WindowStage<Gather> {
 public:
  explicit Decimate(std::int64_t factor) : factor_(factor) {}

  StageOutput prepare(const StageFormat& input) override {
    return this->prepare_window(input, factor_, {"factor", 1, 1});
  }

 private:
  std::int64_t factor_;
};

}  // namespace

std::string_view to_string(Keep keep) {
  switch (keep) {
    case Keep::kMean:
      return "mean";
    case Keep::kMax:
      return "max";
    case Keep::kLast:
      return "last";
  }
  return "?";
}

StageMaker decimate_stage(const DecimateSpec& spec) {
  if (spec.factor < 1 || spec.factor > kMaxDecimation) {
    throw StageFault("factor", "an integer from 1 to " + std::to_string(kMaxDecimation), std::to_string(spec.factor));
  }
  return [spec]() -> std::unique_ptr<Stage> {
    switch (spec.keep) {
      case Keep::kMean:
        return std::make_unique<Decimate<Mean>>(spec.factor);
      case Keep::kMax:
        return std::make_unique<Decimate<Greatest>>(spec.factor);
      case Keep::kLast:
        break;
    }
    return std::make_unique<Decimate<Last>>(spec.factor);
  };
}

}  // namespace halotap::pipeline
