// What source and sink have in common in their addresses.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "address.hpp"
#include "live/device_keeper.hpp"
#include "portaudio/port_audio_stream.hpp"

namespace halotap::io {

struct PortAudioOptions {
  PortAudioStreamSpec stream;
  DeviceKeeperSpec keeper;  // its name and limits
};

// Takes block, latency and reconnect; `rate_hz` and `channels` are what the device is to run at. Throws ConfigError.
// [control]
PortAudioOptions take_port_audio_options(Address& address, double rate_hz, std::int64_t channels);

}  // namespace halotap::io
