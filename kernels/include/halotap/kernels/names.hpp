// Tables of an enumeration's values and the words for them, as in options and files.
#pragma once

#include <optional>
#include <string_view>

namespace halotap::kernels {

// The word for a value in a table of (value, word); "?" for one that is not there. [any thread]
template <typename Names, typename Value>
std::string_view name_of(const Names& names, Value value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "?";
}

// The value that a word stands for; nothing for any other word. [any thread]
template <typename Names>
auto value_of(const Names& names, std::string_view word) -> std::optional<typename Names::value_type::first_type> {
  for (const auto& [value, name] : names) {
    if (name == word) return value;
  }
  return std::nullopt;
}

}  // namespace halotap::kernels
