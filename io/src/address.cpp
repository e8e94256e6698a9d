#include "address.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"

namespace halotap::io {

using pipeline::ConfigError;

namespace {

struct Extension {
  std::string_view ending;
  std::string_view scheme;
};
constexpr std::array kExtensions = {
    Extension{".npy", "npy"}, Extension{".npz", "npz"},     Extension{".csv", "csv"},
    Extension{".wav", "wav"}, Extension{".flac", "flac"},   Extension{".ogg", "ogg"},
    Extension{".oga", "ogg"}, Extension{".jsonl", "jsonl"}, Extension{".png", "png"},
};

// ASCII only: what std::tolower does depends on the locale.
std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

// The scheme that a path's extension stands for, or nothing.
std::string_view scheme_of_path(std::string_view path) {
  const std::string name = lower(path);
  for (const Extension& extension : kExtensions) {
    if (name.ends_with(extension.ending)) return extension.scheme;
  }
  return {};
}

bool is_scheme(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '+' || c == '-';
  });
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string percent_decoded(std::string_view part, const std::string& address) {
  std::string result;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '%') {
      result += part[i];
      continue;
    }
    const int high = i + 2 < part.size() ? hex_digit(part[i + 1]) : -1;
    const int low = i + 2 < part.size() ? hex_digit(part[i + 2]) : -1;
    const int byte = high < 0 || low < 0 ? -1 : high * 16 + low;
    if (byte <= 0) {
      throw ConfigError(address + ": expected two hex digits (not 00) after %, got " + in_quotes(part.substr(i, 3)) +
                        "; a % of the text is written %25");
    }
    result += static_cast<char>(byte);
    i += 2;
  }
  return result;
}

std::string extension_list() {
  std::string list;
  for (const Extension& extension : kExtensions) {
    if (!list.empty()) list += ' ';
    list += extension.ending;
  }
  return list;
}

// `value` of `option` read whole as a number within [least, most], or ConfigError.
template <class Number>
Number checked_number(const std::string& address, std::string_view option, const std::string& value, Number least,
                      Number most, const char* what) {
  Number number{};
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  // A NaN fails both comparisons.
  if (error != std::errc{} || stop != end || !(number >= least && number <= most)) {
    std::array<char, 64> range{};
    char* at = std::to_chars(range.data(), range.data() + 30, least).ptr;
    for (const char c : std::string_view(" to ")) *at++ = c;
    at = std::to_chars(at, range.data() + range.size(), most).ptr;
    throw ConfigError(address + ": option " + std::string(option) + ": expected " + what + " from " +
                      std::string(range.data(), at) + ", got " + in_quotes(value));
  }
  return number;
}

}  // namespace

Address::Address(std::string text) : text_(std::move(text)) {
  if (text_.empty()) throw ConfigError("empty address: expected a path or scheme://path");
  if (text_.find('\0') != std::string::npos) throw ConfigError(in_quotes(text_) + ": a zero byte in an address");

  const std::string_view whole = text_;
  std::string_view path = whole;
  std::optional<std::string_view> query;
  const std::size_t separator = whole.find("://");
  if (separator != std::string_view::npos && is_scheme(whole.substr(0, separator))) {
    scheme_ = lower(whole.substr(0, separator));
    path = whole.substr(separator + 3);
    if (const std::size_t mark = path.find('?'); mark != std::string_view::npos) {
      query = path.substr(mark + 1);
      path = path.substr(0, mark);
    }
    path_ = percent_decoded(path, text_);
  } else {
    // Options begin at the first '?' behind a known extension, so that "what?.npy" is still a path.
    for (std::size_t mark = whole.find('?'); mark != std::string_view::npos; mark = whole.find('?', mark + 1)) {
      if (!scheme_of_path(whole.substr(0, mark)).empty()) {
        query = whole.substr(mark + 1);
        path = whole.substr(0, mark);
        break;
      }
    }
    scheme_ = scheme_of_path(path);
    path_ = path;
    if (scheme_.empty()) {
      throw ConfigError(text_ + ": the format is not clear from the name: expected an extension of " +
                        extension_list() + ", or scheme://path");
    }
  }
  if (!query) return;

  for (std::string_view rest = *query;;) {
    const std::size_t end = rest.find('&');
    const std::string_view item = rest.substr(0, end);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw ConfigError(text_ + ": expected option=value after '?', got " + in_quotes(item));
    }
    const std::string option = percent_decoded(item.substr(0, equals), text_);
    if (!options_.emplace(option, percent_decoded(item.substr(equals + 1), text_)).second) {
      throw ConfigError(text_ + ": option " + in_quotes(option) + " is given twice");
    }
    if (end == std::string_view::npos) break;
    rest = rest.substr(end + 1);
  }
}

std::optional<std::string> Address::take(std::string_view option) {
  const auto found = options_.find(option);
  if (found == options_.end()) return std::nullopt;
  std::string value = std::move(found->second);
  options_.erase(found);
  return value;
}

std::optional<bool> Address::take_bool(std::string_view option) {
  const std::optional<std::string> value = take(option);
  if (!value) return std::nullopt;
  if (*value != "true" && *value != "false") {
    throw ConfigError(text_ + ": option " + std::string(option) + ": expected true or false, got " + in_quotes(*value));
  }
  return *value == "true";
}

std::optional<double> Address::take_number(std::string_view option, double least, double most) {
  const std::optional<std::string> value = take(option);
  if (!value) return std::nullopt;
  return checked_number(text_, option, *value, least, most, "a number");
}

std::optional<std::int64_t> Address::take_integer(std::string_view option, std::int64_t least, std::int64_t most) {
  const std::optional<std::string> value = take(option);
  if (!value) return std::nullopt;
  return checked_number(text_, option, *value, least, most, "an integer");
}

std::optional<std::vector<std::string>> Address::take_list(std::string_view option) {
  const std::optional<std::string> value = take(option);
  if (!value) return std::nullopt;
  std::vector<std::string> items;
  for (std::string_view rest = *value;;) {
    const std::size_t comma = rest.find(',');
    items.emplace_back(rest.substr(0, comma));
    if (items.back().empty()) {
      throw ConfigError(text_ + ": option " + std::string(option) +
                        ": expected names or numbers with commas between, got " + in_quotes(*value));
    }
    if (comma == std::string_view::npos) return items;
    rest = rest.substr(comma + 1);
  }
}

void Address::require_all_options_taken(std::string_view known) const {
  if (options_.empty()) return;
  std::string left;
  for (const auto& [option, value] : options_) left += (left.empty() ? "" : ", ") + in_quotes(option);
  throw ConfigError(text_ + ": unknown option " + left + "; " + scheme_ + " has " +
                    (known.empty() ? "none" : std::string(known)));
}

}  // namespace halotap::io
