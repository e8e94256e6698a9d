// Made-up signals.
#pragma once

#include <memory>

#include "address.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/io/source.hpp"

namespace halotap::io {

// Opens `synth://sine`, `synth://chirp`, `synth://noise` or `synth://robot`; docs/endpoints.md has their options.
//
// Every sample is a function of kind, options, stream, channel and frame number alone, so no way of reading changes
// it. Noise is integer arithmetic and one product: the same bits everywhere. The others call the C library's sine and
// exponential, whose last bit may differ between systems.
//
// Throws ConfigError for another kind and an option out of range. [control]
std::unique_ptr<Source> open_synth_source(Address& address, const SourceRequest& request);

}  // namespace halotap::io
