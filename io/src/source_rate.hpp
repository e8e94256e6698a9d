// The rate of sources whose files do not state one.
#pragma once

#include "address.hpp"
#include "halotap/io/endpoint.hpp"

namespace halotap::io {

// Takes the option `rate` (Hz); without it, the request's rate. [control]
double take_rate_hz(Address& address, const SourceRequest& request);

}  // namespace halotap::io
