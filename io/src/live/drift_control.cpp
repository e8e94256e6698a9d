#include "live/drift_control.hpp"

#include <algorithm>
#include <cmath>

namespace halotap::io {
namespace {

constexpr double kBandwidth = 0.03;  // 1 / s
constexpr double kLowPassSeconds = 3;
constexpr double kTrustInHiccups = 0.25;
constexpr double kLongestStepSeconds = 1;  // an error that nobody watched for longer is no drift of so long

}  // namespace

void DriftControl::update(double error_s, double elapsed_s) {
  error_s_ += (error_s - error_s_) * (1 - std::exp(-std::max(elapsed_s, 0.0) / kLowPassSeconds));
  const double step_s = std::clamp(elapsed_s, 0.0, kLongestStepSeconds);
  correction_ = std::clamp(drift_ - 2 * kBandwidth * error_s_, -kMostCorrection, kMostCorrection);
  // Beyond the limit the error tells of a hiccup rather than of the clocks.
  const bool is_beyond = std::abs(2 * kBandwidth * error_s_) > kMostCorrection;
  const double learnt = kBandwidth * kBandwidth * error_s_ * step_s * (is_beyond ? kTrustInHiccups : 1);
  drift_ = std::clamp(drift_ - learnt, -kMostCorrection, kMostCorrection);
}

}  // namespace halotap::io
