#include "resample/variable_resampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

namespace halotap::io {
namespace {

constexpr double kRateHz = 48000;

double tone(double hz, std::int64_t frame) {
  return 0.5 * std::sin(2 * std::numbers::pi * hz * static_cast<double>(frame) / kRateHz);
}

// Takes blocks of `block` frames of `in`, [frames, channels], through `resampler`; `before` is told of each.
template <typename Before>
std::vector<float> through(VariableResampler& resampler, const std::vector<float>& in, std::int64_t channels,
                           std::int64_t block, Before before) {
  std::vector<float> out;
  const auto frames = static_cast<std::int64_t>(in.size()) / channels;
  for (std::int64_t at = 0; at < frames; at += block) {
    before(at);
    const std::int64_t count = std::min(block, frames - at);
    const VariableResampler::Made made = resampler.process(in.data() + at * channels, count);
    out.insert(out.end(), made.samples, made.samples + made.frames * channels);
  }
  return out;
}

// How far a tone of `hz` is from one, in its second differences: a click or a step would show.
double roughness(const std::vector<float>& samples, double hz, std::size_t from) {
  const double cosine = std::cos(2 * std::numbers::pi * hz / kRateHz);
  double most = 0;
  for (std::size_t i = from; i + 1 < samples.size(); ++i) {
    most = std::max(most, std::abs(double{samples[i + 1]} - 2 * cosine * samples[i] + samples[i - 1]));
  }
  return most;
}

TEST(VariableResampler, MakesAsManyFramesAsItIsTold) {
  for (const double ppm : {-1000.0, -1.0, 0.0, 1.0, 1000.0, 10000.0, -10000.0}) {
    VariableResampler resampler(1);
    resampler.change(ppm * 1e-6, 0);
    const std::vector<float> in(480000);
    const std::vector<float> out = through(resampler, in, 1, 480, [](std::int64_t) {});
    EXPECT_NEAR(static_cast<double>(out.size()),
                static_cast<double>(in.size()) * (1 + ppm * 1e-6) - static_cast<double>(resampler.delay_frames()), 5)
        << ppm;
  }
}

TEST(VariableResampler, GivesAFrameAsLateAsItStates) {
  constexpr std::int64_t kImpulseAt = 4799;
  for (const std::int64_t block : {1, 64, 480}) {
    VariableResampler resampler(1);
    std::vector<float> in(9600);
    in[kImpulseAt] = 1;
    std::int64_t given = 0;
    std::int64_t made = 0;
    std::int64_t given_at_peak = 0;
    float largest = 0;
    for (; given < 9600;) {
      const VariableResampler::Made part = resampler.process(in.data() + given, block);
      given += block;
      made += part.frames;
      for (std::int64_t i = 0; i < part.frames; ++i) {
        if (std::abs(part.samples[i]) <= largest) continue;
        largest = std::abs(part.samples[i]);
        given_at_peak = given;
      }
    }
    EXPECT_GT(largest, 0.5F);
    const std::int64_t late = given_at_peak - (kImpulseAt + 1);
    EXPECT_GE(late, resampler.delay_frames()) << block;
    EXPECT_LT(late, resampler.delay_frames() + block) << block;
    EXPECT_NEAR(static_cast<double>(given - made), static_cast<double>(resampler.delay_frames()), 4)
        << "it holds back no more than that";
  }
}

TEST(VariableResampler, TakesNoFramesForNoEnd) {
  const std::vector<float> in(4800, 0.5F);
  VariableResampler resampler(1);
  VariableResampler other(1);
  EXPECT_EQ(resampler.process(in.data(), 0).frames, 0);
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> out = through(resampler, in, 1, 480, [](std::int64_t) {});
    EXPECT_EQ(out, through(other, in, 1, 480, [](std::int64_t) {})) << i;
    EXPECT_EQ(resampler.process(nullptr, 0).frames, 0);
  }
}

TEST(VariableResampler, KeepsATonePureWhileTheRateChanges) {
  constexpr double kHz = 997;
  std::vector<float> in;
  for (std::int64_t frame = 0; frame < 480000; ++frame) in.push_back(static_cast<float>(tone(kHz, frame)));
  VariableResampler resampler(1);
  const std::vector<float> out = through(resampler, in, 1, 480, [&](std::int64_t at) {
    resampler.change(1e-3 * std::sin(static_cast<double>(at) / 48000), 480);
  });
  // 1000 ppm of the tone's frequency are w^2 * 1e-3 = 1.7e-5 of a second difference.
  EXPECT_LT(roughness(out, kHz, 2000), 4e-5);
  EXPECT_NEAR(*std::max_element(out.begin() + 2000, out.end()), 0.5, 1e-3);
}

TEST(VariableResampler, KeepsChannelsApart) {
  std::vector<float> together;
  std::vector<float> alone;
  for (std::int64_t frame = 0; frame < 9600; ++frame) {
    alone.push_back(static_cast<float>(tone(1500, frame)));
    together.insert(together.end(), {static_cast<float>(tone(440, frame)), alone.back(), 0.0F});
  }
  VariableResampler three(3);
  VariableResampler one(1);
  three.change(3e-4, 0);
  one.change(3e-4, 0);
  const std::vector<float> out = through(three, together, 3, 100, [](std::int64_t) {});
  const std::vector<float> expected = through(one, alone, 1, 100, [](std::int64_t) {});
  ASSERT_EQ(out.size(), 3 * expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(out[3 * i + 1], expected[i]) << i;
    ASSERT_LT(out[3 * i + 2], 1e-18F) << i;
  }
}

TEST(VariableResampler, TakesWhatCannotBePlayedAsZeroAndCountsIt) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> in(9600, 0.25F);
  std::vector<float> holes = in;
  std::size_t at = 4800;
  for (const float sample : {std::nanf(""), kInfinity, -kInfinity, 3e38F, -2e6F}) {
    in[at] = sample;
    holes[at] = 0;
    at += 300;
  }
  VariableResampler resampler(1);
  VariableResampler other(1);
  EXPECT_EQ(through(resampler, in, 1, 480, [](std::int64_t) {}), through(other, holes, 1, 480, [](std::int64_t) {}));
  EXPECT_EQ(resampler.samples_zeroed(), 5U);
  EXPECT_EQ(other.samples_zeroed(), 0U);
}

// They would cost ten times the time: what a filter without end still rings with long behind a sound, or is fed with.
TEST(VariableResampler, IsKeptOutOfTheDenormals) {
  for (const float after : {0.0F, 1e-40F}) {
    std::vector<float> in(96000, after);
    for (std::int64_t frame = 0; frame < 4800; ++frame)
      in[static_cast<std::size_t>(frame)] = static_cast<float>(tone(997, frame));
    VariableResampler resampler(1);
    const std::vector<float> out = through(resampler, in, 1, 480, [](std::int64_t) {});
    EXPECT_TRUE(std::all_of(out.end() - 48000, out.end(),
                            [](float sample) { return std::isnormal(sample) && std::abs(sample) < 1e-18F; }));
  }
}

}  // namespace
}  // namespace halotap::io
