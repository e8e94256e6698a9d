#include "halotap/pipeline/calibration.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "halotap/pipeline/built_in_stages.hpp"
#include "pipeline/test_model.hpp"

namespace halotap::pipeline {
namespace {

using std::chrono::nanoseconds;
using test::lookahead_model;

// Passes frames on and looks at what they are.
class Witness final : public Stage {
 public:
  struct Seen {
    std::int64_t frames = 0;
    std::int64_t not_finite = 0;
    std::int64_t resets = 0;
  };
  explicit Witness(Seen& seen) : seen_(seen) {}

  StageOutput prepare(const StageFormat& input) override {
    samples_ = input.frame_samples();
    return {.channels = input.channels};
  }
  bool process(const float* frame, float* result, EventList&) noexcept HALOTAP_NONBLOCKING override {
    for (std::int64_t i = 0; i < samples_; ++i) {
      seen_.not_finite += std::isfinite(frame[i]) ? 0 : 1;
      result[i] = frame[i];
    }
    ++seen_.frames;
    return true;
  }
  void reset() noexcept HALOTAP_NONBLOCKING override { ++seen_.resets; }

 private:
  Seen& seen_;
  std::int64_t samples_ = 0;
};

TEST(Calibration, RunsWholeChunksThroughEngineAndStages) {
  for (const std::int64_t chunk_frames : {1, 17, 4096, 70000}) {
    Witness::Seen seen;
    PipelineSpec spec;
    spec.backend = Backend::kCpu;
    spec.streams = 2;
    spec.chunks.max_frames = chunk_frames;
    spec.stages = {{"witness", [&seen] { return std::make_unique<Witness>(seen); }}};
    Pipeline pipeline(lookahead_model(1), spec);
    const Calibration calibration = calibrate(pipeline, std::chrono::milliseconds(1));
    EXPECT_GE(calibration.chunk.count(), 1U);
    EXPECT_GT(calibration.chunk.max(), nanoseconds(0));
    EXPECT_GE(seen.frames, static_cast<std::int64_t>(calibration.chunk.count()) * chunk_frames);
    EXPECT_EQ(seen.not_finite, 0);
    EXPECT_GE(seen.resets, 1);
    EXPECT_EQ(pipeline.ring_counters().frames_in_flight, 0U);
    EXPECT_EQ(pipeline.ring_counters().frames_dropped_overrun, 0U);
  }
}

TEST(Calibration, LeavesTheStreamsAsNew) {
  const Model model = lookahead_model(1);
  const std::vector<float> input(3 * 40, 0.25f);
  const auto heard = [&input](Pipeline& pipeline) {
    pipeline.push(input.data(), 40);
    const Pipeline::Step step = pipeline.step();
    return std::vector<float>(step.samples, step.samples + step.frames_out * 2);
  };
  Pipeline fresh(model, {.backend = Backend::kCpu, .chunks = {.max_frames = 40}});
  Pipeline tried(model, {.backend = Backend::kCpu, .chunks = {.max_frames = 40}});
  calibrate(tried, nanoseconds(0));
  const std::vector<float> expected = heard(fresh);
  const std::vector<float> got = heard(tried);
  ASSERT_EQ(got.size(), expected.size());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0);
}

// A clock whose n-th reading is n * n microseconds: from each to the next it takes two more than before.
class HastyClock final : public Clock {
 public:
  Instant now() const noexcept HALOTAP_NONBLOCKING override {
    ++readings_;
    return Instant(std::chrono::microseconds(readings_ * readings_));
  }
  void sleep(std::chrono::nanoseconds) const override {}

