// A session against its latency budget, on a clock that these tests wind.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "expect_error.hpp"
#include "halotap/io/session.hpp"
#include "halotap/pipeline/built_in_stages.hpp"
#include "halotap/pipeline/errors.hpp"
#include "live/capture.hpp"
#include "session/session_parts.hpp"

namespace halotap::io {
namespace {

using namespace std::chrono_literals;
using pipeline::ConfigError;
using pipeline::LatencyPart;
using pipeline::OnMiss;

constexpr std::int64_t kChunkFrames = 10;  // of 1 ms each

// Chunks of 10 ms into one sink, in which the clock is wound.
class SessionLatency : public testing::Test {
 protected:
  SessionLatency() {
    spec_.max_frames = 1000;
    spec_.latency.budget_ms = 45;
    spec_.latency.miss_after = 2;
    spec_.latency.recover_after = 3;
    spec_.on_gap = [this](const HandledGap& gap) {
      if (gap.frames_skipped > 0) skips_.emplace_back(gap.frames_skipped, gap.at_frame);
    };
  }

  // The sink takes `time` with the chunk that begins with frame 20.
  void stall_once(std::chrono::nanoseconds time) {
    on_write_ = [this, time] {
      if (static_cast<std::int64_t>(recording_.samples.size()) == 30 && !std::exchange(stalled_, true)) {
        clock_.wind(time);
      }
    };
  }

  SessionReport run(Source& source, const pipeline::Model& model = identity_model(1),
                    const std::vector<pipeline::StageEntry>& stages = {}) {
    pipeline::PipelineSpec spec = pipeline_spec(chunk_frames_);
    spec.clock = &clock_;
    spec.stages = stages;
    pipeline::Pipeline pipeline(model, spec);
    auto sink = std::make_unique<RecordingSink>(recording_, 1);
    sink->on_write = [this] { on_write_(); };
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::move(sink));
    return run_session(source, pipeline, sinks, spec_);
  }
  SessionReport run_live() {
    spec_.speed = std::nullopt;
    ClockedSource source(clock_, 1000);
    return run(source);
  }
  SessionReport run_paced() {
    CountingSource source(1000, 1, 1);
    spec_.speed = 1;
    return run(source);
  }

  std::int64_t chunk_frames_ = kChunkFrames;
  test::WoundClock clock_;
  SessionSpec spec_;
  std::function<void()> on_write_ = [] {};
  bool stalled_ = false;
  Recording recording_;
  std::vector<std::pair<std::int64_t, std::int64_t>> skips_;
};

constexpr std::chrono::nanoseconds kRounding{1};  // of a paced frame's instant

void expect_only(const pipeline::LatencyFigures& figures, std::uint64_t chunks, std::chrono::nanoseconds time) {
  EXPECT_EQ(figures.chunks, chunks);
  EXPECT_GE(figures.p50_ns, time.count());
  EXPECT_NEAR(static_cast<double>(figures.max_ns), static_cast<double>(time.count()), 1);
}

TEST_F(SessionLatency, IsMeasuredFromTheCaptureOfAChunksLastFrameToItsHandOver) {
  for (const bool live : {false, true}) {
    recording_ = {};
    on_write_ = [this] { clock_.wind(2ms); };
    const SessionReport report = live ? run_live() : run_paced();
    const auto figures = [&report](LatencyPart part) { return report.latency.figures(part); };
    expect_only(figures(LatencyPart::kSource), 100, 0ms);
    expect_only(figures(LatencyPart::kEngine), 100, 0ms);
    expect_only(figures(LatencyPart::kStages), 100, 0ms);
    expect_only(figures(LatencyPart::kSinks), 100, 2ms);
    expect_only(figures(LatencyPart::kWhole), 100, 2ms);
    EXPECT_EQ(figures(LatencyPart::kWhole).misses, 0u);
  }
}

// A stage that takes as long as a test says.
class SlowStage final : public pipeline::Stage {
 public:
  SlowStage(const test::WoundClock& clock, std::chrono::nanoseconds time) : clock_(clock), time_(time) {}
  pipeline::StageOutput prepare(const pipeline::StageFormat& input) override { return {.channels = input.channels}; }
  bool process(const float* frame, float* result, pipeline::EventList&) noexcept HALOTAP_NONBLOCKING override {
    *result = *frame;
    clock_.wind(time_);
    return true;
  }
  void reset() noexcept HALOTAP_NONBLOCKING override {}

