#include "in_quotes.hpp"

#include <cstddef>

namespace halotap::io {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMostBytes = 60;
  std::string result = "'";
  for (const char c : text.substr(0, kMostBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    result += byte < 0x20 || byte == 0x7f ? '?' : c;
  }
  if (text.size() > kMostBytes) result += "...";
  return result += "'";
}

}  // namespace halotap::io
