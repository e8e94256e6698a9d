// Arrays in .npz archives.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"

namespace halotap::io {

// Options: array (its name; may be left out when the archive holds one), rate. The array is unpacked to a temporary
// file: an archive can only be read front to back. [control]
std::unique_ptr<Source> open_npz_source(Address& address, const SourceRequest& request);

// An archive of one array. Options: array (its name, "y" unless given). [control]
std::unique_ptr<Sink> open_npz_sink(Address& address, const SinkSpec& spec);

}  // namespace halotap::io
