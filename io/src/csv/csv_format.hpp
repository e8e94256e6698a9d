// What CSV source and sink share.
#pragma once

#include <optional>
#include <string_view>

#include "address.hpp"

namespace halotap::io {

// The option `delimiter`: "," (when absent), ";" or "tab". [control]
char take_delimiter(Address& address);

// `text` as a number: as std::from_chars reads it, with an optional sign before it, or nan or inf in any case. Nothing
// when it is anything else, or beyond double's range.
std::optional<double> number_in(std::string_view text);

// The same, rounded once to float; what is beyond float's range becomes Inf or 0, as for a float64 array.
std::optional<float> float_in(std::string_view text);

}  // namespace halotap::io
