// What source and sink have in common in their addresses.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "address.hpp"
#include "halotap/pipeline/latency_term.hpp"
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

// What a frame waits for in the device: what it states, once it is open, at least its block; else the block. [control]
pipeline::LatencyTerm device_latency(const PortAudioStreamSpec& spec, std::optional<std::int64_t> stated_frames);

}  // namespace halotap::io
