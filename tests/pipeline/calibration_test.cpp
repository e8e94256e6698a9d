#include "halotap/pipeline/calibration.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

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

LatencyHistogram microseconds_from_one_to(int count) {
  LatencyHistogram chunks;
  for (int i = 1; i <= count; ++i) chunks.record(std::chrono::microseconds(i));
  return chunks;
}

TEST(TellingTime, IsTheHighestQuantileThatSoManyChunksCanTell) {
  const auto expect = [](int chunks, const std::string& quantile, double about_us) {
    const ChunkTime time = telling_time(microseconds_from_one_to(chunks));
    EXPECT_EQ(time.quantile, quantile) << chunks;
    EXPECT_EQ(time.chunks, static_cast<std::uint64_t>(chunks));
    EXPECT_NEAR(static_cast<double>(time.time.count()) / 1e3, about_us, 0.016 * about_us) << chunks;
  };
  expect(1, "longest", 1);
  expect(99, "longest", 99);
  expect(100, "p99", 99);
  expect(999, "p99", 990);
  expect(1000, "p99.9", 999);
  expect(10000, "p99.9", 9990);
}

TEST(MedianTime, IsNotMovedByAHiccup) {
  LatencyHistogram chunks = microseconds_from_one_to(101);
  const ChunkTime before = median_time(chunks);
  chunks.record(std::chrono::seconds(10));
  EXPECT_EQ(before.quantile, "median");
  EXPECT_NEAR(static_cast<double>(before.time.count()), 51e3, 1e3);
  EXPECT_EQ(median_time(chunks).time, before.time);
}

TEST(MeasuredTerm, SaysWhichQuantileOfHowManyChunksItIs) {
  const LatencyTerm term = measured_term({"p99", 100, std::chrono::microseconds(70)});
  EXPECT_EQ(term.kind, LatencyKind::kMeasured);
  EXPECT_DOUBLE_EQ(term.time().count(), 70e-6);
  EXPECT_EQ(term.note, "p99 of 100 chunks");
  EXPECT_EQ(measured_term({"longest", 1, nanoseconds(1)}).note, "longest of 1 chunk");
}

}  // namespace
}  // namespace halotap::pipeline
