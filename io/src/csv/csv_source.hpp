// Reads CSV files.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/io/source.hpp"

namespace halotap::io {

// One row a frame, one column a channel, numbers only; "-" is standard input. A first row of names names the channels.
// Options: delimiter, header (true or false; without it, a first row without numbers is one), rate. [control]
std::unique_ptr<Source> open_csv_source(Address& address, const SourceRequest& request);

}  // namespace halotap::io
