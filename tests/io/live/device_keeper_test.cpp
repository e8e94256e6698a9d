#include "live/device_keeper.hpp"

#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "expect_error.hpp"
#include "live/fake_device.hpp"

namespace halotap::io {
namespace {

using namespace std::chrono_literals;
using pipeline::DeviceError;

TEST(DeviceKeeper, OpensADeviceAndClosesItAtTheEnd) {
  const auto device = std::make_shared<FakeDevice>();
  {
    const DeviceKeeper keeper(fake_keeper(device));
    EXPECT_TRUE(comes_true([&] { return device->blocks > 3; }));
    EXPECT_EQ(keeper.failure(), "");
  }
  EXPECT_EQ(device->times_opened, 1);
  EXPECT_EQ(device->times_closed, 1);
}

TEST(DeviceKeeper, StartsAndStopsManyTimesInARow) {
  const auto device = std::make_shared<FakeDevice>();
  for (int i = 0; i < 50; ++i) const DeviceKeeper keeper(fake_keeper(device));
  EXPECT_EQ(device->times_opened, 50);
  EXPECT_EQ(device->times_closed, 50);
}

TEST(DeviceKeeper, SaysWhyADeviceCannotBeOpened) {
  const auto device = std::make_shared<FakeDevice>();
  device->opens = false;
  expect_error<DeviceError>([&] { DeviceKeeper keeper(fake_keeper(device)); }, {"fake: cannot be opened"});
}

TEST(DeviceKeeper, OpensADeviceAgainThatWentQuietOrStopped) {
  for (const bool says_so : {false, true}) {
    const auto device = std::make_shared<FakeDevice>();
    std::mutex mutex;
    std::vector<std::string> notes;
    DeviceKeeperSpec spec = fake_keeper(device);
    spec.on_note = [&](const std::string& note) {
      const std::lock_guard lock(mutex);
      notes.push_back(note);
    };
    int reopened = 0;
    spec.on_reopen = [&] { ++reopened; };
    {
      const DeviceKeeper keeper(std::move(spec));
      ASSERT_TRUE(comes_true([&] { return device->blocks > 3; }));
      device->opens = false;
      device->delivers = false;
      device->claims_active = !says_so;
      ASSERT_TRUE(comes_true([&] { return device->times_opened > 3; })) << "tries again";
      EXPECT_EQ(keeper.failure(), "") << "not yet given up";
      device->delivers = true;
      device->claims_active = true;
      device->opens = true;
      const std::uint64_t blocks = device->blocks;
      ASSERT_TRUE(comes_true([&] { return device->blocks > blocks + 3; }));
      ASSERT_TRUE(comes_true([&] {
        const std::lock_guard lock(mutex);
        return notes.size() == 2;
      }));
    }
    EXPECT_EQ(reopened, 1);
    EXPECT_NE(notes[0].find(says_so ? "has stopped" : "no block for 100 ms"), std::string::npos) << notes[0];
    EXPECT_EQ(notes[1], "fake: is back");
  }
}

TEST(DeviceKeeper, GivesUpAfterTheTimeAskedFor) {
  const auto device = std::make_shared<FakeDevice>();
  DeviceKeeperSpec spec = fake_keeper(device);
  spec.give_up = 0ms;
  const DeviceKeeper keeper(std::move(spec));
  device->delivers = false;
  ASSERT_TRUE(comes_true([&] { return !keeper.failure().empty(); }));
  EXPECT_NE(keeper.failure().find("fake: lost: no block"), std::string::npos) << keeper.failure();
  EXPECT_EQ(device->times_opened, 1);
}

// Under a dead JACK server every call hangs.
TEST(DeviceKeeper, LeavesADeviceBehindThatHangsOnClose) {
  const auto device = std::make_shared<FakeDevice>();
  DeviceKeeperSpec spec = fake_keeper(device);
  spec.hang_limit = 50ms;
  spec.give_up = 0ms;
  {
    const DeviceKeeper keeper(std::move(spec));
    device->hangs_on_close = true;
    device->delivers = false;
    ASSERT_TRUE(comes_true([&] { return !keeper.failure().empty(); }));
    EXPECT_NE(keeper.failure().find("does not answer"), std::string::npos) << keeper.failure();
  }
  EXPECT_EQ(device->times_closed, 0);
  device->hangs_on_close = false;
  EXPECT_TRUE(comes_true([&] { return device->times_closed == 1; }));
}

TEST(DeviceKeeper, LeavesADeviceBehindThatHangsOnOpen) {
  const auto device = std::make_shared<FakeDevice>();
  device->hangs_on_open = true;
  DeviceKeeperSpec spec = fake_keeper(device);
  spec.open_limit = 40ms;
  expect_error<DeviceError>([&] { DeviceKeeper keeper(std::move(spec)); }, {"fake", "not opened within 40 ms"});
  device->hangs_on_open = false;
  EXPECT_TRUE(comes_true([&] { return device->times_closed == 1; }));
}

}  // namespace
}  // namespace halotap::io
