// Keeps a device running, on a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace halotap::io {

// A device that calls back. Every call may hang, with the sound server behind it. construct (opens; throws
// DeviceError) -> start -> destroy (stops and closes).
class DeviceStream {
 public:
  virtual ~DeviceStream() = default;

  // Throws DeviceError.
  virtual void start() = 0;
  // False: the device has stopped by itself. True says little: some never notice.
  virtual bool is_active() = 0;
};

struct DeviceKeeperSpec {
  std::string name;  // for messages
  std::function<std::unique_ptr<DeviceStream>()> open;
  std::function<std::uint64_t()> blocks;    // callbacks so far
  std::function<void()> on_reopen = [] {};  // before the device starts anew; no callback runs
  std::function<void(const std::string&)>
      on_note;  // one line about what happened, from the keeper's thread; may not call the keeper
  std::chrono::nanoseconds quiet_limit{};        // no callback for so long: lost
  std::chrono::nanoseconds first_quiet_limit{};  // the same until the first callback
  // A call that takes longer hangs. With what else a program does at its end that makes less than 2 s.
  std::chrono::nanoseconds hang_limit = std::chrono::milliseconds(1500);
  std::chrono::nanoseconds open_limit =
      std::chrono::seconds(10);  // to open and start: a sound server may start with it
  std::chrono::nanoseconds first_pause = std::chrono::milliseconds(100);
  std::chrono::nanoseconds longest_pause = std::chrono::seconds(5);
  std::chrono::nanoseconds give_up{};  // tries to open a lost device for so long
  std::chrono::nanoseconds look_every = std::chrono::milliseconds(20);
};

// Opens a device, watches that it calls back, and when it does not closes it and opens it again, with growing pauses,
// until it is back or `give_up` has passed. All calls to the device come from one thread, the keeper's: when one of
// them hangs, nobody else does. [control]
class DeviceKeeper {
 public:
  // Returns when the device has been started. Throws DeviceError when it cannot be, or does not answer.
  explicit DeviceKeeper(DeviceKeeperSpec spec);
  // Stops and closes the device; waits `hang_limit` at most. A device that hangs is left behind with its thread, and
  // what `spec` refers to must be shared with it.
  ~DeviceKeeper();
  DeviceKeeper(const DeviceKeeper&) = delete;
  DeviceKeeper& operator=(const DeviceKeeper&) = delete;

  // Why the device is gone for good, in one line; empty while it runs or may come back. [any thread]
  std::string failure() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

}  // namespace halotap::io
