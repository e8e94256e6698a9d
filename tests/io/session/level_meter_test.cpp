#include "session/level_meter.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace halotap::io {
namespace {

TEST(LevelMeter, TellsPeakAndRmsOfAllAndOfEachChannel) {
  LevelMeter meter(1, 2);
  const std::vector<float> samples{0.5F, -1.0F, -0.5F, 0.0F};
  meter.add(samples.data(), 2);
  SessionTelemetry told;
  meter.tell(told);
  EXPECT_EQ(told.channels, 2);
  EXPECT_EQ(told.level.peak, 1);
  EXPECT_DOUBLE_EQ(told.level.rms, std::sqrt((0.25 + 1 + 0.25) / 4));
  EXPECT_EQ(told.channel_levels[0].peak, 0.5);
  EXPECT_EQ(told.channel_levels[0].rms, 0.5);
  EXPECT_EQ(told.channel_levels[1].peak, 1);
  EXPECT_DOUBLE_EQ(told.channel_levels[1].rms, std::sqrt(0.5));
  meter.tell(told);
  EXPECT_EQ(told.level.peak, 0) << "an interval begins with each telling";
  EXPECT_EQ(told.level.rms, 0);
}

TEST(LevelMeter, StaysFiniteWhateverComes) {
  LevelMeter meter(1, 1);
  const std::vector<float> samples{std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                                   std::numeric_limits<float>::max(), 0.0F};
  meter.add(samples.data(), 4);
  SessionTelemetry told;
  meter.tell(told);
  EXPECT_EQ(told.level.peak, static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_DOUBLE_EQ(told.level.rms, std::numeric_limits<float>::max() / std::sqrt(2.0));
}

TEST(LevelMeter, NamesTheFirstChannelsOfTheFirstStreamAlone) {
  LevelMeter meter(2, 9);
  std::vector<float> samples(18);
  samples[8] = 2;  // the ninth channel
  samples[9] = 3;  // the second stream's first
  samples[7] = 1;
  meter.add(samples.data(), 1);
  SessionTelemetry told;
  meter.tell(told);
  EXPECT_EQ(told.channels, 8);
  EXPECT_EQ(told.level.peak, 3);
  EXPECT_EQ(told.channel_levels[0].peak, 0);
  EXPECT_EQ(told.channel_levels[7].peak, 1);
  LevelMeter(2, 3).tell(told);
  EXPECT_EQ(told.channels, 3);
}

}  // namespace
}  // namespace halotap::io
