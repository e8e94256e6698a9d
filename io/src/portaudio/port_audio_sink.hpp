// Loudspeakers, and whatever else a sound system offers as one.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/sink.hpp"

namespace halotap::io {

// Opens the device that `address.path()` names and starts it, at the result's rate and with its channels. Takes block,
// latency, reconnect, drift and reserve_ms (docs/live-audio.md).
//
// Throws ConfigError for an option out of range, several streams or a result without a rate, and DeviceError when there
// is no such device, it does not take the rate or the channels, or the sound system does not answer. [control]
std::unique_ptr<Sink> open_port_audio_sink(Address& address, const SinkSpec& spec);

}  // namespace halotap::io
