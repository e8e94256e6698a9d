// An .npy file as a sink.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/sink.hpp"

namespace halotap::io {

// Options: none. [control]
std::unique_ptr<Sink> open_npy_sink(Address& address, const SinkSpec& spec);

}  // namespace halotap::io
