#include "live/live_sink.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "expect_error.hpp"
#include "live/fake_device.hpp"

namespace halotap::io {
namespace {

using namespace std::chrono_literals;
using pipeline::DeviceError;

class LiveSinkTest : public testing::Test {
 protected:
  // With `reserve_frames`: one that corrects drift, at 4000 Hz.
  std::unique_ptr<LiveSink> open(std::int64_t ring_frames, std::optional<std::int64_t> reserve_frames = {}) {
    device_->playback = std::make_shared<Playback>(1, ring_frames, reserve_frames);
    std::unique_ptr<DriftCorrector> corrector;
    if (reserve_frames) {
      corrector = std::make_unique<DriftCorrector>(
          DriftCorrector::Spec{.channels = 1, .rate_hz = 4000, .reserve_frames = *reserve_frames}, device_->playback);
    }
    DeviceKeeperSpec keeper = fake_keeper(device_);
    keeper.give_up = 0ms;
    LiveSinkSpec spec;
    spec.block_time = 1ms;
    spec.stop = &stop_;
    spec.on_note = [this](const std::string& note) { notes_ += note + "\n"; };
    spec.name = "fake";
    return std::make_unique<LiveSink>(std::move(spec), device_->playback, std::move(corrector),
                                      std::make_unique<DeviceKeeper>(std::move(keeper)));
  }

  std::atomic<bool> stop_{false};
  std::string notes_;
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
};

TEST_F(LiveSinkTest, WaitsForTheDeviceUntilAllIsPlayed) {
  const auto sink = open(16);
  EXPECT_TRUE(sink->sets_pace());
  const std::vector<float> sound(100, 0.5F);
  sink->write(sound.data(), 60);  // more than the ring holds
  sink->write(sound.data(), 40);
  sink->finish();
  EXPECT_EQ(device_->playback->counters().frames_played, 100U);
  EXPECT_EQ(device_->times_closed, 1);
}

TEST_F(LiveSinkTest, WaitsForNothingOnceStopped) {
  device_->delivers = false;  // the device takes nothing
  const auto sink = open(16);
  stop_ = true;
  const std::vector<float> sound(100, 0.5F);
  sink->write(sound.data(), 60);
  sink->write(sound.data(), 40);
  sink->finish();
  EXPECT_EQ(notes_, "fake: stopped before 100 frames were played\n");
}

TEST_F(LiveSinkTest, SaysThatTheDeviceIsGone) {
  const auto sink = open(16);
  device_->claims_active = false;
  const std::vector<float> sound(10000, 0.5F);
  expect_error<DeviceError>([&] { sink->write(sound.data(), 10000); }, {"fake", "lost", "has stopped"});
}

// Frames in = frames played + dropped + discarded, whenever it ends.
TEST_F(LiveSinkTest, CountsWhatAStopLeavesAsDropped) {
  device_->delivers = false;
  const auto sink = open(400);
  const std::vector<float> sound(300, 0.5F);
  sink->write(sound.data(), 300);
  stop_ = true;
  sink->finish();
  const PlayedCounters played = *sink->played();
  EXPECT_EQ(played.frames_in, 300U);
  EXPECT_EQ(played.frames_in, played.frames_played + played.frames_dropped + played.frames_discarded);
}

#ifdef HALOTAP_HAVE_SOXR
using LiveSinkOfALiveSourceTest = LiveSinkTest;

TEST_F(LiveSinkOfALiveSourceTest, CountsWhatAStopLeavesAsDropped) {
  device_->delivers = false;
  const auto sink = open(400, 40);
  const std::vector<float> sound(300, 0.5F);
  sink->write(sound.data(), 300);
  stop_ = true;
  sink->finish();
  const PlayedCounters played = *sink->played();
  EXPECT_EQ(played.frames_in, 300U);
  EXPECT_EQ(played.frames_in + played.frames_added - played.frames_removed,
            played.frames_played + played.frames_dropped + played.frames_discarded);
}

TEST_F(LiveSinkOfALiveSourceTest, WaitsForNobody) {
  device_->delivers = false;
  const auto sink = open(400, 40);
  EXPECT_FALSE(sink->sets_pace());
  const std::vector<float> sound(4000, 0.5F);
  sink->write(sound.data(), 4000);  // more than the ring holds; nobody takes any
  const PlayedCounters played = *sink->played();
  EXPECT_TRUE(played.corrects_drift);
  EXPECT_EQ(played.frames_in, 4000U);
  EXPECT_EQ(played.frames_played, 0U);
  EXPECT_GT(played.frames_dropped, 3000U);
  EXPECT_LT(played.frames_dropped, 3600U);
}

TEST_F(LiveSinkOfALiveSourceTest, PlaysAllToTheEnd) {
  const auto sink = open(4000, 40);
  const std::vector<float> sound(1000, 0.5F);
  for (int block = 0; block < 20; ++block) sink->write(sound.data(), 50);
  sink->finish();
  const PlayedCounters played = *sink->played();
  EXPECT_EQ(played.frames_in, 1000U);
  EXPECT_NEAR(static_cast<double>(played.frames_played), 1000, 5) << "what the resampler held too";
  EXPECT_EQ(played.frames_dropped, 0U);
  EXPECT_EQ(device_->times_closed, 1);
}

TEST_F(LiveSinkOfALiveSourceTest, SaysWhatWasNotPlayedAsItIs) {
  const auto sink = open(400, 4);
  std::vector<float> sound(4000, 0.5F);
  sound[10] = NAN;
  sink->write(sound.data(), 4000);
  EXPECT_TRUE(comes_true([&] { return sink->played()->underruns > 0; }));
  sink->finish();
  for (const std::string words :
       {"underrun: silence was played", "came faster than the device", "played as 0", "samples: 1"}) {
    EXPECT_NE(notes_.find("fake: "), std::string::npos);
    EXPECT_NE(notes_.find(words), std::string::npos) << notes_;
  }
}

TEST_F(LiveSinkOfALiveSourceTest, SaysThatTheDeviceIsGone) {
  const auto sink = open(400, 40);
  device_->claims_active = false;
  const std::vector<float> sound(10, 0.5F);
  expect_error<DeviceError>([&] { comes_true([&] { return sink->write(sound.data(), 10), false; }); },
                            {"fake", "lost", "has stopped"});
}

TEST_F(LiveSinkOfALiveSourceTest, StartsAndStopsManyTimesInARow) {
  const std::vector<float> sound(64, 0.5F);
  for (int i = 0; i < 20; ++i) {
    const auto sink = open(400, 8);
    sink->write(sound.data(), 64);
    if (i % 2 == 0) sink->finish();
  }
  EXPECT_EQ(device_->times_opened, 20);
  EXPECT_EQ(device_->times_closed, 20);
}
#endif

}  // namespace
}  // namespace halotap::io
