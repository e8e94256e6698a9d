#include "live/drift_control.hpp"

#include <algorithm>
#include <cmath>

namespace halotap::io {
namespace {

constexpr double kBandwidth = 0.03;  // 1 / s
constexpr double kLowPassSeconds = 3;
constexpr double kLongestStepSeconds = 1;  // an error that nobody watched for longer is no drift of so long

}  // namespace

void DriftControl::update(double error_s, double elapsed_s) {
  error_s_ += (error_s - error_s_) * (1 - std::exp(-std::max(elapsed_s, 0.0) / kLowPassSeconds));
  const double step_s = std::clamp(elapsed_s, 0.0, kLongestStepSeconds);
  // The integral stays within the limit too: it would take as long to come back as it took to go.
  drift_ = std::clamp(drift_ - kBandwidth * kBandwidth * error_s_ * step_s, -kMostCorrection, kMostCorrection);
  correction_ = std::clamp(drift_ - 2 * kBandwidth * error_s_, -kMostCorrection, kMostCorrection);
}

}  // namespace halotap::io
