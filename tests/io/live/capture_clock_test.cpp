#include "live/capture_clock.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace halotap::io {
namespace {

constexpr double kRateHz = 48000;
constexpr std::int64_t kBlock = 480;

// A device on a clock of its own: delivers block after block, each as late as `delay` says, and never before the one in
// front of it.
class Device {
 public:
  explicit Device(double rate_hz = kRateHz, std::int64_t block = kBlock) : rate_hz_(rate_hz), block_(block) {}

  // The next block, `delay_s` after its last frame was made.
  CaptureClock::Loss deliver(CaptureClock& clock, double delay_s = 0) {
    made_ += block_;
    const auto due = static_cast<std::int64_t>((static_cast<double>(made_) / rate_hz_ + delay_s) * 1e9);
    now_ns_ = std::max(now_ns_, due);
    delivered_ += block_;
    return clock.on_block(kStart + now_ns_, block_);
  }
  // As many frames are made and never delivered.
  void lose(std::int64_t frames) { made_ += frames; }
  // The system holds every delivery back for so long: what is made meanwhile comes at its end.
  void stall(double seconds) { now_ns_ += static_cast<std::int64_t>(seconds * 1e9); }

  std::int64_t delivered() const { return delivered_; }
  double seconds() const { return static_cast<double>(now_ns_) * 1e-9; }

 private:
  static constexpr std::int64_t kStart = 1'000'000'000'000;
  double rate_hz_;
  std::int64_t block_;
  std::int64_t made_ = 0;
  std::int64_t delivered_ = 0;
  std::int64_t now_ns_ = 0;
};

void run_quietly(CaptureClock& clock, Device& device, double seconds) {
  const double end = device.seconds() + seconds;
  while (device.seconds() < end) ASSERT_EQ(device.deliver(clock).frames, 0);
}

TEST(CaptureClock, FindsNothingMissingFromADeviceThatIsOnlyLateAndDrifts) {
  for (const double ppm : {-500.0, -100.0, 0.0, 100.0, 500.0}) {
    CaptureClock clock(kRateHz);
    Device device(kRateHz * (1 + ppm * 1e-6));
    std::mt19937 random(1);
    std::exponential_distribution<double> delay(1 / 0.001);  // a millisecond in the mean
    for (int block = 0; block < 200000; ++block) {           // 33 minutes: 500 ppm are a second by then
      ASSERT_EQ(device.deliver(clock, std::min(delay(random), 0.025)).frames, 0) << ppm << " ppm, block " << block;
    }
    EXPECT_NEAR(clock.measured_rate_hz(), kRateHz, 0.03 * kRateHz);
    EXPECT_FALSE(clock.is_off_rate());
  }
}

TEST(CaptureClock, ReportsALossWithinABlockOfTheDevicesReturn) {
  for (const std::int64_t lost : {std::int64_t{2400}, std::int64_t{72000}}) {  // 50 ms, 1.5 s
    for (const std::int64_t block : {std::int64_t{17}, std::int64_t{64}, kBlock}) {
      CaptureClock clock(kRateHz);
      Device device(kRateHz, block);
      run_quietly(clock, device, 2);
      const std::int64_t at = device.delivered();
      device.lose(lost);
      EXPECT_EQ(device.deliver(clock).frames, 0);  // the rest may still come
      const CaptureClock::Loss loss = device.deliver(clock);
      EXPECT_NEAR(static_cast<double>(loss.frames), static_cast<double>(lost), 1) << block;
      EXPECT_EQ(loss.at_frame, at);
      run_quietly(clock, device, 2);
    }
  }
}

TEST(CaptureClock, ForgivesAStallWhoseFramesAllCome) {
  for (const double seconds : {0.05, 0.2, 1.5}) {
    CaptureClock clock(kRateHz);
    Device device;
    run_quietly(clock, device, 2);
    device.stall(seconds);
    run_quietly(clock, device, 2);
  }
}

TEST(CaptureClock, TellsWhatWasLostOfAStallFromWhatCameLate) {
  CaptureClock clock(kRateHz);
  Device device;
  run_quietly(clock, device, 2);
  device.stall(0.1);  // the device holds 50 ms of it
  device.lose(2400);
  std::int64_t found = 0;
  for (int block = 0; block < 100; ++block) found += device.deliver(clock).frames;
  EXPECT_NEAR(static_cast<double>(found), 2400, 1);
}

TEST(CaptureClock, FindsTheLossOfASingleBlockWithinTwoWindows) {
  CaptureClock clock(kRateHz);
  Device device;
  run_quietly(clock, device, 2);
  device.lose(kBlock);
  std::int64_t found = 0;
  for (int block = 0; block < 110; ++block) found += device.deliver(clock, 0.001).frames;
  EXPECT_NEAR(static_cast<double>(found), kBlock, 0.002 * kRateHz);
}

TEST(CaptureClock, KnowsDevicesThatDeliverInBursts) {
  CaptureClock clock(kRateHz);
  Device device;
  const auto deliver_pair = [&](std::int64_t lost) {
    device.lose(lost);
    // The first of the two waits for the second to be made.
    const std::int64_t first = device.deliver(clock, kBlock / kRateHz).frames;
    return first + device.deliver(clock).frames;
  };
  for (int pair = 0; pair < 200; ++pair) ASSERT_EQ(deliver_pair(0), 0);
  std::int64_t found = deliver_pair(9600);
  for (int pair = 0; pair < 50; ++pair) found += deliver_pair(0);
  EXPECT_NEAR(static_cast<double>(found), 9600, 1);
}

TEST(CaptureClock, CountsALossAtEveryReturnOfAReopenedDevice) {
  CaptureClock clock(kRateHz);
  Device device;
  run_quietly(clock, device, 1);
  clock.on_reopen();
  device.lose(100000);
  const std::int64_t at = device.delivered();
  const CaptureClock::Loss loss = device.deliver(clock);
  EXPECT_NEAR(static_cast<double>(loss.frames), 100000, 1);
  EXPECT_EQ(loss.at_frame, at);
  run_quietly(clock, device, 2);
}

TEST(CaptureClock, TellsADeviceThatIsOffItsRate) {
  for (const double rate_hz : {16000.0, 44100.0, 50000.0, 96000.0}) {
    CaptureClock clock(kRateHz);
    Device device(rate_hz);
    while (device.seconds() < 5) device.deliver(clock);
    EXPECT_TRUE(clock.is_off_rate()) << rate_hz;
    EXPECT_NEAR(clock.measured_rate_hz(), rate_hz, 0.01 * rate_hz);
  }
}

// What had gathered before the start comes at once.
TEST(CaptureClock, TakesNoStartForAWrongRate) {
  CaptureClock clock(kRateHz);
  for (int block = 0; block < 40; ++block) EXPECT_EQ(clock.on_block(1000 + block, kBlock).frames, 0);
  for (int block = 0; block < 600; ++block) {
    ASSERT_EQ(clock.on_block(1000 + block * std::int64_t{10'000'000}, kBlock).frames, 0) << block;
  }
  EXPECT_FALSE(clock.is_off_rate());
  EXPECT_NEAR(clock.measured_rate_hz(), kRateHz, 100);
}

}  // namespace
}  // namespace halotap::io
