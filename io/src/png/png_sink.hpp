// A picture as a sink.
#pragma once

#include <cstdint>
#include <memory>

#include "address.hpp"
#include "halotap/io/sink.hpp"

namespace halotap::io {

// What a picture can show readably.
inline constexpr std::int64_t kMaxPictureStreams = 4;
inline constexpr std::int64_t kMaxPictureChannels = 1024;

// Draws the whole result as a heat map, channels over time, when it is finished. Memory is bounded however
// many frames come: at most 2048 steps of time are kept. Options: none.
//
// Throws ConfigError for more streams or channels than a picture shows. [control]
std::unique_ptr<Sink> open_png_sink(Address& address, const SinkSpec& spec);

}  // namespace halotap::io
