// Writes JSON lines.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/sink.hpp"

namespace halotap::io {

// One object a frame and stream:
//   {"frame": 0, "time_s": 0, "values": [0.5, 1]}
// "stream" (counted from 0) comes after "frame" when there are several; "time_s" is left out when the rate is unknown;
// with names, "values" is an object. NaN and Inf, which JSON cannot say, become null. And one object an event, before
// the frame whose arrival made it:
//   {"event": "on", "channel": "speech", "frame": 96, "time_s": 0.002, "stage": 1}
// "channel" is a number when the channels have no names. "-" is standard output. Options: lines. Throws ConfigError for
// lines=events where no event can come. [control]
std::unique_ptr<Sink> open_jsonl_sink(Address& address, const SinkSpec& spec);

}  // namespace halotap::io
