// A sink that a device empties when it likes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "halotap/io/sink.hpp"
#include "live/device_keeper.hpp"
#include "live/drift_corrector.hpp"
#include "live/playback.hpp"

namespace halotap::io {

struct LiveSinkSpec {
  std::int64_t channels = 1;
  std::chrono::duration<double> block_time{};  // about how long a block of the device is
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const std::string&)> on_note;
  std::string name;
  std::vector<pipeline::LatencyTerm> latency;
};

// Writes to `playback`, which the device behind `keeper` empties. Without `corrector` a write waits for room: the
// device sets the pace. With it, for frames of a live source, no write waits: the corrector keeps to the device's pace.
class LiveSink final : public Sink {
 public:
  LiveSink(LiveSinkSpec spec, std::shared_ptr<Playback> playback, std::unique_ptr<DriftCorrector> corrector,
           std::unique_ptr<DeviceKeeper> keeper);

  bool sets_pace() const override { return !corrector_; }
  std::vector<pipeline::LatencyTerm> latency() const override { return spec_.latency; }
  std::optional<PlayedCounters> played() const override;
  // Throws DeviceError when the device is gone for good.
  void write(const float* samples, std::int64_t frames) override;
  // Waits until all has been played, unless stopped; says how many frames were not, and how much silence was played for
  // want of frames.
  void finish() override;

 private:
  bool stop_asked() const;
  void check_device() const;
  void write_waiting(const float* samples, std::int64_t frames);
  void note_what_was_not_as_it_should_be() const;

  LiveSinkSpec spec_;
  std::shared_ptr<Playback> playback_;
  std::unique_ptr<DriftCorrector> corrector_;
  std::unique_ptr<DeviceKeeper> keeper_;
  std::chrono::nanoseconds pause_;
  std::atomic<std::int64_t> frames_in_{0};         // relaxed: a count that carries nothing
  std::atomic<std::int64_t> frames_unwritten_{0};  // likewise; given up at a stop
};

}  // namespace halotap::io