 private:
  const test::WoundClock& clock_;
  std::chrono::nanoseconds time_;
};

TEST_F(SessionLatency, IsToldByPartsThatAddUp) {
  const std::vector<pipeline::StageEntry> slow{
      {"slow", [this] { return std::make_unique<SlowStage>(clock_, std::chrono::microseconds(300)); }}};
  on_write_ = [this] { clock_.wind(2ms); };
  spec_.latency.budgets.stages_ms = 2.9;
  spec_.latency.budgets.sinks_ms = 2;
  ClockedSource source(clock_, 1000);
  const SessionReport report = run(source, identity_model(1), slow);
  // 10 frames of 0.3 ms. The next chunk's frames are looked for every millisecond, 10 of them from the last look on.
  expect_only(report.latency.figures(LatencyPart::kStages), 100, 3ms);
  EXPECT_EQ(report.latency.figures(LatencyPart::kStages).misses, 100u);
  EXPECT_EQ(report.latency.figures(LatencyPart::kSinks).misses, 0u);
  expect_only(report.latency.figures(LatencyPart::kWhole), 100, 5ms);
}

// Coordinated omission: chunks that came during a stall of 100 ms were late too, by 90, 80, 70 ... ms.
TEST_F(SessionLatency, CountsAStallAgainstEveryChunkThatItDelays) {
  for (const bool live : {false, true}) {
    recording_ = {};
    stalled_ = false;
    stall_once(100ms);
    const SessionReport report = live ? run_live() : run_paced();
    const pipeline::LatencyFigures whole = report.latency.figures(LatencyPart::kWhole);
    EXPECT_EQ(whole.max_ns, 100'000'000) << live;
    EXPECT_EQ(whole.misses, 6u) << live;  // 100, 90, 80, 70, 60, 50
    EXPECT_LE(report.latency.times(LatencyPart::kWhole).quantile(0.9), kRounding) << live;
    EXPECT_GE(report.latency.times(LatencyPart::kWhole).quantile(0.91), 10ms) << live;
    EXPECT_EQ(report.latency.figures(LatencyPart::kSource).max_ns, 90'000'000) << live;
    EXPECT_EQ(recording_.samples, counted(1000)) << "count changes nothing";
  }
}

TEST_F(SessionLatency, IsMeasuredAnewBehindAGap) {
  // The device is away for 3 s, and 50 frames count from its return.
  class GappedSource final : public Source {
   public:
    explicit GappedSource(const test::WoundClock& clock) : clock_(clock), inner_(clock, 1000) {}
    const SourceInfo& info() const override { return inner_.info(); }
    using Source::read;
    std::int64_t read(float* samples, std::int64_t frames) override {
      if (at_ == 50) return 0;
      const std::int64_t got = inner_.read(samples, std::min<std::int64_t>(frames, 1));
      at_ += got;
      captured_ = clock_.now();
      return got;
    }
    Gap take_gap() override {
      if (at_ != 50) return {};
      clock_.wind(3s);
      ++at_;
      return {.frames_lost = 3000};
    }
    std::optional<pipeline::Instant> capture_time() const override { return captured_; }

   private:
    const test::WoundClock& clock_;
    ClockedSource inner_;
    std::int64_t at_ = 0;
    pipeline::Instant captured_;
  } source(clock_);
  spec_.max_frames = 100;
  const SessionReport report = run(source);
  EXPECT_EQ(report.gaps, 1);
  expect_only(report.latency.figures(LatencyPart::kWhole), 10, 0ms);
}

// A device of 48 kHz with blocks of 10 ms, of which `ring_blocks` may wait.
class CapturedSource final : public Source {
 public:
  CapturedSource(const test::WoundClock& clock, std::int64_t ring_blocks)
      : capture(1, 48000, ring_blocks * 480), clock_(clock), next_block_(clock.now() + 10ms) {
    info_.channels = 1;
    info_.rate_hz = 48000;
    info_.is_live = true;
  }

  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    if (capture.waiting_frames() == 0 && clock_.now() < next_block_) clock_.wind(next_block_ - clock_.now());
    for (; clock_.now() >= next_block_; next_block_ += 10ms) {
      capture.on_block(block_.data(), 480, next_block_.time_since_epoch().count(), false);
    }
    return capture.read(samples, frames);
  }
  Gap take_gap() override { return capture.take_gap(); }
  std::optional<pipeline::Instant> capture_time() const override {
    return pipeline::Instant(std::chrono::nanoseconds(capture.captured_ns()));
  }

  Capture capture;

 private:
  const test::WoundClock& clock_;
  pipeline::Instant next_block_;
  std::vector<float> block_ = std::vector<float>(480);
  SourceInfo info_;
};

