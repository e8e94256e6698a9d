#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "stages/map_stage.hpp"
#include "stages/stage_fault.hpp"
#include "stages/stage_values.hpp"

namespace halotap::pipeline {
namespace {

constexpr double kMaxFloor = 1e30;

struct LogOf {
  LogUnit unit;
  double floor;

  double operator()(double x) const noexcept {
    // In this order a NaN is kept.
    const double size = std::abs(x) < floor ? floor : std::abs(x);
    switch (unit) {
      case LogUnit::kDecibel:
        return 20 * std::log10(size);
      case LogUnit::kNatural:
        return std::log(size);
      case LogUnit::kDecade:
        break;
    }
    return std::log10(size);
  }
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
  return map_stage(spec.channel, LogOf{spec.unit, spec.floor});
}

}  // namespace halotap::pipeline
