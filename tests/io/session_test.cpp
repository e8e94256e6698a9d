#include "halotap/io/session.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "expect_error.hpp"
#include "halotap/pipeline/built_in_stages.hpp"
#include "halotap/pipeline/errors.hpp"
#include "live/drift_corrector.hpp"
#include "live/fake_device.hpp"
#include "live/live_sink.hpp"
#include "live/live_source.hpp"
#include "live/scripted_source.hpp"
#include "session/session_parts.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;

TEST(Session, TakesEveryFrameToEverySinkInOrder) {
  for (const std::int64_t chunk_frames : {1, 7, 64, 5000}) {
    for (const std::int64_t ring_frames : {1, 100, 100000}) {
      CountingSource source(10001, 2, 3);
      pipeline::PipelineSpec spec = pipeline_spec(chunk_frames, 2, ring_frames);
      pipeline::Pipeline pipeline(identity_model(3), spec);
      std::vector<Recording> recordings(2);
      const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 6), {});
      for (const Recording& recording : recordings) {
        EXPECT_TRUE(recording.finished);
        EXPECT_EQ(recording.samples, counted(60006));
      }
      EXPECT_EQ(report.frames_in, 10001);
      EXPECT_EQ(report.frames_out, 10001);
      EXPECT_FALSE(report.stopped);
      EXPECT_EQ(report.ring.frames_in, 10001U);
      EXPECT_EQ(report.ring.frames_out, 10001U);
      EXPECT_EQ(report.ring.frames_dropped_overrun, 0U);
      EXPECT_EQ(report.engine.frames_in, 20002U);
      EXPECT_EQ(report.engine.frames_out, 20002U);
      EXPECT_EQ(report.step_time.count(), static_cast<std::uint64_t>(10001 / chunk_frames));
    }
  }
}

TEST(Session, TakesRandomChunksToo) {
  CountingSource source(10001, 1, 1);
  pipeline::PipelineSpec spec = pipeline_spec(50);
  spec.chunks.seed = 3;
  pipeline::Pipeline pipeline(identity_model(1), spec);
  std::vector<Recording> recordings(1);
  run_session(source, pipeline, sinks_into(recordings, 1), {});
  EXPECT_EQ(recordings[0].samples, counted(10001));
}

TEST(Session, EndsWithTheFramesHeldBackForLookahead) {
  for (const std::int64_t frames : {1, 2, 3, 1000}) {
    CountingSource source(frames, 1, 1);
    pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(8));
    std::vector<Recording> recordings(1);
    const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), {});
    std::vector<float> expected = counted(frames);
    expected.erase(expected.begin(), expected.begin() + std::min<std::int64_t>(frames, 2));
    expected.resize(static_cast<std::size_t>(frames));
    EXPECT_EQ(recordings[0].samples, expected);
    EXPECT_EQ(report.frames_out, frames);
  }
}

TEST(Session, FinishesAnEmptyRecording) {
  CountingSource source(0, 1, 1);
  pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(8));
  std::vector<Recording> recordings(2);
  const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), {});
  EXPECT_EQ(report.frames_in, 0);
  EXPECT_EQ(report.frames_out, 0);
  EXPECT_TRUE(recordings[0].finished);
  EXPECT_TRUE(recordings[1].finished);
  EXPECT_TRUE(recordings[1].samples.empty());
}

TEST(Session, StopsAfterMaxFrames) {
  for (const std::int64_t max_frames : {0, 1, 5000, 9000}) {
    CountingSource source(9000, 1, 1);
    pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(64));
    std::vector<Recording> recordings(1);
    SessionSpec spec;
    spec.max_frames = max_frames;
    const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
    EXPECT_EQ(report.frames_in, max_frames);
    EXPECT_EQ(report.frames_out, max_frames);
    EXPECT_FALSE(report.stopped);
    EXPECT_TRUE(recordings[0].finished);
  }
}

TEST(Session, WritesWhatWentInWhenStopped) {
  std::atomic<bool> stop{false};
  CountingSource source(100000, 1, 1);
  pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(16));
  Recording recording;
  auto sink = std::make_unique<RecordingSink>(recording, 1);
  sink->on_write = [&] { stop = recording.samples.size() > 500; };
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::move(sink));
  SessionSpec spec;
  spec.stop = &stop;
  const SessionReport report = run_session(source, pipeline, sinks, spec);
  EXPECT_TRUE(report.stopped);
  EXPECT_GE(report.frames_in, 500);
  EXPECT_LE(report.frames_in, 500 + 4 * 16);  // what the ring held, no more
  EXPECT_EQ(report.frames_out, report.frames_in);
  EXPECT_EQ(static_cast<std::int64_t>(recording.samples.size()), report.frames_out);
  EXPECT_EQ(report.engine.frames_in_flight, 0U);
  EXPECT_TRUE(recording.finished);
}

