#include "csv/csv_format.hpp"

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"

namespace halotap::io {

namespace {

// from_chars takes no '+', and after one no second sign is to pass.
std::string_view without_plus(std::string_view text) {
  return text.size() > 1 && text[0] == '+' && text[1] != '-' ? text.substr(1) : text;
}

template <class Real>
std::errc read_whole(std::string_view text, Real& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (stop != end) return std::errc::invalid_argument;
  // from_chars also knows "infinity" and "nan(...)", which no array program writes.
  const bool is_word = error == std::errc{} && !std::isfinite(number);
  return is_word && text.size() != (text[0] == '-' ? 4u : 3u) ? std::errc::invalid_argument : error;
}

}  // namespace

char take_delimiter(Address& address) {
  const std::string value = address.take("delimiter").value_or(",");
  if (value == "tab") return '\t';
  if (value != "," && value != ";") {
    throw pipeline::ConfigError(address.text() + ": option delimiter: expected ',', ';' or tab, got " +
                                in_quotes(value));
  }
  return value[0];
}

std::optional<double> number_in(std::string_view text) {
  double number = 0;
  return read_whole(without_plus(text), number) == std::errc{} ? std::optional(number) : std::nullopt;
}

std::optional<float> float_in(std::string_view text) {
  float number = 0;
  const std::errc error = read_whole(without_plus(text), number);
  if (error == std::errc{}) return number;
  // Only here by way of a double, which rounds twice.
  if (error == std::errc::result_out_of_range) {
    if (const std::optional<double> wide = number_in(text)) return static_cast<float>(*wide);
  }
  return std::nullopt;
}

}  // namespace halotap::io
