#include "synth/synth_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "expect_error.hpp"
#include "halotap/pipeline/errors.hpp"
#include "read_all.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;

std::unique_ptr<Source> open(const std::string& text, const SourceRequest& request = {}) {
  Address address(text);
  auto source = open_synth_source(address, request);
  address.require_all_options_taken("");
  return source;
}

std::vector<double> channel_of(const std::vector<double>& samples, std::size_t frame_samples, std::size_t channel) {
  std::vector<double> result;
  for (std::size_t i = channel; i < samples.size(); i += frame_samples) {
    result.push_back(samples[i]);
  }
  return result;
}

double mean(const std::vector<double>& samples) {
  double sum = 0;
  for (const double sample : samples) {
    sum += sample;
  }
  return sum / static_cast<double>(samples.size());
}

// Correlation of `a` with `b` delayed by `lag` frames.
double correlation(const std::vector<double>& a, const std::vector<double>& b, std::size_t lag = 0) {
  const double mean_a = mean(a);
  const double mean_b = mean(b);
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = lag; i < a.size(); ++i) {
    const double da = a[i] - mean_a;
    const double db = b[i - lag] - mean_b;
    ab += da * db;
    aa += da * da;
    bb += db * db;
  }
  return ab / std::sqrt(aa * bb);
}

TEST(SynthSource, TakesRateAndChannelsFromTheRequest) {
  SourceRequest request;
  request.rate_hz = 8000;
  request.channels = 3;
  const auto source = open("synth://sine?seconds=0.5", request);
  EXPECT_EQ(source->info().rate_hz, 8000);
  EXPECT_EQ(source->info().channels, 3);
  EXPECT_EQ(source->info().frames, 4000);
  EXPECT_EQ(source->info().streams, 1);
  EXPECT_EQ(source->info().arrangement, Arrangement::kFramesChannels);
  const auto other = open("synth://sine?rate=100&channels=2&streams=5&frames=7", request);
  EXPECT_EQ(other->info().rate_hz, 100);
  EXPECT_EQ(other->info().channels, 2);
  EXPECT_EQ(other->info().streams, 5);
  EXPECT_EQ(other->info().frames, 7);
  EXPECT_EQ(other->info().arrangement, Arrangement::kStreamsChannelsFrames);
  EXPECT_EQ(read_all<double>(*other).size(), 70U);
}

TEST(SynthSource, HasDefaultsOfItsOwn) {
  EXPECT_EQ(open("synth://noise")->info().rate_hz, 16000);
  EXPECT_EQ(open("synth://noise")->info().channels, 1);
  EXPECT_EQ(open("synth://noise")->info().frames, 16000);
  EXPECT_EQ(open("synth://robot")->info().rate_hz, 1000);
  EXPECT_EQ(open("synth://robot")->info().channels, 54);
}

TEST(SynthSource, MakesASine) {
  const std::vector<double> samples =
      read_all<double>(*open("synth://sine?hz=1000&rate=16000&channels=2&amplitude=0.25"));
  ASSERT_EQ(samples.size(), 32000U);
  for (std::size_t frame = 0; frame < 16000; ++frame) {
    const double expected = 0.25 * std::sin(2 * std::numbers::pi * static_cast<double>(frame) / 16);
    ASSERT_NEAR(samples[2 * frame], expected, 1e-11);
    ASSERT_NEAR(samples[2 * frame + 1], -expected, 1e-11);  // the second of two channels starts half a turn later
  }
}

TEST(SynthSource, SweepsAChirpFromOneToneToTheOther) {
  const std::vector<double> samples =
      read_all<double>(*open("synth://chirp?from_hz=100&to_hz=1100&rate=16000&seconds=10&amplitude=1"));
  // Zero crossings upward count periods: 100.5 on average in the first second, 1050 +- in the last.
  const auto periods = [&](std::size_t second) {
    int count = 0;
    for (std::size_t i = second * 16000 + 1; i < (second + 1) * 16000; ++i) {
      count += samples[i - 1] < 0 && samples[i] >= 0 ? 1 : 0;
    }
    return count;
  };
  EXPECT_NEAR(periods(0), 150, 1);
  EXPECT_NEAR(periods(5), 650, 1);
  EXPECT_NEAR(periods(9), 1050, 1);
}

TEST(SynthSource, MakesWhiteNoiseThatFillsItsRange) {
  const std::vector<double> samples = read_all<double>(*open("synth://noise?amplitude=2&seconds=2"));
  EXPECT_NEAR(mean(samples), 0, 0.05);
  EXPECT_LT(*std::max_element(samples.begin(), samples.end()), 2);
  EXPECT_GT(*std::max_element(samples.begin(), samples.end()), 1.99);
  EXPECT_GE(*std::min_element(samples.begin(), samples.end()), -2);
  EXPECT_LT(*std::min_element(samples.begin(), samples.end()), -1.99);
  for (const std::size_t lag : {1U, 2U, 64U}) {
    EXPECT_NEAR(correlation(samples, samples, lag), 0, 0.03);
  }
}

TEST(SynthSource, GivesNoiseOfKnownBits) {
  const std::vector<double> samples = read_all<double>(*open("synth://noise?amplitude=1&frames=3&seed=7"));
  EXPECT_EQ(samples, (std::vector<double>{0x1.c01479161bc58p-3, -0x1.740032b4c8d18p-3, 0x1.fca8abe5f271ap-1}));
}

