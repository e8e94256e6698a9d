// Writes CSV files.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/sink.hpp"

namespace halotap::io {

// One row a frame, below a row of names when the channels have them; numbers as short as they can be and still read
// back to the same float. "-" is standard output. Options: delimiter. Throws ConfigError for several streams. [control]
std::unique_ptr<Sink> open_csv_sink(Address& address, const SinkSpec& spec);

}  // namespace halotap::io
