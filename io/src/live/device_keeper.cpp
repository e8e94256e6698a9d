#include "live/device_keeper.hpp"

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "halotap/pipeline/errors.hpp"
#include "live/watchdog.hpp"
#include "realtime/thread_name.hpp"

namespace halotap::io {
namespace {

using Clock = std::chrono::steady_clock;
using pipeline::DeviceError;

std::string seconds_text(std::chrono::nanoseconds time) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
  return milliseconds % 1000 == 0 ? std::to_string(milliseconds / 1000) + " s" : std::to_string(milliseconds) + " ms";
}

}  // namespace

// What the keeper and its thread share; the last of them to end destroys it.
struct DeviceKeeper::Shared {
  explicit Shared(DeviceKeeperSpec given) : spec(std::move(given)) {}

  const DeviceKeeperSpec spec;
  mutable std::mutex mutex;
  std::condition_variable changed;
  // All below under the mutex.
  bool stop_asked = false;
  bool started = false;          // the device ran at least once
  bool ended = false;            // the thread touches no device any more
  bool is_calling = false;       // a call to the device is under way
  Clock::time_point call_began;  // the last one
  bool is_lost = false;
  Clock::time_point lost;  // the last time it was
  std::string failure;

  void run();

 private:
  // Waits; true when asked to stop.
  bool pause(std::chrono::nanoseconds time) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, time, [this] { return stop_asked; });
  }
  // A call that may hang.
  template <typename Call>
  auto calling(Call call) {
    mark(true);
    struct Done {
      Shared& shared;
      ~Done() { shared.mark(false); }
    } const done{*this};
    return call();
  }
  void mark(bool begins) {
    const std::lock_guard lock(mutex);
    is_calling = begins;
    if (begins) call_began = Clock::now();
  }
  // Under the mutex: once a stop has been asked for, who would hear it may be gone.
  void note(const std::string& text) const {
    const std::lock_guard lock(mutex);
    if (spec.on_note && !stop_asked) spec.on_note(spec.name + ": " + text);
  }
  void fail(const std::string& reason) {
    const std::lock_guard lock(mutex);
    failure = spec.name + ": " + reason;
    changed.notify_all();
  }
  // Until the device is lost, with the reason, or a stop is asked for, with none.
  std::string watch(DeviceStream& device);
};

std::string DeviceKeeper::Shared::watch(DeviceStream& device) {
  Watchdog watchdog(spec.quiet_limit, spec.first_quiet_limit);
  while (!pause(spec.look_every)) {
    const bool active = calling([&] { return device.is_active(); });
    const std::uint64_t blocks = spec.blocks();
    if (watchdog.is_lost(Clock::now().time_since_epoch(), blocks)) {
      return "no block for " + seconds_text(spec.quiet_limit) + " (the device says it is " +
             (active ? "running)" : "stopped)");
    }
    if (!active) return "the device has stopped";
  }
  return {};
}

void DeviceKeeper::Shared::run() {
  Backoff backoff(spec.first_pause, spec.longest_pause);
  std::unique_ptr<DeviceStream> device;
  std::string reason;
  for (bool first = true;; first = false) {
    try {
      {
        // The library's threads are made by these calls, and inherit their maker's name.
        const BorrowedThreadName name("halotap-device");
        device = calling(spec.open);
        if (!first) spec.on_reopen();
        calling([&] { device->start(); });
      }
      bool was_lost = false;
      {
        const std::lock_guard lock(mutex);
        started = true;
        was_lost = std::exchange(is_lost, false);
        changed.notify_all();
      }
      if (was_lost) note("is back");
      backoff = Backoff(spec.first_pause, spec.longest_pause);
      reason = watch(*device);
      if (reason.empty()) break;
    } catch (const DeviceError& error) {
      reason = error.what();
      const std::lock_guard lock(mutex);
      if (!started) {
        failure = reason;
        changed.notify_all();
        break;
      }
    }
    bool is_news = false;
    Clock::time_point lost_at;
    {
      const std::lock_guard lock(mutex);
      is_news = !is_lost;
      if (is_news) lost = Clock::now();
      is_lost = true;
      lost_at = lost;
    }
    if (is_news) note("lost: " + reason + (spec.give_up.count() > 0 ? "; trying to open it again" : ""));
    calling([&] { device.reset(); });
    if (Clock::now() - lost_at >= spec.give_up) {
      fail("lost: " + reason + (spec.give_up.count() > 0 ? "; gave up after " + seconds_text(spec.give_up) : ""));
      break;
    }
    if (pause(backoff.next())) break;
  }
  calling([&] { device.reset(); });
  const std::lock_guard lock(mutex);
  ended = true;
  changed.notify_all();
}

DeviceKeeper::DeviceKeeper(DeviceKeeperSpec spec) : shared_(std::make_shared<Shared>(std::move(spec))) {
  std::thread([shared = shared_] {
    name_this_thread("halotap-keeper");
    shared->run();
  }).detach();
  std::unique_lock lock(shared_->mutex);
  const bool answered = shared_->changed.wait_for(lock, shared_->spec.open_limit,
                                                  [this] { return shared_->started || !shared_->failure.empty(); });
  if (answered && shared_->failure.empty()) return;
  shared_->stop_asked = true;
  const std::string reason =
      answered ? shared_->failure
               : shared_->spec.name + ": the device has not opened within " + seconds_text(shared_->spec.open_limit);
  if (answered) {
    shared_->changed.wait_for(lock, shared_->spec.hang_limit, [this] { return shared_->ended; });
  }
  throw DeviceError(reason);
}

DeviceKeeper::~DeviceKeeper() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop_asked = true;
  shared_->changed.notify_all();
  // One that has hung for a while already is given the rest of its time.
  const Clock::time_point began = shared_->is_calling ? shared_->call_began : Clock::now();
  shared_->changed.wait_until(lock, began + shared_->spec.hang_limit, [this] { return shared_->ended; });
}

std::string DeviceKeeper::failure() const {
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->failure.empty()) return shared_->failure;
  // The thread cannot say so itself: it hangs.
  const Clock::time_point now = Clock::now();
  if (shared_->is_calling && now - shared_->call_began >= shared_->spec.hang_limit &&
      (!shared_->is_lost || now - shared_->lost >= shared_->spec.give_up)) {
    return shared_->spec.name + ": the device does not answer: a call has not returned for " +
           seconds_text(shared_->spec.hang_limit);
  }
  return {};
}

}  // namespace halotap::io
