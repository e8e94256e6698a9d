#include "halotap/pipeline/latency.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "random_stack.hpp"

namespace halotap::pipeline {
namespace {

using std::chrono::nanoseconds;

TEST(LatencyHistogram, IsExactForTheShortestTimes) {
  LatencyHistogram histogram;
  for (int i = 1; i <= 100; ++i) histogram.record(nanoseconds{i});
  EXPECT_EQ(histogram.quantile(0.5), nanoseconds{50});
  EXPECT_EQ(histogram.quantile(0.99), nanoseconds{99});
  EXPECT_EQ(histogram.quantile(1), nanoseconds{100});
  EXPECT_EQ(histogram.quantile(0), nanoseconds{1});
  EXPECT_EQ(histogram.max(), nanoseconds{100});
  EXPECT_EQ(histogram.count(), 100u);
}

TEST(LatencyHistogram, IsWithinItsStepOfTheExactQuantileEverywhere) {
  test::Random random(1);
  std::vector<std::int64_t> times;
  LatencyHistogram histogram;
  for (int i = 0; i < 20000; ++i) {
    times.push_back(static_cast<std::int64_t>(std::exp2(std::uniform_real_distribution<double>(0, 39.9)(random))));
    histogram.record(nanoseconds{times.back()});
  }
  std::sort(times.begin(), times.end());
  for (const double fraction : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const auto exact = static_cast<double>(
        times[static_cast<std::size_t>(std::ceil(fraction * static_cast<double>(times.size()))) - 1]);
    const auto got = static_cast<double>(histogram.quantile(fraction).count());
    EXPECT_GE(got, exact);
    EXPECT_LE(got, exact * (1 + 1.0 / 64) + 1) << fraction;
  }
}

TEST(LatencyHistogram, TellsItsFiguresAsItsQuantilesAre) {
  test::Random random(2);
  for (const int count : {0, 1, 2, 3, 100, 5000}) {
    LatencyHistogram histogram;
    for (int i = 0; i < count; ++i) {
      const double time = std::exp2(std::uniform_real_distribution<double>(0, 30)(random));
      histogram.record(nanoseconds{static_cast<std::int64_t>(time)});
    }
    const LatencyFigures figures = histogram.figures();
    EXPECT_EQ(figures.chunks, static_cast<std::uint64_t>(count));
    EXPECT_EQ(figures.p50_ns, histogram.quantile(0.5).count());
    EXPECT_EQ(figures.p99_ns, histogram.quantile(0.99).count());
    EXPECT_EQ(figures.p999_ns, histogram.quantile(0.999).count());
    EXPECT_EQ(figures.max_ns, histogram.max().count());
  }
}

TEST(LatencyHistogram, AddsAnotherAsIfItHadRecordedAll) {
  LatencyHistogram both;
  LatencyHistogram parts[2];
  test::Random random(3);
  for (int i = 0; i < 1000; ++i) {
    const nanoseconds time{test::draw(random, 0, 1 << 20)};
    both.record(time);
    parts[i % 3 == 0].record(time);
  }
  parts[0].add(parts[1]);
  EXPECT_EQ(parts[0].count(), 1000u);
  EXPECT_EQ(parts[0].max(), both.max());
  for (const double fraction : {0.0, 0.1, 0.5, 0.99, 1.0}) {
    EXPECT_EQ(parts[0].quantile(fraction), both.quantile(fraction)) << fraction;
  }
}

TEST(LatencyHistogram, CountsTimesBeyondItsRangeAndIsZeroWhenEmpty) {
  LatencyHistogram histogram;
  EXPECT_EQ(histogram.quantile(0.5), nanoseconds{0});
  histogram.record(nanoseconds{-5});
  histogram.record(nanoseconds{std::int64_t{1} << 50});
  EXPECT_EQ(histogram.count(), 2u);
  EXPECT_EQ(histogram.quantile(0), nanoseconds{0});
  EXPECT_EQ(histogram.max(), nanoseconds{std::int64_t{1} << 50});
}

}  // namespace
}  // namespace halotap::pipeline
