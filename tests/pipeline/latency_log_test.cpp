#include "halotap/pipeline/latency_log.hpp"

#include <gtest/gtest.h>

namespace halotap::pipeline {
namespace {

using namespace std::chrono_literals;

constexpr Instant kEpoch{1h};

ChunkTimes times_of(std::chrono::nanoseconds source, std::chrono::nanoseconds engine, std::chrono::nanoseconds stages,
                    std::chrono::nanoseconds sinks) {
  const Instant begun = kEpoch + source;
  const Instant computed = begun + engine;
  return {kEpoch, begun, computed, computed + stages, computed + stages + sinks};
}

TEST(LatencyLog, MeasuresEveryPartAndTheWhole) {
  LatencyLog log;
  log.record(times_of(7ns, 11ns, 13ns, 17ns));
  EXPECT_EQ(log.figures(LatencyPart::kSource).max_ns, 7);
  EXPECT_EQ(log.figures(LatencyPart::kEngine).max_ns, 11);
  EXPECT_EQ(log.figures(LatencyPart::kStages).max_ns, 13);
  EXPECT_EQ(log.figures(LatencyPart::kSinks).max_ns, 17);
  EXPECT_EQ(log.figures(LatencyPart::kWhole).max_ns, 48);
}

TEST(LatencyLog, HasNoWholeWhereNobodyKnowsTheCapture) {
  LatencyLog log;
  ChunkTimes times = times_of(7ns, 11ns, 13ns, 17ns);
  times.captured = std::nullopt;
  log.record(times);
  EXPECT_EQ(log.figures(LatencyPart::kSource).chunks, 0u);
  EXPECT_EQ(log.figures(LatencyPart::kWhole).chunks, 0u);
  EXPECT_EQ(log.figures(LatencyPart::kSinks).max_ns, 17);
}

TEST(LatencyLog, CountsMissesOfEveryBudgetByItself) {
  LatencyConfig config;
  config.budget_ms = 30;
  config.budgets.engine_ms = 5;
  config.budgets.sinks_ms = 0.5;
  LatencyLog log(config);
  log.record(times_of(25ms, 5ms, 0ms, 0ms));        // all within, to the nanosecond
  log.record(times_of(10ms, 5ms + 1ns, 0ms, 0ms));  // the engine
  log.record(times_of(30ms, 1ms, 0ms, 1ms));        // the sinks and the whole
  EXPECT_EQ(log.figures(LatencyPart::kSource).misses, 0u);
  EXPECT_EQ(log.figures(LatencyPart::kEngine).misses, 1u);
  EXPECT_EQ(log.figures(LatencyPart::kStages).misses, 0u);
  EXPECT_EQ(log.figures(LatencyPart::kSinks).misses, 1u);
  EXPECT_EQ(log.figures(LatencyPart::kWhole).misses, 1u);
  EXPECT_FALSE(log.is_late(30ms));
  EXPECT_TRUE(log.is_late(30ms + 1ns));
  EXPECT_FALSE(LatencyLog().is_late(1h));
}

}  // namespace
}  // namespace halotap::pipeline
