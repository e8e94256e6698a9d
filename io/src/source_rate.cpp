#include "source_rate.hpp"

namespace halotap::io {

double take_rate_hz(Address& address, const SourceRequest& request) {
  return address.take_number("rate", 1e-3, 1e9).value_or(request.rate_hz);
}

}  // namespace halotap::io
