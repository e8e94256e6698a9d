#include "live/drift_control.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace halotap::io {
namespace {

constexpr double kRateHz = 48000;
constexpr double kReserveS = 0.04;
constexpr double kBlockS = 0.04;  // of source and device: longer ones make the simulation shorter
constexpr double kHour = 3600;

struct Day {
  double least_s = 0;  // that the ring held at the device's callbacks
  double most_s = 0;
  double correction_error_ppm = 0;  // root of the mean square, after ten minutes
  double largest_step_ppm = 0;      // of the correction, from a block to the next
  double seconds_added = 0;
};

// A source whose clock is `drift` slower than the device's, which wanders by 20 ppm with the hours, both delivering
// late now and then; the ring between them holds seconds of sound.
Day simulate(double hours, double drift) {
  DriftControl control;
  std::mt19937 random(3);
  std::exponential_distribution<double> lateness(1 / 0.001);
  const auto late = [&] { return std::min(lateness(random), 0.015); };
  Day day{.least_s = kReserveS, .most_s = kReserveS};
  double pushed_s = kReserveS + kBlockS;
  double taken_s = 0;
  double source_s = 0;  // the source's next block, by the device's clock
  double device_s = 0;
  double device_due_s = 0;
  double source_due_s = 0;
  double looked_s = 0;
  double squares = 0;
  std::int64_t count = 0;
  while (std::min(source_s, device_s) < hours * kHour) {
    if (device_s <= source_s) {
      taken_s += kBlockS;
      day.least_s = std::min(day.least_s, pushed_s - taken_s);
      device_due_s += kBlockS;
      device_s = std::max(device_s, device_due_s + late());
      continue;
    }
    const double since_block_s = std::clamp(source_s - (device_due_s - kBlockS), 0.0, kBlockS);
    const double before_ppm = control.correction() * 1e6;
    control.update(pushed_s - taken_s - since_block_s - kReserveS, source_s - looked_s);
    looked_s = source_s;
    const double now_drift = drift + 20e-6 * std::sin(2 * std::numbers::pi * source_s / (6 * kHour));
    pushed_s += kBlockS * (1 + control.correction());
    day.seconds_added += kBlockS * control.correction();
    day.most_s = std::max(day.most_s, pushed_s - taken_s);
    day.largest_step_ppm = std::max(day.largest_step_ppm, std::abs(control.correction() * 1e6 - before_ppm));
    if (source_s > 600) {
      squares += std::pow((control.correction() - now_drift) * 1e6, 2);
      ++count;
    }
    source_due_s += kBlockS * (1 + now_drift);
    source_s = std::max(source_s, source_due_s + late());
  }
  day.correction_error_ppm = std::sqrt(squares / static_cast<double>(count));
  return day;
}

TEST(DriftControl, KeepsTheRingsReserveForADayAtAnyDriftOfRealClocks) {
  for (const double ppm : {-500.0, -100.0, 0.0, 100.0, 500.0}) {
    const Day day = simulate(24, ppm * 1e-6);
    EXPECT_GT(day.least_s, 0) << ppm << " ppm: an underrun";
    EXPECT_LT(day.most_s, kReserveS + 2 * kBlockS + 0.03) << ppm;
    EXPECT_LT(day.correction_error_ppm, 10) << ppm;
    EXPECT_LT(day.largest_step_ppm, 50) << ppm << " ppm: a thirtieth of what an ear can tell";
    EXPECT_NEAR(day.seconds_added / (24 * kHour) * 1e6, ppm, 2);
  }
}

TEST(DriftControl, GoesNoFurtherThanItsLimitAndComesBackAtOnce) {
  DriftControl control;
  for (int second = 0; second < 1000; ++second) control.update(0.5, 1);
  EXPECT_EQ(control.correction(), -DriftControl::kMostCorrection);
  EXPECT_TRUE(control.is_at_limit());
  for (int second = 0; second < 20; ++second) control.update(-0.01, 1);
  EXPECT_FALSE(control.is_at_limit());
  EXPECT_GT(control.correction(), -0.5 * DriftControl::kMostCorrection);
}

// Else a session that hung would look like a clock that runs wild, and the day's correction be lost.
TEST(DriftControl, LearnsLittleOfTheClocksFromAHiccup) {
  DriftControl control;
  for (int tick = 0; tick < 600; ++tick) control.update(tick < 300 ? 0.04 : 0, 0.1);
  EXPECT_LT(std::abs(control.correction()), 0.4 * DriftControl::kMostCorrection);
  EXPECT_FALSE(control.is_at_limit());
}

TEST(DriftControl, RemembersTheClocksWhenTheRingBeginsAnew) {
  DriftControl control;
  for (int second = 0; second < 100; ++second) control.update(-0.003, 1);
  const double known = control.correction();
  control.begin_anew();
  control.update(0, 0.01);
  EXPECT_GT(control.correction(), 0.4 * known);
  EXPECT_LT(control.correction(), known) << "the error itself is forgotten";
}

}  // namespace
}  // namespace halotap::io
