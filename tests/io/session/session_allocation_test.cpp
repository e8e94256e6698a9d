// The steady loop of a live session, from the device's block to the sink.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "halotap/io/recorder.hpp"
#include "halotap/io/session.hpp"
#include "halotap/pipeline/built_in_stages.hpp"
#include "live/fake_device.hpp"
#include "live/live_source.hpp"
#include "pipeline/allocation_counter.hpp"
#include "pipeline/lock_counter.hpp"
#include "scratch_folder.hpp"
#include "session/session_parts.hpp"

namespace halotap::io {
namespace {

using namespace std::chrono_literals;
using pipeline::OnMiss;

// A live source whose device delivers every 10 ms of the clock, from the reader's thread.
class FedSource final : public Source {
 public:
  explicit FedSource(const test::WoundClock& clock) : clock_(clock) {
    SourceInfo info;
    info.channels = 1;
    info.rate_hz = 48000;
    info.is_live = true;
    const auto device = std::make_shared<FakeDevice>();
    device->delivers = false;
    DeviceKeeperSpec keeper = fake_keeper(device);
    keeper.quiet_limit = keeper.first_quiet_limit = 1h;
    keeper.look_every = 1h;
    source_.emplace(info, capture_, std::make_unique<DeviceKeeper>(std::move(keeper)), "fed", 10ms);
  }

  const SourceInfo& info() const override { return source_->info(); }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    while (clock_.now() < next_block_) clock_.wind(1ms);
    for (; clock_.now() >= next_block_; next_block_ += 10ms) {
      capture_->on_block(block_.data(), 480, next_block_.time_since_epoch().count(), false);
    }
    on_read();
    return source_->read(samples, frames);
  }
  Gap take_gap() override { return source_->take_gap(); }
  std::optional<pipeline::Instant> capture_time() const override { return source_->capture_time(); }
  Waiting waiting() const override { return source_->waiting(); }

  std::function<void()> on_read = [] {};

 private:
  const test::WoundClock& clock_;
  pipeline::Instant next_block_ = clock_.now() + 10ms;
  std::array<float, 480> block_{};
  std::shared_ptr<Capture> capture_ = std::make_shared<Capture>(1, 48000, 48000);
  std::optional<LiveSource> source_;
};

// Takes 3 ms for each of 40 chunks of 200.
class SlowSink final : public Sink {
 public:
  explicit SlowSink(const test::WoundClock& clock) : clock_(clock) {}
  void write(const float*, std::int64_t) override {
    if (++writes_ % 200 < 40) clock_.wind(3ms);
  }
  void finish() override {}

 private:
  const test::WoundClock& clock_;
  std::int64_t writes_ = 0;
};

TEST(Session, NeitherAllocatesNorLocksInItsSteadyLoop) {
  for (const OnMiss policy : {OnMiss::kCount, OnMiss::kHoldLast, OnMiss::kSkipToLatest}) {
    const test::ScratchFolder folder;
    const test::WoundClock clock;
    FedSource source(clock);
    pipeline::PipelineSpec pipeline_spec = io::pipeline_spec(64);
    pipeline_spec.clock = &clock;
    pipeline_spec.stages = {{"rms", pipeline::rms_stage({.window_ms = 4})},
                            {"threshold", pipeline::threshold_stage({.on = 0.5})}};
    pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec);
    std::vector<std::unique_ptr<Sink>> sinks;
    sinks.push_back(std::make_unique<SlowSink>(clock));
    std::unique_ptr<Recorder> recorder;
#ifdef HALOTAP_TEST_RECORDER
    recorder = std::make_unique<Recorder>(RecorderSpec{folder.file("a.wav"), folder.file("b.wav")}, source.info(),
                                          pipeline.output());
#endif
    PublishedTelemetry telemetry;
    SessionSpec spec;
    spec.recorder = recorder.get();
    spec.telemetry = &telemetry;
    spec.max_frames = 480 * 500;
    spec.latency.budget_ms = 15;  // of which a device's block takes 10
    spec.latency.on_miss = policy;
    std::uint64_t allocations = 0;
    std::uint64_t locks = 0;
    source.on_read = [&, reads = 0]() mutable {
      ++reads;
      if (reads == 20) {
        allocations = test::allocator_calls();
        locks = test::lock_calls();
      } else if (reads == 250) {
        allocations = test::allocator_calls() - allocations;
        locks = test::lock_calls() - locks;
      }
    };
    const SessionReport report = run_session(source, pipeline, sinks, spec);
    EXPECT_EQ(allocations, 0u) << to_string(policy);
    EXPECT_EQ(locks, 0u) << to_string(policy);
    EXPECT_GT(telemetry.load().frames_in, 0);
    EXPECT_EQ(report.frames_held > 0, policy == OnMiss::kHoldLast);
    EXPECT_EQ(report.frames_skipped > 0, policy == OnMiss::kSkipToLatest);
  }
}

}  // namespace
}  // namespace halotap::io
