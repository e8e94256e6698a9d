// WAV, FLAC and OGG recordings, through libsndfile.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/io/source.hpp"

namespace halotap::io {

// Opens the audio file at `address.path()`; its content, not its name, says which of the three it is. Integer samples
// are scaled to [-1, 1). Takes no options.
//
// Throws DataError when the file cannot be read, is something else, is coded in a way that is not listed in
// docs/endpoints.md, has channels or a rate out of range, or promises another number of frames than it holds; what
// shows only on decoding is thrown by read. [control]
std::unique_ptr<Source> open_sndfile_source(Address& address, const SourceRequest& request);

}  // namespace halotap::io
