// One direction of a sound device, running.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "live/device_keeper.hpp"

namespace halotap::io {

class Capture;
class Playback;

struct PortAudioStreamSpec {
  std::string address;  // for messages
  std::string device;   // name or number; empty or "default" for the default
  std::int64_t channels = 1;
  double rate_hz = 0;
  std::int64_t block_frames = 0;  // a callback
  bool low_latency = false;       // of the two latencies that a device suggests
};

// Opens a device that delivers to `capture`; `latency_frames` gets what the device states. Throws DeviceError, naming
// the devices there are when there is none of that name, or when it takes another rate than that.
std::unique_ptr<DeviceStream> open_capture_stream(const PortAudioStreamSpec& spec,
                                                  const std::shared_ptr<Capture>& capture,
                                                  std::atomic<std::int64_t>& latency_frames);

// Opens a device that plays what `playback` has; `latency_frames` likewise. Throws likewise.
std::unique_ptr<DeviceStream> open_playback_stream(const PortAudioStreamSpec& spec,
                                                   const std::shared_ptr<Playback>& playback,
                                                   std::atomic<std::int64_t>& latency_frames);

}  // namespace halotap::io
