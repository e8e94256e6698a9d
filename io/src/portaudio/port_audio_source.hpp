// Microphones, and whatever else a sound system offers as one.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/io/source.hpp"

namespace halotap::io {

// Opens the device that `address.path()` names and starts it. Takes rate, channels, block, latency and reconnect
// (docs/live-audio.md); rate and channels are the request's when not given, else 48000 and 1.
//
// Throws ConfigError for an option out of range, and DeviceError when there is no such device, it does not take the
// rate, or the sound system does not answer. [control]
std::unique_ptr<Source> open_port_audio_source(Address& address, const SourceRequest& request);

}  // namespace halotap::io
