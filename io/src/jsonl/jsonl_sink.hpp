// Writes JSON lines.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/sink.hpp"

namespace halotap::io {

// One object a frame and stream:
//   {"frame": 0, "time_s": 0, "values": [0.5, 1]}
// "stream" (counted from 0) comes after "frame" when there are several; "time_s" is left out when the rate is unknown;
// with names, "values" is an object. NaN and Inf, which JSON cannot say, become null. "-" is standard output.
// Options: none. [control]
std::unique_ptr<Sink> open_jsonl_sink(Address& address, const SinkSpec& spec);

}  // namespace halotap::io
