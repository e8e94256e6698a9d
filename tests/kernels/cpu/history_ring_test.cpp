#include "cpu/history_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "random_stack.hpp"

namespace halotap::kernels::cpu {
namespace {

TEST(HistoryRing, ShowsTheHaloAndTheStepInOneRunWhereverItStands) {
  constexpr std::int64_t kHalo = 5;
  constexpr std::int64_t kMaxStep = 4;
  constexpr std::int64_t kStride = 2;
  std::vector<float> rows(static_cast<std::size_t>(HistoryRing::size(kHalo, kMaxStep, kStride)), -1.0f);
  std::int64_t start = 0;
  HistoryRing ring(rows.data(), start, kHalo, kMaxStep, kStride);
  ring.clear();

  test::Random random(6);
  float written = 0;  // row n holds {n, n}; rows before the first are zero
  for (int step = 0; step < 300; ++step) {
    const std::int64_t frames = test::draw(random, 1, kMaxStep);
    float* window = ring.window();
    for (std::int64_t r = 0; r < frames; ++r) std::fill_n(window + (kHalo + r) * kStride, kStride, ++written);
    std::fill_n(window + (kHalo + frames) * kStride, kRowFloats, -7.0f);  // kernels may write behind narrow rows
    for (std::int64_t r = 0; r < kHalo + frames; ++r) {
      const float expected = std::max(0.0f, written - static_cast<float>(kHalo + frames - 1 - r));
      ASSERT_EQ(window[r * kStride], expected) << "step " << step << " row " << r;
      ASSERT_EQ(window[r * kStride + 1], expected);
    }
    ring.advance(frames);
  }
}

TEST(HistoryRing, ClearsAndFillsTheWholeHalo) {
  std::vector<float> rows(static_cast<std::size_t>(HistoryRing::size(3, 2, 1)), 9.0f);
  std::int64_t start = 4;
  HistoryRing ring(rows.data(), start, 3, 2, 1);
  const float row = 5;
  ring.fill(&row);
  EXPECT_TRUE(std::all_of(ring.window(), ring.window() + 3, [](float x) { return x == 5; }));
  ring.clear();
  EXPECT_TRUE(std::all_of(ring.window(), ring.window() + 3, [](float x) { return x == 0; }));
}

}  // namespace
}  // namespace halotap::kernels::cpu