// A stall of 1.5 s in front of a ring of 100 ms, whatever the policy.
TEST_F(SessionLatency, IsBackToNormalBehindARingThatOverflowed) {
  for (const OnMiss policy : {OnMiss::kCount, OnMiss::kHoldLast, OnMiss::kSkipToLatest}) {
    recording_ = {};
    stalled_ = false;
    chunk_frames_ = 240;
    spec_.max_frames = 5 * 48000;
    spec_.latency.on_miss = policy;
    PublishedTelemetry telemetry;
    spec_.telemetry = &telemetry;
    on_write_ = [this] {
      if (recording_.samples.size() == 48000 && !std::exchange(stalled_, true)) clock_.wind(1500ms);
    };
    CapturedSource source(clock_, 10);
    const SessionReport report = run(source);
    EXPECT_GE(report.latency.figures(LatencyPart::kWhole).max_ns, 1'500'000'000) << to_string(policy);
    EXPECT_GE(report.latency.figures(LatencyPart::kWhole).misses, 2u);
    EXPECT_LE(report.latency.times(LatencyPart::kWhole).quantile(0.95), 5100us) << to_string(policy);
    EXPECT_LE(telemetry.load().latest_ns, 5'001'000);
    EXPECT_EQ(telemetry.load().is_missing, 0);
    const CaptureCounters device = source.capture.counters();
    EXPECT_GE(report.missing.frames_dropped, 1400 * 48);
    EXPECT_EQ(static_cast<std::uint64_t>(report.missing.frames_dropped), device.frames_dropped);
    EXPECT_EQ(
        report.frames_in + report.frames_skipped + report.missing.frames_dropped + source.capture.waiting_frames(),
        static_cast<std::int64_t>(device.frames_delivered));
    EXPECT_EQ(report.frames_out, report.frames_in);
  }
}

TEST_F(SessionLatency, OfAReplayWithoutAPaceIsOnlyThatOfItsParts) {
  CountingSource source(1000, 1, 1);
  spec_.latency = {};
  const SessionReport report = run(source);
  EXPECT_EQ(report.latency.figures(LatencyPart::kEngine).chunks, 100u);
  EXPECT_EQ(report.latency.figures(LatencyPart::kSinks).chunks, 100u);
  EXPECT_EQ(report.latency.figures(LatencyPart::kSource).chunks, 0u);
  EXPECT_EQ(report.latency.figures(LatencyPart::kWhole).chunks, 0u);
}

TEST_F(SessionLatency, CannotBeBudgetedWhereNoFrameHasAnInstant) {
  CountingSource source(1000, 1, 1);
  expect_error<ConfigError>([&] { run(source); }, {"latency.budget_ms", "live source or a paced recording"});
}

// 300 ms of stall: chunks 300 and 290 ms old are late on end. What can be on time then is at most 45 ms old: all but 55
// of the 290 frames that wait, for a chunk's last frame counts. 235 are 23 chunks and a half.
TEST_F(SessionLatency, SkipsToTheLatestFramesAndCountsWhatItSkips) {
  spec_.latency.on_miss = OnMiss::kSkipToLatest;
  for (const bool live : {false, true}) {
    recording_ = {};
    stalled_ = false;
    skips_.clear();
    stall_once(300ms);
    const SessionReport report = live ? run_live() : run_paced();
    EXPECT_EQ(skips_, (std::vector<std::pair<std::int64_t, std::int64_t>>{{240, 40}})) << live;
    ASSERT_EQ(recording_.gaps.size(), 1u) << "sinks are told";
    EXPECT_EQ(recording_.gaps[0].frames_skipped, 240);
    EXPECT_EQ(recording_.gaps[0].first_frame, 40);
    EXPECT_EQ(report.skips, 1);
    EXPECT_EQ(report.frames_skipped, 240);
    EXPECT_EQ(report.frames_in + report.frames_skipped, 1000) << "every frame of the source, by cause";
    EXPECT_EQ(report.frames_out, report.frames_in);
    EXPECT_EQ(report.ring.frames_in, static_cast<std::uint64_t>(report.frames_in));
    EXPECT_EQ(report.ring.frames_in_flight, 0u);
    std::vector<float> expected = counted(1000);
    expected.erase(expected.begin() + 40, expected.begin() + 280);
    EXPECT_EQ(recording_.samples, expected) << live;
    // The first chunk behind the skip is in time: 40 ms old. The age is back to nothing soon after.
    EXPECT_EQ(report.latency.figures(LatencyPart::kWhole).misses, 2u) << live;
    EXPECT_LE(report.latency.times(LatencyPart::kWhole).quantile(0.9), kRounding) << live;
  }
}

// y[t] = x[t + 2], with zeros behind the end of what is one recording.
TEST_F(SessionLatency, BeginsAgainBehindWhatItSkipped) {
  spec_.latency.on_miss = OnMiss::kSkipToLatest;
  on_write_ = [this] {
    if (recording_.samples.size() == 28 && !std::exchange(stalled_, true)) clock_.wind(300ms);
  };
  ClockedSource source(clock_, 1000);
  const SessionReport report = run(source, look_ahead_model(1));
  std::vector<float> expected;
  for (float value = 3; value <= 40; ++value) expected.push_back(value);
  expected.insert(expected.end(), {0, 0});
  for (float value = 283; value <= 1000; ++value) expected.push_back(value);
  expected.insert(expected.end(), {0, 0});
  EXPECT_EQ(recording_.samples, expected);
  EXPECT_EQ(report.frames_out, report.frames_in);
}

TEST_F(SessionLatency, DoesNotBeginAgainWhereNothingIsTooOld) {
  spec_.latency.on_miss = OnMiss::kSkipToLatest;
  spec_.latency.budget_ms = 5;
  on_write_ = [this] { clock_.wind(6ms); };  // late, and yet faster than the frames come
  ClockedSource source(clock_, 1000);
  const SessionReport report = run(source, look_ahead_model(1));
  EXPECT_EQ(report.latency.figures(LatencyPart::kWhole).misses, 100u);
  EXPECT_EQ(report.skips, 0);
  std::vector<float> expected = counted(1000);
  expected.erase(expected.begin(), expected.begin() + 2);
  expected.insert(expected.end(), {0, 0});
  EXPECT_EQ(recording_.samples, expected);
}

// A sink that takes 60 ms for 10 ms of sound: no chunk is ever on time. Something comes out all the same, the newest.
TEST_F(SessionLatency, GoesOnWithTheNewestWhereNothingCanBeOnTime) {
  spec_.latency.on_miss = OnMiss::kSkipToLatest;
  std::int64_t oldest_ms = 0;
  on_write_ = [&] {
    clock_.wind(60ms);
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now().time_since_epoch() - 1h);
    if (recording_.samples.size() > 30) {
      oldest_ms = std::max(oldest_ms, now.count() - static_cast<std::int64_t>(recording_.samples.back()));
    }
  };
  PublishedTelemetry telemetry;
  spec_.telemetry = &telemetry;
  const SessionReport report = run_live();
  EXPECT_EQ(telemetry.load().is_missing, 1);
  EXPECT_EQ(telemetry.load().frames_skipped, report.frames_skipped);
  EXPECT_GE(report.frames_out, 1000 / 60 * kChunkFrames);
  EXPECT_EQ(report.frames_in + report.frames_skipped, 1000);
  EXPECT_EQ(report.frames_out, report.frames_in);
  EXPECT_LE(oldest_ms, 60 + 1);
}