TEST(Session, StopsBeforeTheFirstFrame) {
  const std::atomic<bool> stop{true};
  CountingSource source(1000, 1, 1);
  source.on_read = [] { ADD_FAILURE() << "read after the stop"; };
  pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(16));
  std::vector<Recording> recordings(1);
  SessionSpec spec;
  spec.stop = &stop;
  EXPECT_TRUE(run_session(source, pipeline, sinks_into(recordings, 1), spec).stopped);
  EXPECT_TRUE(recordings[0].finished);
}

// A session that slept through the stop would sleep for eleven days.
TEST(Session, StopsWhileWaitingForAFrameToBeMade) {
  std::atomic<bool> stop{false};
  CountingSource source(10, 1, 1, 1.0);
  source.on_read = [&] { stop = true; };
  pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(1));
  std::vector<Recording> recordings(1);
  SessionSpec spec;
  spec.stop = &stop;
  spec.speed = 1e-6;
  const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.frames_in, 0);
  EXPECT_TRUE(recordings[0].finished);
}

TEST(Session, GivesTheSameWhenPaced) {
  CountingSource source(300, 1, 2, 1000);
  pipeline::Pipeline pipeline(identity_model(2), pipeline_spec(16));
  std::vector<Recording> recordings(1);
  SessionSpec spec;
  spec.speed = 10;
  const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 2), spec);
  EXPECT_EQ(recordings[0].samples, counted(600));
  EXPECT_GE(report.elapsed, std::chrono::milliseconds(30));  // never ahead of the frames; behind them is no failure
}

TEST(Session, FinishesNoSinkWhenOneFails) {
  CountingSource source(1000, 1, 1);
  pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(16));
  std::vector<Recording> recordings(2);
  std::vector<std::unique_ptr<Sink>> sinks = sinks_into(recordings, 1);
  static_cast<RecordingSink&>(*sinks[1]).on_write = [&] {
    if (recordings[1].samples.size() > 900) {
      throw DataError("disk full");
    }
  };
  expect_error<DataError>([&] { run_session(source, pipeline, sinks, {}); }, {"disk full"});
  EXPECT_FALSE(recordings[0].finished);
  EXPECT_FALSE(recordings[1].finished);
}

TEST(Session, FinishesNoSinkWhenTheSourceFails) {
  CountingSource source(100000, 1, 1);
  source.on_read = [reads = 0]() mutable {
    if (++reads == 3) {
      throw DataError("ends too early");
    }
  };
  pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(16));
  std::vector<Recording> recordings(1);
  expect_error<DataError>([&] { run_session(source, pipeline, sinks_into(recordings, 1), {}); }, {"ends too early"});
  EXPECT_FALSE(recordings[0].finished);
}

TEST(Session, GivesEverySinkWhatComesOutOfTheLastStage) {
  for (const std::int64_t chunk_frames : {1, 7, 5000}) {
    CountingSource source(1001, 1, 2);  // 1 2, 3 4, 5 6, ...
    pipeline::PipelineSpec spec = pipeline_spec(chunk_frames);
    spec.stages = {{"select", pipeline::select_stage({.channels = {"1"}})},
                   {"decimate", pipeline::decimate_stage({.factor = 10, .keep = pipeline::Keep::kLast})},
                   {"affine", pipeline::affine_stage({.gain = 0.05})}};
    pipeline::Pipeline pipeline(identity_model(2), spec);
    std::vector<Recording> recordings(2);
    const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), {});
    std::vector<float> expected = counted(100);
    expected.push_back(100.1F);  // the last frame alone
    for (const Recording& recording : recordings) EXPECT_EQ(recording.samples, expected) << chunk_frames;
    EXPECT_EQ(report.frames_in, 1001);
    EXPECT_EQ(report.frames_out, 101);
    ASSERT_EQ(report.stages.size(), 3U);
    EXPECT_EQ(report.stages[1].frames_in, 1001U);
    EXPECT_EQ(report.stages[1].frames_out, 101U);
    EXPECT_EQ(report.stages[1].frames_merged, 900U);
  }
}

TEST(Session, HandsEventsOverBetweenTheFramesAroundThem) {
  for (const std::int64_t chunk_frames : {1, 7, 5000}) {
    CountingSource source(1000, 1, 1);
    pipeline::PipelineSpec spec = pipeline_spec(chunk_frames);
    spec.stages = {{"threshold", pipeline::threshold_stage({.on = 300, .min_on_ms = 5})},
                   {"affine", pipeline::affine_stage({.gain = -1})},
                   {"threshold", pipeline::threshold_stage({.on = -0.5})}};
    pipeline::Pipeline pipeline(identity_model(1), spec);
    std::vector<Recording> recordings(2);
    run_session(source, pipeline, sinks_into(recordings, 1), {});
    for (const Recording& recording : recordings) {
      // Above 300 from frame 299 on, for 5 frames from frame 303 on.
      EXPECT_EQ(recording.events, (std::vector<std::pair<std::int64_t, std::size_t>>{{0, 0}, {299, 303}, {303, 303}}))
          << chunk_frames;
      EXPECT_EQ(recording.samples.size(), 1000U);
    }
  }
}

