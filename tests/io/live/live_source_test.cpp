#include "live/live_source.hpp"

#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "expect_error.hpp"
#include "live/fake_device.hpp"

namespace halotap::io {
namespace {

using namespace std::chrono_literals;
using pipeline::DeviceError;

class LiveSourceTest : public testing::Test {
 protected:
  // 4 frames a millisecond: what the fake device delivers when the machine is quiet.
  std::unique_ptr<LiveSource> open(std::chrono::nanoseconds give_up = 1h) {
    SourceInfo info;
    info.channels = 1;
    info.rate_hz = rate_hz_;
    info.is_live = true;
    device_->capture = std::make_shared<Capture>(1, rate_hz_, 100000);
    DeviceKeeperSpec spec = fake_keeper(device_);
    spec.give_up = give_up;
    return std::make_unique<LiveSource>(info, device_->capture, std::make_unique<DeviceKeeper>(std::move(spec)), "fake",
                                        1ms);
  }
  // Reads until a gap; what was missing there.
  Gap read_to_gap(LiveSource& source) {
    std::array<float, 256> samples{};
    Gap gap;
    EXPECT_TRUE(comes_true([&] {
      source.read(samples.data(), 256);
      gap = source.take_gap();
      return gap.is_reopening;
    }));
    return gap;
  }

  double rate_hz_ = 4000;
  std::shared_ptr<FakeDevice> device_ = std::make_shared<FakeDevice>();
};

TEST_F(LiveSourceTest, GivesWhatTheDeviceDelivers) {
  const auto source = open();
  std::array<float, 64> samples{};
  std::int64_t frames = 0;
  EXPECT_TRUE(comes_true([&] { return (frames += source->read(samples.data(), 64)) > 20; }));
  EXPECT_EQ(samples[0], 1.0F);
}

TEST_F(LiveSourceTest, TellsWhenItsFramesWereCapturedAndHowManyWait) {
  device_->delivers = false;
  const auto source = open();
  std::array<float, 64> samples{};
  EXPECT_FALSE(source->capture_time());
  for (std::int64_t i = 1; i <= 3; ++i) device_->capture->on_block(samples.data(), 4, i * 1'000'000, false);
  EXPECT_EQ(source->waiting().frames, 12);
  EXPECT_EQ(source->waiting().capacity_frames, 100000);
  ASSERT_EQ(source->read(samples.data(), 8), 8);
  EXPECT_EQ(source->capture_time()->time_since_epoch(), 2ms);
  EXPECT_EQ(source->waiting().frames, 4);
}

TEST_F(LiveSourceTest, ReturnsWithoutFramesFromADeviceThatHasNone) {
  device_->delivers = false;
  const auto source = open();
  std::array<float, 64> samples{};
  EXPECT_EQ(source->read(samples.data(), 64), 0);
}

TEST_F(LiveSourceTest, MarksTheGapOfADeviceThatDiedAndCameBack) {
  const auto source = open();
  ASSERT_TRUE(comes_true([&] { return device_->blocks > 5; }));
  device_->claims_active = false;
  ASSERT_TRUE(comes_true([&] { return device_->times_closed > 0; }));
  device_->claims_active = true;
  const Gap gap = read_to_gap(*source);
  EXPECT_TRUE(gap.is_reopening);
}

TEST_F(LiveSourceTest, GivesAllThatCameBeforeItSaysThatTheDeviceIsGone) {
  const auto source = open(0ms);
  ASSERT_TRUE(comes_true([&] { return device_->blocks > 5; }));
  device_->claims_active = false;
  ASSERT_TRUE(comes_true([&] { return device_->times_closed > 0; }));
  std::vector<float> samples(100000);
  EXPECT_EQ(source->read(samples.data(), 100000), static_cast<std::int64_t>(4 * device_->blocks));
  expect_error<DeviceError>([&] { (void)source->read(samples.data(), 1); }, {"fake", "lost", "has stopped"});
}

// The clock sees the frames that a test dates itself.
TEST_F(LiveSourceTest, RefusesADeviceThatIsOffItsRate) {
  device_->delivers = false;
  const auto source = open();
  std::vector<float> block(4, 1.0F);
  for (std::int64_t i = 0; i < 10000; ++i) device_->capture->on_block(block.data(), 4, i * 500'000, false);
  expect_error<DeviceError>([&] { (void)source->read(block.data(), 1); }, {"fake", "about 8000 frames", "4000 Hz"});
}

}  // namespace
}  // namespace halotap::io