// Every frame is too old already when it is read.
TEST_F(SessionLatency, GoesOnWithTheNewestChunkHoweverShortTheBudget) {
  chunk_frames_ = 1;
  spec_.latency.on_miss = OnMiss::kSkipToLatest;
  spec_.latency.budget_ms = 0.001;
  on_write_ = [this] { clock_.wind(std::chrono::microseconds(1700)); };
  const SessionReport report = run_live();
  EXPECT_GE(report.frames_out, 300);
  EXPECT_EQ(report.frames_in + report.frames_skipped, 1000);
}

TEST_F(SessionLatency, HoldsTheLastGoodFrameInPlaceOfLateOnes) {
  spec_.latency.on_miss = OnMiss::kHoldLast;
  for (const bool live : {false, true}) {
    recording_ = {};
    stalled_ = false;
    stall_once(300ms);
    const SessionReport report = live ? run_live() : run_paced();
    // 300 and 290 ms are late as they are; 280, 270 ... 50 ms are held.
    std::vector<float> expected = counted(1000);
    std::fill(expected.begin() + 40, expected.begin() + 280, 40.0F);
    EXPECT_EQ(recording_.samples, expected) << live;
    EXPECT_EQ(recording_.frames_held, 240);
    EXPECT_EQ(report.frames_held, 240);
    EXPECT_EQ(report.frames_in, 1000);
    EXPECT_EQ(report.frames_out, 1000);
    EXPECT_EQ(report.latency.figures(LatencyPart::kWhole).misses, 26u);
    EXPECT_LE(report.latency.times(LatencyPart::kWhole).quantile(0.7), kRounding) << "the queue is empty again";
  }
}