TEST(Session, TellsOfItsProgress) {
  CountingSource source(100000, 1, 1);
  pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(16));
  std::vector<Recording> recordings(1);
  std::vector<std::int64_t> told;
  SessionSpec spec;
  spec.on_progress = [&](std::int64_t frames) { told.push_back(frames); };
  run_session(source, pipeline, sinks_into(recordings, 1), spec);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), 100000);
}

std::vector<float> counted_from(std::int64_t first, std::int64_t count) {
  std::vector<float> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), static_cast<float>(first));
  return result;
}

TEST(Session, TakesFramesOfALiveSourceAsTheyCome) {
  std::atomic<bool> stop{false};
  // Nothing, for a while, is no end.
  ScriptedSource source({{.frames = counted_from(1, 5)},
                         {},
                         {.frames = counted_from(6, 1)},
                         {},
                         {.frames = counted_from(7, 994), .then = [&] { stop = true; }}},
                        1000);
  pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(8));
  std::vector<Recording> recordings(1);
  SessionSpec spec;
  spec.stop = &stop;
  // The stop comes with the last frames, which are not read any more than those of a recording would be.
  const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
  EXPECT_TRUE(report.stopped);
  EXPECT_EQ(report.frames_out, report.frames_in);
  EXPECT_EQ(report.gaps, 0);
  EXPECT_TRUE(recordings[0].finished);
  EXPECT_EQ(recordings[0].samples[0], 3.0F);
}

TEST(Session, EndsALiveSourceAfterMaxFrames) {
  ScriptedSource source({{.frames = counted_from(1, 100)}, {}, {.frames = counted_from(101, 100)}}, 1000);
  pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(8));
  std::vector<Recording> recordings(1);
  SessionSpec spec;
  spec.max_frames = 150;
  const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
  EXPECT_FALSE(report.stopped);
  EXPECT_EQ(recordings[0].samples, counted(150));
}

// Each side of the gap is what a recording of its own would be: y[t] = x[t + 2], zeros behind the end.
TEST(Session, BeginsAgainBehindAGapOfALiveSource) {
  ScriptedSource source({{.frames = counted_from(1, 21)},
                         {.gap = {.frames_lost = 100, .frames_dropped = 5}},
                         {.gap = {.frames_lost = 3, .is_reopening = true}},
                         {.frames = counted_from(51, 10)}},
                        1000);
  pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(8));
  std::vector<Recording> recordings(1);
  std::vector<HandledGap> told;
  SessionSpec spec;
  spec.max_frames = 31;
  spec.on_gap = [&](const HandledGap& gap) { told.push_back(gap); };
  const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
  std::vector<float> expected = counted_from(3, 19);
  expected.insert(expected.end(), {0, 0});
  const std::vector<float> behind = counted_from(53, 8);
  expected.insert(expected.end(), behind.begin(), behind.end());
  expected.insert(expected.end(), {0, 0});
  EXPECT_EQ(recordings[0].samples, expected);
  EXPECT_EQ(report.frames_in, 31);
  EXPECT_EQ(report.frames_out, 31);
  EXPECT_EQ(report.gaps, 2);
  EXPECT_EQ(report.missing.frames_lost, 103);
  EXPECT_EQ(report.missing.frames_dropped, 5);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0].at_frame, 21);
  EXPECT_EQ(told[0].gap.frames_lost, 100);
  EXPECT_EQ(told[0].first_frame, 21);
  EXPECT_EQ(told[0].frames, 0);
  EXPECT_TRUE(told[1].gap.is_reopening);
  ASSERT_EQ(recordings[0].gaps.size(), 2U) << "the sink hears of them too";
  EXPECT_EQ(recordings[0].gaps[0].first_frame, 21);
  EXPECT_EQ(report.frames_filled, 0);
  EXPECT_EQ(report.frames_marked, 0);
}

// A result depends on two frames before its own and two behind, in every way.
pipeline::Model wide_model() {
  kernels::LayerSpec spec;
  spec.name = "wide";
  spec.in_channels = spec.out_channels = 1;
  spec.kernel_size = 5;
  spec.padding = kernels::Padding::kSame;
  spec.activation = kernels::Activation::kIdentity;
  return model_of(spec, {0.1, 0.2, 0.3, 0.5, 0.7});
}

struct LiveRun {
  std::vector<float> output;
  std::vector<HandledGap> gaps;
  SessionReport report;
};

// `before`, a gap and `behind`, through the wide model.
LiveRun run_over_gap(std::vector<float> before, const Gap& gap, std::vector<float> behind, SessionSpec spec,
                     std::int64_t chunk_frames, std::vector<pipeline::StageEntry> stages = {}) {
  std::atomic<bool> stop{false};
  ScriptedSource source(
      {{.frames = std::move(before)}, {.gap = gap}, {.frames = std::move(behind)}, {.then = [&] { stop = true; }}},
      1000);
  pipeline::PipelineSpec setup = pipeline_spec(chunk_frames);
  setup.stages = std::move(stages);
  pipeline::Pipeline pipeline(wide_model(), setup);
  std::vector<Recording> recordings(1);
  spec.stop = &stop;
  SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
  return {recordings[0].samples, recordings[0].gaps, std::move(report)};
}

