#include "live/live_sink.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "expect_error.hpp"
#include "live/fake_device.hpp"

namespace halotap::io {
namespace {

using namespace std::chrono_literals;
using pipeline::DeviceError;

class LiveSinkTest : public testing::Test {
 protected:
  std::unique_ptr<LiveSink> open(std::int64_t ring_frames) {
    device_->playback = std::make_shared<Playback>(1, ring_frames);
    DeviceKeeperSpec keeper = fake_keeper(device_);
    keeper.give_up = 0ms;
    LiveSinkSpec spec;
    spec.block_time = 1ms;
    spec.stop = &stop_;
    spec.on_note = [this](const std::string& note) { notes_ += note + "\n"; };
    spec.name = "fake";
    return std::make_unique<LiveSink>(std::move(spec), device_->playback,
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

}  // namespace
}  // namespace halotap::io