TEST_F(SessionLatency, HoldsFramesAroundTheEventsOfALateChunk) {
  spec_.latency.on_miss = OnMiss::kHoldLast;
  stall_once(300ms);
  ClockedSource source(clock_, 1000);
  run(source, identity_model(1), {{"threshold", pipeline::threshold_stage({.on = 55})}});
  ASSERT_EQ(recording_.events.size(), 1u);
  EXPECT_EQ(recording_.events[0], (std::pair<std::int64_t, std::size_t>{54, 54}));
  EXPECT_EQ(recording_.samples[54], 0.0F) << "held; as computed it is 1";
}

TEST_F(SessionLatency, StopsWithAllThatWasComputedWritten) {
  spec_.latency.on_miss = OnMiss::kStop;
  stall_once(300ms);
  expect_error<pipeline::BudgetError>([&] { run_live(); },
                                      {"latency.on_miss: stop", "in front of frame 40", "2 chunks on end",
                                       "45 ms that are left of the budget", "290 ms"});
  EXPECT_TRUE(recording_.finished);
  EXPECT_EQ(recording_.samples, counted(40));
}

TEST_F(SessionLatency, LetsOneLateChunkPass) {
  for (const OnMiss policy : {OnMiss::kStop, OnMiss::kHoldLast, OnMiss::kSkipToLatest}) {
    recording_ = {};
    stalled_ = false;
    spec_.latency.on_miss = policy;
    stall_once(50ms);  // 50, 40, 30 ...
    const SessionReport report = run_live();
    EXPECT_EQ(report.latency.figures(LatencyPart::kWhole).misses, 1u);
    EXPECT_EQ(recording_.samples, counted(1000));
  }
}

TEST_F(SessionLatency, IsToldToOtherThreadsWhileItRuns) {
  PublishedTelemetry telemetry;
  spec_.telemetry = &telemetry;
  spec_.latency.on_miss = OnMiss::kHoldLast;
  stall_once(300ms);
  ClockedSource source(clock_, 1000);
  std::vector<SessionTelemetry> told;
  std::atomic<bool> ended{false};
  std::thread reader([&] {
    SessionTelemetry before;
    while (!ended) {
      const SessionTelemetry now = telemetry.load();
      EXPECT_GE(now.elapsed_ns, before.elapsed_ns);
      EXPECT_EQ(now.frames_in, now.frames_out + now.frames_in % kChunkFrames) << "a whole record";
      before = now;
    }
  });
  spec_.on_progress = [&](std::int64_t) { told.push_back(telemetry.load()); };
  const SessionReport report = run(source);
  ended = true;
  reader.join();
  ASSERT_GE(told.size(), 7u);
  const SessionTelemetry& first = told.front();
  EXPECT_EQ(first.elapsed_ns, 330'000'000);
  EXPECT_EQ(first.latest_ns, 300'000'000);
  EXPECT_EQ(first.ring_capacity_frames, 500);
  ASSERT_GE(first.threads, 1);
  const auto* const names = first.thread_names.data();
  EXPECT_EQ(std::count_if(names, names + first.threads,
                          [](const auto& name) { return std::string_view(name.data()) == "halotap-session"; }),
            1);
  // Frames are their own numbers here, and far from ±1.
  EXPECT_EQ(first.level.peak, 30);
  EXPECT_EQ(first.channels, 1);
  EXPECT_EQ(first.channel_levels[0].peak, 30);
  EXPECT_EQ(told[1].frames_in, 430);
  EXPECT_NEAR(told[1].level.rms, 257.8, 0.1) << "of frames since the last record alone";
  EXPECT_EQ(told[1].is_missing, 0);
  EXPECT_EQ(told[1].latest_ns, 0);
  const SessionTelemetry& last = told.back();
  EXPECT_EQ(last.frames_in, report.frames_in);
  EXPECT_EQ(last.frames_out, report.frames_out);
  EXPECT_EQ(last.frames_held, report.frames_held);
  const auto whole = static_cast<std::size_t>(LatencyPart::kWhole);
  EXPECT_EQ(last.latency[whole].misses, report.latency.figures(LatencyPart::kWhole).misses);
  EXPECT_EQ(last.latency[whole].max_ns, 300'000'000);
}

}  // namespace
}  // namespace halotap::io