SessionSpec on_gap(pipeline::OnGap policy, std::int64_t max_fill_frames = 100) {
  SessionSpec spec;
  spec.input.on_gap = policy;
  spec.max_fill_frames = max_fill_frames;
  return spec;
}

// What is not marked depends on one side alone; what is marked, on both.
TEST(Session, GoesOnAcrossAGapAndMarksWhatSawBothSides) {
  for (const std::int64_t chunk_frames : {1, 4, 64}) {
    const SessionSpec spec = on_gap(pipeline::OnGap::kMark);
    const Gap gap{.frames_lost = 9};
    const LiveRun run = run_over_gap(counted_from(1, 20), gap, counted_from(30, 20), spec, chunk_frames);
    const LiveRun other_before = run_over_gap(counted_from(101, 20), gap, counted_from(30, 20), spec, chunk_frames);
    const LiveRun other_behind = run_over_gap(counted_from(1, 20), gap, counted_from(130, 20), spec, chunk_frames);
    ASSERT_EQ(run.gaps.size(), 1U);
    EXPECT_EQ(run.gaps[0].action, pipeline::OnGap::kMark);
    EXPECT_EQ(run.gaps[0].at_frame, 20);
    EXPECT_EQ(run.gaps[0].first_frame, 18);
    EXPECT_EQ(run.gaps[0].frames, 4);
    EXPECT_EQ(run.report.frames_marked, 4);
    EXPECT_EQ(run.report.frames_filled, 0);
    ASSERT_EQ(run.output.size(), 40U);
    for (std::size_t frame = 0; frame < 40; ++frame) {
      EXPECT_EQ(run.output[frame] != other_before.output[frame], frame < 22) << frame;
      EXPECT_EQ(run.output[frame] != other_behind.output[frame], frame >= 18) << frame;
    }
  }
}

TEST(Session, MarksWhatTheStagesMakeOfIt) {
  const SessionSpec spec = on_gap(pipeline::OnGap::kMark);
  // Engine frames 18 to 21 are in windows 3 (15 to 19) and 4 (20 to 24).
  const LiveRun run = run_over_gap(counted_from(1, 20), {.frames_lost = 9}, counted_from(30, 20), spec, 4,
                                   {{"decimate", pipeline::decimate_stage({.factor = 5})}});
  ASSERT_EQ(run.gaps.size(), 1U);
  EXPECT_EQ(run.gaps[0].first_frame, 3);
  EXPECT_EQ(run.gaps[0].frames, 2);
  EXPECT_EQ(run.report.frames_marked, 2);
  EXPECT_EQ(run.report.frames_out, 8);
}

TEST(Session, MarksFromWhereAGapThatIsFoundLateMayHaveBeen) {
  const LiveRun run = run_over_gap(counted_from(1, 20), {.frames_lost = 9, .frames_late = 6}, counted_from(30, 20),
                                   on_gap(pipeline::OnGap::kMark), 4);
  ASSERT_EQ(run.gaps.size(), 1U);
  EXPECT_EQ(run.gaps[0].first_frame, 12);
  EXPECT_EQ(run.gaps[0].frames, 10);
}

TEST(Session, CountsNoMarksBehindItsEnd) {
  const LiveRun run = run_over_gap(counted_from(1, 20), {.frames_lost = 9}, {30}, on_gap(pipeline::OnGap::kMark), 4);
  EXPECT_EQ(run.gaps.at(0).frames, 4);
  EXPECT_EQ(run.report.frames_out, 21);
  EXPECT_EQ(run.report.frames_marked, 3);
}

TEST(Session, FillsAGapWithZeros) {
  for (const std::int64_t chunk_frames : {1, 4, 64}) {
    const LiveRun run = run_over_gap(counted_from(1, 20), {.frames_lost = 7, .frames_dropped = 3}, counted_from(31, 20),
                                     on_gap(pipeline::OnGap::kFill), chunk_frames);
    std::vector<float> input = counted_from(1, 50);
    std::fill_n(input.begin() + 20, 10, 0.0F);
    ScriptedSource whole({{.frames = input}}, 1000);
    pipeline::Pipeline pipeline(wide_model(), pipeline_spec(8));
    std::vector<Recording> recordings(1);
    SessionSpec spec;
    spec.max_frames = 50;
    run_session(whole, pipeline, sinks_into(recordings, 1), spec);
    EXPECT_EQ(run.output, recordings[0].samples) << "output frames are in step with time";
    EXPECT_EQ(run.report.frames_in, 50);
    EXPECT_EQ(run.report.frames_filled, 10);
    ASSERT_EQ(run.gaps.size(), 1U);
    EXPECT_EQ(run.gaps[0].frames_filled, 10);
    EXPECT_EQ(run.gaps[0].first_frame, 18);
    EXPECT_EQ(run.gaps[0].frames, 14);
    EXPECT_EQ(run.report.frames_marked, 14);
  }
}