TEST(SynthSource, MakesDifferentNoiseForEverySeedStreamAndChannel) {
  std::vector<std::vector<double>> all;
  for (const char* seed : {"0", "1"}) {
    const std::vector<double> samples =
        read_all<double>(*open("synth://noise?frames=5000&streams=2&channels=2&seed=" + std::string(seed)));
    for (std::size_t channel = 0; channel < 4; ++channel) {
      all.push_back(channel_of(samples, 4, channel));
    }
  }
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NEAR(correlation(all[a], all[b]), 0, 0.06) << a << " and " << b;
    }
  }
}

TEST(SynthSource, GivesTheSameBitsHoweverItIsRead) {
  for (const char* kind : {"sine", "chirp", "noise", "robot"}) {
    const std::string address = "synth://" + std::string(kind) + "?frames=500&streams=2&channels=60&rate=1000";
    const std::vector<double> expected = read_all<double>(*open(address), 500);
    for (const std::int64_t block_frames : {1, 7, 499}) {
      const std::vector<double> samples = read_all<double>(*open(address), block_frames);
      ASSERT_EQ(samples.size(), expected.size());
      EXPECT_EQ(std::memcmp(samples.data(), expected.data(), expected.size() * sizeof(double)), 0) << kind;
    }
  }
}

TEST(SynthSource, RoundsDoubleToFloat) {
  for (const char* address : {"synth://sine?frames=50", "synth://robot?frames=50&channels=1"}) {
    const std::vector<double> wide = read_all<double>(*open(address));
    std::vector<float> narrow(wide.size());
    ASSERT_EQ(open(address)->read(narrow.data(), 50), 50);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      ASSERT_EQ(narrow[i], static_cast<float>(wide[i]));
    }
  }
}

TEST(SynthSource, NamesTheRobotsChannels) {
  const auto source = open("synth://robot");
  const std::vector<std::string>& names = source->info().channel_names;
  ASSERT_EQ(names.size(), 54U);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), 54U);
  EXPECT_EQ(names.front(), "lf_hip_roll_target");
  EXPECT_EQ(names[14], "lf_knee_position");
  EXPECT_EQ(names.back(), "accel_z");
  EXPECT_TRUE(open("synth://robot?channels=53")->info().channel_names.empty());
  EXPECT_TRUE(open("synth://sine?channels=54")->info().channel_names.empty());
}

TEST(SynthSource, MovesTheRobotLikeALeggedOne) {
  const auto source = open("synth://robot?seconds=20&hz=2");
  const std::vector<std::string>& names = source->info().channel_names;
  const std::vector<double> samples = read_all<double>(*source);
  const auto channel = [&](const std::string& name) {
    const auto found = std::find(names.begin(), names.end(), name);
    EXPECT_NE(found, names.end()) << name;
    return channel_of(samples, 54, static_cast<std::size_t>(found - names.begin()));
  };
  const std::vector<double> knee = channel("lf_knee_position");
  // A stride is 500 frames; the diagonal leg moves along, the others half a stride apart.
  EXPECT_GT(correlation(knee, knee, 500), 0.95);
  EXPECT_GT(correlation(knee, channel("rh_knee_position")), 0.95);
  EXPECT_GT(correlation(knee, channel("rf_knee_position"), 250), 0.95);
  EXPECT_LT(correlation(knee, channel("rf_knee_position")), 0.5);
  // Position follows its target a little later; velocity is the position's slope.
  const std::vector<double> target = channel("lf_knee_target");
  EXPECT_GT(correlation(knee, target, 10), correlation(knee, target));
  const std::vector<double> velocity = channel("lf_knee_velocity");
  std::vector<double> slope;
  std::vector<double> smooth_velocity;
  for (std::size_t i = 20; i + 20 < knee.size(); ++i) {
    slope.push_back((knee[i + 20] - knee[i - 20]) / 0.04);
    double sum = 0;
    for (std::size_t j = i - 20; j <= i + 20; ++j) {
      sum += velocity[j] / 41;
    }
    smooth_velocity.push_back(sum);
  }
  EXPECT_GT(correlation(slope, smooth_velocity), 0.98);
  EXPECT_NEAR(mean(channel("accel_z")), 9.81, 0.2);  // gravity, m/s^2
  for (const double sample : samples) {
    ASSERT_LT(std::abs(sample), 60);
  }
}

TEST(SynthSource, RepeatsASineToTheLastBit) {
  const auto source = open("synth://sine?rate=1000&hz=70&frames=3000000");
  std::vector<double> first(1000000);
  std::vector<double> last(1000000);
  ASSERT_EQ(source->read(first.data(), 1000000), 1000000);
  ASSERT_EQ(source->read(last.data(), 1000000), 1000000);
  ASSERT_EQ(source->read(last.data(), 1000000), 1000000);
  EXPECT_EQ(std::memcmp(first.data(), last.data(), first.size() * sizeof(double)), 0);
}

TEST(SynthSource, RefusesWhatItDoesNotKnow) {
  expect_error<ConfigError>([] { open("synth://square"); },
                            {"synth://square", "sine, chirp, noise or robot", "'square'"});
  expect_error<ConfigError>([] { open("synth://sine?rate=1000&hz=501"); }, {"hz", "500", "501"});
  expect_error<ConfigError>([] { open("synth://noise?hz=5"); }, {"'hz'"});
  expect_error<ConfigError>([] { open("synth://sine?seed=5"); }, {"'seed'"});
  expect_error<ConfigError>([] { open("synth://robot?amplitude=5"); }, {"'amplitude'"});
  expect_error<ConfigError>([] { open("synth://sine?channels=0"); }, {"channels", "'0'"});
  expect_error<ConfigError>([] { open("synth://sine?frames=1&seconds=1"); }, {"one of frames and seconds"});
  expect_error<ConfigError>([] { open("synth://sine?seconds=1e30"); }, {"seconds", "1e30"});
}

}  // namespace
}  // namespace halotap::io
