// Float WAV results, through libsndfile.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/sink.hpp"

namespace halotap::io {

// Writes 32-bit float WAV: RIFF when the announced frames fit in its 4 GiB; otherwise, or when no length is announced,
// RF64, which becomes RIFF at the end if that is enough. Samples go in unscaled and unclipped; NaN and Inf stay.
//
// Throws ConfigError for a pipe, several streams, more channels than a file may have and a rate that is no whole number
// of Hz; DataError when the file cannot be written. [control]
std::unique_ptr<Sink> open_sndfile_sink(Address& address, const SinkSpec& spec);

}  // namespace halotap::io