TEST(Session, BeginsAgainBehindAGapThatIsTooLongToFill) {
  for (const std::int64_t lost : {100, 101}) {
    const LiveRun run = run_over_gap(counted_from(1, 20), {.frames_lost = lost}, counted_from(31, 20),
                                     on_gap(pipeline::OnGap::kFill, 100), 8);
    ASSERT_EQ(run.gaps.size(), 1U);
    EXPECT_EQ(run.gaps[0].action, lost == 100 ? pipeline::OnGap::kFill : pipeline::OnGap::kReset);
    EXPECT_EQ(run.report.frames_filled, lost == 100 ? 100 : 0);
    EXPECT_EQ(run.report.frames_out, lost == 100 ? 140 : 40);
  }
}

// A live source of 1000 frames a second, the value of each its number; frames 101 to 150 never come.
class GappedSource final : public Source {
 public:
  explicit GappedSource(const test::WoundClock& clock) : clock_(clock), start_(clock.now()) {
    info_.channels = 1;
    info_.rate_hz = 1000;
    info_.is_live = true;
  }

  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    if (at_ == 100) return 0;
    while (made() <= at_) clock_.wind(std::chrono::milliseconds(1));
    const std::int64_t count = std::min({frames, made() - at_, at_ < 100 ? 100 - at_ : frames});
    std::iota(samples, samples + count, static_cast<float>(at_ + 1));
    at_ += count;
    return count;
  }
  Gap take_gap() override {
    if (at_ != 100) return {};
    at_ = 150;
    while (made() < at_) clock_.wind(std::chrono::milliseconds(1));
    return {.frames_lost = 50};
  }
  std::optional<pipeline::Instant> capture_time() const override { return start_ + std::chrono::milliseconds(at_); }

 private:
  std::int64_t made() const { return (clock_.now() - start_) / std::chrono::milliseconds(1); }

  const test::WoundClock& clock_;
  pipeline::Instant start_;
  SourceInfo info_;
  std::int64_t at_ = 0;
};

// What is made up for a gap is late, and counts as that; but it is no reason to throw anything away, or to stop.
TEST(Session, FillsAGapWhateverTheBudget) {
  for (const pipeline::OnMiss on_miss :
       {pipeline::OnMiss::kCount, pipeline::OnMiss::kSkipToLatest, pipeline::OnMiss::kStop}) {
    const test::WoundClock clock;
    GappedSource source(clock);
    pipeline::PipelineSpec setup = pipeline_spec(10);
    setup.clock = &clock;
    pipeline::Pipeline pipeline(identity_model(1), setup);
    std::vector<Recording> recordings(1);
    SessionSpec spec = on_gap(pipeline::OnGap::kFill);
    spec.latency = {.budget_ms = 20, .on_miss = on_miss, .miss_after = 1};
    spec.max_frames = 400;
    const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
    std::vector<float> expected = counted(400);
    std::fill_n(expected.begin() + 100, 50, 0.0F);
    EXPECT_EQ(recordings[0].samples, expected);
    EXPECT_EQ(report.frames_filled, 50);
    EXPECT_EQ(report.frames_skipped, 0);
    // At 150 ms, of the chunks that were to be captured at 110, 120, ... 150.
    EXPECT_EQ(report.latency.figures(pipeline::LatencyPart::kWhole).misses, 2U);
  }
}

// Behind a reset both are counted from there, in input and output.
TEST(Session, MarksInAStreamThatBeganBehindAReset) {
  std::atomic<bool> stop{false};
  ScriptedSource source({{.frames = counted_from(1, 23)},
                         {.gap = {.frames_lost = 1000}},
                         {.frames = counted_from(1, 20)},
                         {.gap = {.frames_lost = 10}},
                         {.frames = counted_from(1, 20)},
                         {.then = [&] { stop = true; }}},
                        1000);
  pipeline::PipelineSpec setup = pipeline_spec(4);
  setup.stages = {{"decimate", pipeline::decimate_stage({.factor = 5})}};
  pipeline::Pipeline pipeline(wide_model(), setup);
  std::vector<Recording> recordings(1);
  SessionSpec spec = on_gap(pipeline::OnGap::kFill);
  spec.stop = &stop;
  const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
  ASSERT_EQ(recordings[0].gaps.size(), 2U);
  // 23 frames make 5; the engine's 18 to 31 behind them are in windows 3 to 6.
  EXPECT_EQ(recordings[0].gaps[0].first_frame, 5);
  EXPECT_EQ(recordings[0].gaps[1].at_frame, 43);
  EXPECT_EQ(recordings[0].gaps[1].first_frame, 5 + 3);
  EXPECT_EQ(recordings[0].gaps[1].frames, 4);
  EXPECT_EQ(report.frames_marked, 4);
  EXPECT_EQ(report.frames_out, 5 + 10);
}

TEST(Session, FillsNoMoreThanItIsToTake) {
  SessionSpec spec = on_gap(pipeline::OnGap::kFill);
  spec.max_frames = 26;
  const LiveRun run = run_over_gap(counted_from(1, 20), {.frames_lost = 50}, counted_from(31, 20), spec, 8);
  EXPECT_EQ(run.report.frames_in, 26);
  EXPECT_EQ(run.report.frames_out, 26);
  EXPECT_EQ(run.report.frames_filled, 6);
}