 private:
  mutable std::int64_t readings_ = 0;
};

TEST(Calibration, TimesEngineAndStagesApart) {
  const HastyClock clock;
  PipelineSpec spec;
  spec.backend = Backend::kCpu;
  spec.chunks.max_frames = 16;
  spec.clock = &clock;
  spec.stages = {{"affine", affine_stage({.gain = 2})}};
  Pipeline pipeline(lookahead_model(1), spec);
  const Calibration calibration = calibrate(pipeline, std::chrono::milliseconds(100));
  // Begun, computed, staged.
  EXPECT_GE(calibration.chunk.count(), 20U);
  EXPECT_EQ(calibration.engine.count(), calibration.chunk.count());
  EXPECT_EQ(calibration.stages.count(), calibration.chunk.count());
  EXPECT_EQ(calibration.stages.max(), calibration.engine.max() + std::chrono::microseconds(2));
  EXPECT_EQ(calibration.chunk.max(), calibration.engine.max() + calibration.stages.max());
}

// Of the engine half, of the stages a quarter of the chunk's time.
Calibration microseconds_from_one_to(int count) {
  Calibration calibration;
  for (int i = 1; i <= count; ++i) {
    calibration.chunk.record(std::chrono::microseconds(4 * i));
    calibration.engine.record(std::chrono::microseconds(2 * i));
    calibration.stages.record(std::chrono::microseconds(i));
  }
  return calibration;
}

TEST(TellingTime, IsTheHighestQuantileThatSoManyChunksCanTell) {
  const auto expect = [](int chunks, const std::string& quantile, double about_us) {
    const ComputeTime time = telling_time(microseconds_from_one_to(chunks));
    EXPECT_EQ(time.quantile, quantile) << chunks;
    EXPECT_EQ(time.chunks, static_cast<std::uint64_t>(chunks));
    EXPECT_NEAR(static_cast<double>(time.chunk.count()) / 4e3, about_us, 0.016 * about_us) << chunks;
    EXPECT_NEAR(static_cast<double>(time.engine.count()) / 2e3, about_us, 0.016 * about_us) << chunks;
    EXPECT_NEAR(static_cast<double>(time.stages.count()) / 1e3, about_us, 0.016 * about_us) << chunks;
    const auto middle_us = static_cast<double>((chunks + 1) / 2);
    EXPECT_NEAR(static_cast<double>(time.chunk_p50.count()) / 4e3, middle_us, 0.016 * middle_us) << chunks;
    EXPECT_NEAR(static_cast<double>(time.engine_p50.count()) / 2e3, middle_us, 0.016 * middle_us) << chunks;
    EXPECT_NEAR(static_cast<double>(time.stages_p50.count()) / 1e3, middle_us, 0.016 * middle_us) << chunks;
  };
  expect(1, "longest", 1);
  expect(99, "longest", 99);
  expect(100, "p99", 99);
  expect(999, "p99", 990);
  expect(1000, "p99.9", 999);
  expect(10000, "p99.9", 9990);
}

TEST(MedianTime, IsNotMovedByAHiccup) {
  Calibration calibration = microseconds_from_one_to(101);
  const ComputeTime before = median_time(calibration);
  calibration.chunk.record(std::chrono::seconds(10));
  EXPECT_EQ(before.quantile, "median");
  EXPECT_NEAR(static_cast<double>(before.chunk.count()), 204e3, 4e3);
  EXPECT_EQ(median_time(calibration).chunk, before.chunk);
}

TEST(MeasuredTerm, SaysWhichQuantileOfHowManyChunksItIs) {
  const LatencyTerm term = measured_term({.quantile = "p99",
                                          .chunks = 100,
                                          .chunk = std::chrono::microseconds(70),
                                          .chunk_p50 = std::chrono::microseconds(31)});
  EXPECT_EQ(term.kind, LatencyKind::kMeasured);
  EXPECT_EQ(term.part, LatencyPart::kWhole);
  EXPECT_DOUBLE_EQ(term.time().count(), 70e-6);
  EXPECT_EQ(term.note, "p99 of 100 chunks, p50 31 us");
  const std::chrono::milliseconds p50(7);
  EXPECT_EQ(quantile_text({.quantile = "longest", .chunks = 1}, p50), "longest of 1 chunk, p50 7 ms");
  EXPECT_EQ(quantile_text({.quantile = "median", .chunks = 2}, p50), "median of 2 chunks");
}

}  // namespace
}  // namespace halotap::pipeline
