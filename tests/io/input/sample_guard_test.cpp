#include "input/sample_guard.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace halotap::io {
namespace {

using pipeline::OnInvalid;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLeastDenormal = std::numeric_limits<float>::denorm_min();

const float kAboveMost = std::nextafter(pipeline::kMaxMagnitude, kInfinity);

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(SampleGuard, CountsEveryKindOfInvalidSampleUnderEveryPolicy) {
  for (const OnInvalid on_invalid : {OnInvalid::kPass, OnInvalid::kHold, OnInvalid::kZero}) {
    SampleGuard guard(on_invalid, 1);
    std::vector<float> samples{0,    -0.0F,     1e30F,      -1e30F,     kLeastDenormal,
                               kNan, kInfinity, -kInfinity, kAboveMost, -std::numeric_limits<float>::max(),
                               3e38F};
    // NaNs of every sign and payload.
    for (const std::uint32_t bits : {0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
      samples.push_back(std::bit_cast<float>(bits));
    }
    guard.clean(samples.data(), static_cast<std::int64_t>(samples.size()));
    EXPECT_EQ(guard.counts().nan, 4U);
    EXPECT_EQ(guard.counts().infinite, 2U);
    EXPECT_EQ(guard.counts().too_large, 3U);
    EXPECT_EQ(guard.counts().all(), 9U);
  }
}

TEST(SampleGuard, LeavesValidSamplesAndThosePassedAsTheyAre) {
  const std::vector<float> valid{1, -0.0F, 1e30F, -1e30F, kLeastDenormal, -0.5F};
  for (const OnInvalid on_invalid : {OnInvalid::kPass, OnInvalid::kHold, OnInvalid::kZero}) {
    SampleGuard guard(on_invalid, 2);
    std::vector<float> samples = valid;
    guard.clean(samples.data(), 3);
    EXPECT_TRUE(same_bits(samples, valid));
    EXPECT_EQ(guard.counts().all(), 0U);
  }
  std::vector<float> invalid{std::bit_cast<float>(0xFFC12345U), 3e38F, 1, -kInfinity};
  const std::vector<float> before = invalid;
  SampleGuard guard(OnInvalid::kPass, 2);
  guard.clean(invalid.data(), 2);
  EXPECT_TRUE(same_bits(invalid, before));
}

TEST(SampleGuard, PutsZerosInThePlaceOfInvalidSamples) {
  SampleGuard guard(OnInvalid::kZero, 2);
  std::vector<float> samples{kNan, 1, 2, kInfinity, -3e38F, 3};
  guard.clean(samples.data(), 3);
  EXPECT_TRUE(same_bits(samples, {0, 1, 2, 0, 0, 3}));
}

TEST(SampleGuard, HoldsTheSampleBeforeOfTheSameChannel) {
  SampleGuard guard(OnInvalid::kHold, 2);
  std::vector<float> samples{kNan, 1, 2, kInfinity, kNan, 3, kNan, -3e38F, 4, kNan};
  guard.clean(samples.data(), 5);
  EXPECT_TRUE(same_bits(samples, {0, 1, 2, 1, 2, 3, 2, 3, 4, 3}));
  std::vector<float> next{kNan, kNan};
  guard.clean(next.data(), 1);
  EXPECT_TRUE(same_bits(next, {4, 3}));
  guard.begin_again();
  next = {kNan, 7};
  guard.clean(next.data(), 1);
  EXPECT_TRUE(same_bits(next, {0, 7}));
}

TEST(SampleGuard, GivesTheSameBitsHoweverTheFramesAreCut) {
  std::mt19937 random(3);
  const float kinds[] = {kNan, -kInfinity, 3e38F, 0.25F, -0.5F};
  for (const OnInvalid on_invalid : {OnInvalid::kPass, OnInvalid::kHold, OnInvalid::kZero}) {
    for (const std::int64_t channels : {1, 3, 17}) {
      constexpr std::int64_t kFrames = 500;
      std::vector<float> samples(static_cast<std::size_t>(channels * kFrames));
      for (float& sample : samples) sample = random() % 8 < 5 ? kinds[random() % 5] : static_cast<float>(random() % 9);
      std::vector<float> whole = samples;
      SampleGuard one(on_invalid, channels);
      one.clean(whole.data(), kFrames);
      SampleGuard many(on_invalid, channels);
      for (std::int64_t at = 0; at < kFrames;) {
        const std::int64_t piece = std::min<std::int64_t>(random() % 9, kFrames - at);
        many.clean(samples.data() + at * channels, piece);
        at += piece;
      }
      EXPECT_TRUE(same_bits(samples, whole)) << channels;
      EXPECT_EQ(many.counts().all(), one.counts().all());
    }
  }
}

}  // namespace
}  // namespace halotap::io