TEST(Session, CleansItsInputAsAskedAndCountsInAnyCase) {
  std::vector<float> input = counted_from(1, 100);
  input[0] = NAN;
  input[50] = INFINITY;
  input[51] = -3e38F;
  for (const pipeline::OnInvalid policy :
       {pipeline::OnInvalid::kPass, pipeline::OnInvalid::kHold, pipeline::OnInvalid::kZero}) {
    for (const bool live : {false, true}) {
      ScriptedSource source({{.frames = input}}, 1000, live);
      pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(8));
      std::vector<Recording> recordings(1);
      SessionSpec spec;
      spec.input.on_invalid = policy;
      spec.max_frames = 100;
      const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
      EXPECT_EQ(report.invalid.nan, 1U);
      EXPECT_EQ(report.invalid.infinite, 1U);
      EXPECT_EQ(report.invalid.too_large, 1U);
      std::vector<float> expected = input;
      expected[0] = 0;
      expected[50] = expected[51] = policy == pipeline::OnInvalid::kHold ? 50.0F : 0.0F;
      ASSERT_EQ(recordings[0].samples.size(), 100U);
      if (policy == pipeline::OnInvalid::kPass) {
        EXPECT_TRUE(std::isnan(recordings[0].samples[0]));
      } else {
        EXPECT_EQ(recordings[0].samples, expected);
      }
    }
  }
}

// The sample before a NaN is what stood before it in the stream, which goes on across a gap that is marked.
TEST(Session, HoldsTheSampleBeforeOfTheStream) {
  for (const pipeline::OnGap policy : {pipeline::OnGap::kReset, pipeline::OnGap::kMark, pipeline::OnGap::kFill}) {
    std::atomic<bool> stop{false};
    ScriptedSource source(
        {{.frames = {1, 2}}, {.gap = {.frames_lost = 1}}, {.frames = {NAN, 4}}, {.then = [&] { stop = true; }}}, 1000);
    pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(1));
    std::vector<Recording> recordings(1);
    SessionSpec spec = on_gap(policy);
    spec.input.on_invalid = pipeline::OnInvalid::kHold;
    spec.stop = &stop;
    run_session(source, pipeline, sinks_into(recordings, 1), spec);
    const std::vector<float> expected = policy == pipeline::OnGap::kReset  ? std::vector<float>{1, 2, 0, 4}
                                        : policy == pipeline::OnGap::kMark ? std::vector<float>{1, 2, 2, 4}
                                                                           : std::vector<float>{1, 2, 0, 0, 4};
    EXPECT_EQ(recordings[0].samples, expected) << pipeline::to_string(policy);
  }
}

TEST(Session, KeepsWhatCameBeforeTheDeviceFailed) {
  ScriptedSource source({{.frames = counted_from(1, 100)},
                         {.then = [] { throw pipeline::DeviceError("the microphone was pulled out"); }}},
                        1000);
  pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(16));
  std::vector<Recording> recordings(1);
  std::optional<SessionReport> failed;
  SessionSpec spec;
  spec.failed = &failed;
  expect_error<pipeline::DeviceError>([&] { run_session(source, pipeline, sinks_into(recordings, 1), spec); },
                                      {"the microphone was pulled out"});
  ASSERT_TRUE(failed) << "the report, all the same";
  EXPECT_EQ(failed->frames_out, 100);
  EXPECT_EQ(failed->ring.frames_in, 100U);
  EXPECT_EQ(failed->played.size(), 1U);
  EXPECT_TRUE(recordings[0].finished);
  EXPECT_EQ(recordings[0].samples.size(), 100U);
}

// An embedder's thread is its own again behind the run, also when the run fails.
TEST(Session, BorrowsNameAndSchedulingOfTheCallersThread) {
  for (const bool fails : {false, true}) {
    std::thread([fails] {
      pthread_setname_np(pthread_self(), "embedder");
      cpu_set_t before;
      pthread_getaffinity_np(pthread_self(), sizeof(before), &before);
      int cpu = 0;
      while (!CPU_ISSET(cpu, &before)) ++cpu;
      CountingSource source(100, 1, 1);
      pipeline::PipelineSpec setup = pipeline_spec(8);
      setup.worker_threads = 2;
      pipeline::Pipeline pipeline(identity_model(1), setup);
      Recording recording;
      auto sink = std::make_unique<RecordingSink>(recording, 1);
      bool is_pinned = false;
      std::vector<std::string> names;
      sink->on_write = [&] {
        cpu_set_t now;
        pthread_getaffinity_np(pthread_self(), sizeof(now), &now);
        is_pinned = CPU_COUNT(&now) == 1 && CPU_ISSET(cpu, &now);
        names.clear();
        for (const ThreadInfo& thread : threads()) names.push_back(thread.name);
        if (fails) throw DataError("disk full");
      };
      std::vector<std::unique_ptr<Sink>> sinks;
      sinks.push_back(std::move(sink));
      SessionSpec spec;
      spec.realtime = {.priority = 3, .cpus = {cpu}};
      if (fails) {
        EXPECT_THROW(run_session(source, pipeline, sinks, spec), DataError);
      } else {
        const SessionReport report = run_session(source, pipeline, sinks, spec);
        EXPECT_EQ(report.realtime.cpus, std::vector<int>{cpu});
      }
      EXPECT_TRUE(is_pinned);
      EXPECT_EQ(std::count(names.begin(), names.end(), "halotap-session"), 1);
      EXPECT_EQ(std::count(names.begin(), names.end(), "halotap-engine"), 2);
      cpu_set_t after;
      pthread_getaffinity_np(pthread_self(), sizeof(after), &after);
      EXPECT_TRUE(CPU_EQUAL(&before, &after));
      EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
      char name[16];
      pthread_getname_np(pthread_self(), name, sizeof(name));
      EXPECT_STREQ(name, "embedder");
    }).join();
  }
}

