// A device that delivers ten times as much for a second, on a clock that the test winds.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "halotap/io/session.hpp"
#include "live/fake_device.hpp"
#include "live/live_source.hpp"
#include "session/session_parts.hpp"

namespace halotap::io {
namespace {

using namespace std::chrono_literals;
using pipeline::Instant;
using pipeline::OnGap;

constexpr std::int64_t kBlockFrames = 480;  // 10 ms
constexpr std::int64_t kRingFrames = 24000;
constexpr std::chrono::seconds kBurst{1};

class BurstingSource final : public Source {
 public:
  BurstingSource(const test::WoundClock& clock, std::chrono::nanoseconds calm)
      : clock_(clock), burst_(clock.now() + calm), next_block_(clock.now() + 10ms) {
    SourceInfo info;
    info.channels = 1;
    info.rate_hz = 48000;
    info.is_live = true;
    const auto device = std::make_shared<FakeDevice>();
    device->delivers = false;
    DeviceKeeperSpec keeper = fake_keeper(device);
    keeper.quiet_limit = keeper.first_quiet_limit = 1h;
    source_.emplace(info, capture_, std::make_unique<DeviceKeeper>(std::move(keeper)), "bursting", 10ms);
  }

  const SourceInfo& info() const override { return source_->info(); }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    while (waiting().frames == 0 && clock_.now() < next_block_) clock_.wind(1ms);
    while (clock_.now() >= next_block_) {
      capture_->on_block(block_.data(), kBlockFrames, next_block_.time_since_epoch().count(), false);
      next_block_ += next_block_ >= burst_ && next_block_ < burst_ + kBurst ? 1ms : 10ms;
    }
    most_waiting_ = std::max(most_waiting_, waiting().frames);
    const std::int64_t got = source_->read(samples, frames);
    if (clock_.now() >= burst_ + kBurst + 1s) {
      // A second behind the burst: what is read now was captured just now.
      if (got > 0) latest_age_ = std::max(latest_age_, clock_.now() - *capture_time());
      ended_ = clock_.now() >= burst_ + kBurst + 2s;
    }
    return got;
  }
  Gap take_gap() override { return source_->take_gap(); }
  std::optional<Instant> capture_time() const override { return source_->capture_time(); }
  Waiting waiting() const override { return source_->waiting(); }

  CaptureCounters counters() const { return capture_->counters(); }
  const std::atomic<bool>* ended() const { return &ended_; }
  std::int64_t most_waiting() const { return most_waiting_; }
  std::chrono::nanoseconds latest_age() const { return latest_age_; }

 private:
  const test::WoundClock& clock_;
  const Instant burst_;
  Instant next_block_;
  std::array<float, kBlockFrames> block_{};
  std::shared_ptr<Capture> capture_ = std::make_shared<Capture>(1, 48000, kRingFrames);
  std::optional<LiveSource> source_;
  std::int64_t most_waiting_ = 0;
  std::chrono::nanoseconds latest_age_{0};
  std::atomic<bool> ended_{false};
};

// Takes 2 ms for a chunk of 10 ms.
class BusySink final : public Sink {
 public:
  explicit BusySink(const test::WoundClock& clock) : clock_(clock) {}
  void write(const float*, std::int64_t frames) override {
    clock_.wind(frames * std::chrono::nanoseconds(10ms) / (5 * kBlockFrames));
  }
  void finish() override {}

 private:
  const test::WoundClock& clock_;
};

TEST(Session, DropsCountsAndRecoversFromABurstByItself) {
  for (const OnGap on_gap : {OnGap::kReset, OnGap::kMark, OnGap::kFill}) {
    // Wherever the seconds begin over which the device's rate is measured.
    for (const auto calm : {5000ms, 5600ms}) {
      const test::WoundClock clock;
      BurstingSource source(clock, calm);
      pipeline::PipelineSpec pipeline_spec = io::pipeline_spec(kBlockFrames);
      pipeline_spec.clock = &clock;
      pipeline::Pipeline pipeline(look_ahead_model(1), pipeline_spec);
      std::vector<std::unique_ptr<Sink>> sinks;
      sinks.push_back(std::make_unique<BusySink>(clock));
      SessionSpec spec;
      spec.input.on_gap = on_gap;
      spec.max_fill_frames = kRingFrames;
      spec.stop = source.ended();
      const SessionReport report = run_session(source, pipeline, sinks, spec);

      const CaptureCounters counters = source.counters();
      EXPECT_GT(report.missing.frames_dropped, 100'000) << to_string(on_gap);
      EXPECT_EQ(report.missing.frames_dropped, static_cast<std::int64_t>(counters.frames_dropped));
      // What was read with the stop goes no further.
      EXPECT_NEAR(static_cast<double>(counters.frames_delivered),
                  static_cast<double>(report.frames_in - report.frames_filled + report.missing.frames_dropped +
                                      source.waiting().frames),
                  kBlockFrames);
      EXPECT_EQ(report.frames_out, report.frames_in);
      EXPECT_LE(source.most_waiting(), kRingFrames);
      EXPECT_LE(source.latest_age(), 30ms) << to_string(on_gap);
    }
  }
}

}  // namespace
}  // namespace halotap::io
