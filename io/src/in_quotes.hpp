// Foreign text inside a message.
#pragma once

#include <string>
#include <string_view>

namespace halotap::io {

// `text` in quotes, fit for one line on a terminal: control bytes become '?', and what is longer than 60 bytes is cut
// and ends in "...".
std::string in_quotes(std::string_view text);

}  // namespace halotap::io