// Takes some frames; then its device is gone.
class LostSink final : public Sink {
 public:
  explicit LostSink(std::int64_t frames) : frames_left_(frames) {}
  void write(const float*, std::int64_t frames) override {
    EXPECT_FALSE(is_lost_) << "given frames behind its end";
    frames_left_ -= frames;
    is_lost_ = frames_left_ < 0;
    if (is_lost_) throw pipeline::DeviceError("the loudspeaker was pulled out");
  }
  void finish() override {
    EXPECT_FALSE(is_lost_);
    if (frames_left_ == 0) throw pipeline::DeviceError("the loudspeaker went silent");
  }

 private:
  std::int64_t frames_left_;
  bool is_lost_ = false;
};

TEST(Session, KeepsTheOtherSinksResultsWhenTheDeviceOfOneFails) {
  for (const bool is_live : {true, false}) {
    std::vector<LiveEvent> events;
    for (std::int64_t block = 0; block < 5; ++block) events.push_back({.frames = counted_from(1 + 100 * block, 100)});
    ScriptedSource live(std::move(events), 1000);
    CountingSource recording(500, 1, 1);
    Source& source = is_live ? static_cast<Source&>(live) : recording;
    pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(20));
    std::vector<Recording> recordings(2);
    std::vector<std::unique_ptr<Sink>> sinks = sinks_into(recordings, 1);
    sinks.insert(sinks.begin() + 1, std::make_unique<LostSink>(150));
    expect_error<pipeline::DeviceError>([&] { run_session(source, pipeline, sinks, {}); },
                                        {"the loudspeaker was pulled out"});
    for (const Recording& kept : recordings) {
      EXPECT_TRUE(kept.finished) << is_live;
      EXPECT_GT(kept.samples.size(), 150U) << is_live;
      EXPECT_EQ(kept.samples.size(), recordings[0].samples.size());
    }
    EXPECT_LT(recordings[0].samples.size(), 500U) << "the run ends there";
  }
}

TEST(Session, FinishesTheOtherSinksWhenTheDeviceOfOneFailsAtTheEnd) {
  CountingSource recording(500, 1, 1);
  pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(20));
  std::vector<Recording> recordings(1);
  std::vector<std::unique_ptr<Sink>> sinks = sinks_into(recordings, 1);
  sinks.insert(sinks.begin(), std::make_unique<LostSink>(500));
  expect_error<pipeline::DeviceError>([&] { run_session(recording, pipeline, sinks, {}); },
                                      {"the loudspeaker went silent"});
  EXPECT_TRUE(recordings[0].finished);
  EXPECT_EQ(recordings[0].samples.size(), 500U);
}

// Under ThreadSanitizer: the device's thread, the keeper's and the session's, begun and ended again and again.
TEST(Session, StartsAndStopsOverALiveDeviceManyTimesInARow) {
  for (int i = 0; i < 30; ++i) {
    const auto device = std::make_shared<FakeDevice>();
    device->capture = std::make_shared<Capture>(1, 4000, 64);
    SourceInfo info;
    info.channels = 1;
    info.rate_hz = 4000;
    info.is_live = true;
    LiveSource source(info, device->capture, std::make_unique<DeviceKeeper>(fake_keeper(device)), "fake",
                      std::chrono::milliseconds(1));
    pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(3));
    std::vector<Recording> recordings(1);
    SessionSpec spec;
    spec.max_frames = i % 8;
    const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
    EXPECT_EQ(report.frames_in, i % 8);
    EXPECT_EQ(report.frames_out, i % 8);
  }
}

