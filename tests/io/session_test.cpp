#include "halotap/io/session.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
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
  std::vector<std::pair<Gap, std::int64_t>> told;
  SessionSpec spec;
  spec.max_frames = 31;
  spec.on_gap = [&](const Gap& gap, std::int64_t frame) { told.emplace_back(gap, frame); };
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
  EXPECT_EQ(told[0].second, 21);
  EXPECT_EQ(told[0].first.frames_lost, 100);
  EXPECT_TRUE(told[1].first.is_reopening);
}

TEST(Session, KeepsWhatCameBeforeTheDeviceFailed) {
  ScriptedSource source({{.frames = counted_from(1, 100)},
                         {.then = [] { throw pipeline::DeviceError("the microphone was pulled out"); }}},
                        1000);
  pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec(16));
  std::vector<Recording> recordings(1);
  expect_error<pipeline::DeviceError>([&] { run_session(source, pipeline, sinks_into(recordings, 1), {}); },
                                      {"the microphone was pulled out"});
  EXPECT_TRUE(recordings[0].finished);
  EXPECT_EQ(recordings[0].samples.size(), 100U);
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
