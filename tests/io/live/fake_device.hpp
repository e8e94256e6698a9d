// A sound device that does what a test wants.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "halotap/pipeline/errors.hpp"
#include "live/capture.hpp"
#include "live/device_keeper.hpp"
#include "live/playback.hpp"

namespace halotap::io {

// What a test says and sees; shared with the streams of the device, which come and go.
struct FakeDevice {
  std::atomic<bool> opens{true};     // or open throws
  std::atomic<bool> delivers{true};  // or it never calls back
  std::atomic<bool> claims_active{true};
  std::atomic<bool> hangs_on_close{false};
  std::atomic<bool> hangs_on_open{false};
  std::atomic<int> times_opened{0};
  std::atomic<int> times_closed{0};
  std::atomic<std::uint64_t> blocks{0};
  std::shared_ptr<Capture> capture;    // where blocks go; none: they are only counted
  std::shared_ptr<Playback> playback;  // where they come from, of an output
  std::int64_t block_frames = 4;
};

// Waits for what another thread does. No test depends on how long it takes.
template <typename Condition>
bool comes_true(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

class FakeStream final : public DeviceStream {
 public:
  explicit FakeStream(std::shared_ptr<FakeDevice> device) : device_(std::move(device)) {
    ++device_->times_opened;
    while (device_->hangs_on_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!device_->opens) throw pipeline::DeviceError("fake: cannot be opened");
  }
  ~FakeStream() override {
    while (device_->hangs_on_close) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    ++device_->times_closed;
  }

  void start() override {
    thread_ = std::thread([this] {
      std::vector<float> block(static_cast<std::size_t>(device_->block_frames), 1.0F);
      while (!stop_) {
        if (device_->delivers) {
          const auto now = std::chrono::steady_clock::now().time_since_epoch();
          const std::int64_t now_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
          if (device_->capture) device_->capture->on_block(block.data(), device_->block_frames, now_ns, false);
          if (device_->playback) device_->playback->on_block(block.data(), device_->block_frames, now_ns, false);
          ++device_->blocks;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  bool is_active() override { return device_->claims_active; }

 private:
  std::shared_ptr<FakeDevice> device_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A keeper of it with short patience.
inline DeviceKeeperSpec fake_keeper(const std::shared_ptr<FakeDevice>& device) {
  using namespace std::chrono_literals;
  DeviceKeeperSpec spec;
  spec.name = "fake";
  spec.open = [device] { return std::make_unique<FakeStream>(device); };
  spec.blocks = [device] { return device->blocks.load(); };
  spec.on_reopen = [device] {
    if (device->capture) device->capture->on_reopen();
    if (device->playback) device->playback->on_reopen();
  };
  spec.quiet_limit = 100ms;
  spec.first_quiet_limit = 100ms;
  spec.hang_limit = 2s;
  spec.first_pause = 1ms;
  spec.longest_pause = 4ms;
  spec.give_up = 1h;
  spec.look_every = 2ms;
  return spec;
}

}  // namespace halotap::io