// Under ThreadSanitizer: stopped by another thread at any moment, while a third reads its telemetry and the device
// comes and goes.
TEST(Session, IsStoppedAtAnyMoment) {
  std::mt19937 random(8);
  for (int i = 0; i < 40; ++i) {
    const auto device = std::make_shared<FakeDevice>();
    device->capture = std::make_shared<Capture>(1, 4000, 32);
    SourceInfo info;
    info.channels = 1;
    info.rate_hz = 4000;
    info.is_live = true;
    LiveSource source(info, device->capture, std::make_unique<DeviceKeeper>(fake_keeper(device)), "fake",
                      std::chrono::milliseconds(1));
    pipeline::PipelineSpec setup = pipeline_spec(3);
    setup.worker_threads = i % 3;
    pipeline::Pipeline pipeline(look_ahead_model(1), setup);
    std::vector<Recording> recordings(1);
    std::atomic<bool> stop{false};
    PublishedTelemetry telemetry;
    SessionSpec spec;
    spec.stop = &stop;
    spec.telemetry = &telemetry;
    spec.input.on_gap = static_cast<pipeline::OnGap>(i % 3);
    spec.max_fill_frames = 32;
    spec.realtime.cpus = {0};
    const std::chrono::microseconds moment(random() % 6000);
    const bool device_fails = i % 4 == 0;
    std::thread stopper([&] {
      std::this_thread::sleep_for(moment / 2);
      if (device_fails) device->claims_active = false;
      std::this_thread::sleep_for(moment / 2);
      device->claims_active = true;
      stop = true;
    });
    std::thread reader([&] {
      while (!stop) {
        const SessionTelemetry told = telemetry.load();
        EXPECT_LE(told.frames_filled, told.frames_in);
        std::this_thread::yield();
      }
    });
    const SessionReport report = run_session(source, pipeline, sinks_into(recordings, 1), spec);
    stopper.join();
    reader.join();
    EXPECT_TRUE(report.stopped);
    EXPECT_EQ(report.frames_in, report.frames_out);
    EXPECT_TRUE(recordings[0].finished);
  }
}

#ifdef HALOTAP_HAVE_SOXR
// Likewise between two devices.
TEST(Session, StartsAndStopsBetweenTwoLiveDevicesManyTimesInARow) {
  for (int i = 0; i < 20; ++i) {
    const auto microphone = std::make_shared<FakeDevice>();
    microphone->capture = std::make_shared<Capture>(1, 4000, 64);
    SourceInfo info;
    info.channels = 1;
    info.rate_hz = 4000;
    info.is_live = true;
    LiveSource source(info, microphone->capture, std::make_unique<DeviceKeeper>(fake_keeper(microphone)), "microphone",
                      std::chrono::milliseconds(1));
    const auto loudspeaker = std::make_shared<FakeDevice>();
    loudspeaker->playback = std::make_shared<Playback>(1, 400, 8);
    LiveSinkSpec sink;
    sink.name = "loudspeaker";
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<LiveSink>(
        std::move(sink), loudspeaker->playback,
        std::make_unique<DriftCorrector>(DriftCorrector::Spec{1, 4000, 8}, loudspeaker->playback),
        std::make_unique<DeviceKeeper>(fake_keeper(loudspeaker))));
    pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(3));
    SessionSpec spec;
    spec.max_frames = 4 * (i % 8);
    const SessionReport report = run_session(source, pipeline, sinks, spec);
    EXPECT_EQ(report.frames_out, 4 * (i % 8));
    ASSERT_TRUE(report.played.at(0).has_value());
    EXPECT_EQ(report.played[0]->frames_in, 4U * static_cast<unsigned>(i % 8));
  }
}
#endif

TEST(Session, RefusesToPaceALiveSource) {
  ScriptedSource source({}, 1000);
  pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(16));
  SessionSpec spec;
  spec.speed = 1;
  expect_error<ConfigError>([&] { run_session(source, pipeline, {}, spec); }, {"speed", "live source"});
}

// Plays at a pace of its own.
class PacedSink final : public Sink {
 public:
  bool sets_pace() const override { return true; }
  void write(const float*, std::int64_t) override {}
  void finish() override {}
};

TEST(Session, RefusesToJoinTwoClocks) {
  pipeline::Pipeline pipeline(identity_model(1), pipeline_spec(16));
  std::vector<std::unique_ptr<Sink>> sinks;
  sinks.push_back(std::make_unique<PacedSink>());
  ScriptedSource live({}, 1000);
  expect_error<ConfigError>([&] { run_session(live, pipeline, sinks, {}); }, {"two clocks"});
  CountingSource recording(100, 1, 1);
  SessionSpec spec;
  spec.speed = 1;
  expect_error<ConfigError>([&] { run_session(recording, pipeline, sinks, spec); }, {"speed", "live sink"});
  EXPECT_EQ(run_session(recording, pipeline, sinks, {}).frames_out, 100);
}

TEST(Session, RefusesWhatDoesNotFitTogether) {
  pipeline::Pipeline pipeline(identity_model(2), pipeline_spec(16, 3));
  const auto run = [&](CountingSource source, const SessionSpec& spec) { run_session(source, pipeline, {}, spec); };
  expect_error<ConfigError>([&] { run({10, 3, 1}, {}); }, {"2 channels", "has 1"});
  expect_error<ConfigError>([&] { run({10, 1, 2}, {}); }, {"3 streams", "has 1"});
  SessionSpec spec;
  for (const double speed : {0.0, -1.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    spec.speed = speed;
    expect_error<ConfigError>([&] { run({10, 3, 2}, spec); }, {"speed", "positive"});
  }
  spec.speed = 1;
  expect_error<ConfigError>([&] { run({10, 3, 2, 0}, spec); }, {"speed", "rate"});
}

}  // namespace
}  // namespace halotap::io
