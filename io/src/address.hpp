// An endpoint's address taken apart.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halotap::io {

// `scheme://path?option=value&...`, or a bare path whose extension gives the scheme ("x.wav" is wav). Options are
// percent-decoded; the path is too when a scheme is written, and taken as it is when not.
//
// An endpoint takes the options it knows; require_all_options_taken then refuses what nobody took, so that a misspelt
// option never passes in silence. [control]
class Address {
 public:
  // Throws ConfigError for an empty address, a bare path without a known extension, or malformed options.
  explicit Address(std::string text);

  const std::string& text() const { return text_; }      // as the user wrote it, for messages
  const std::string& scheme() const { return scheme_; }  // "npy"
  const std::string& path() const { return path_; }      // "out.npy"; "-" is standard input or output

  // Take an option out, or nothing when it is absent. The typed forms throw ConfigError naming the option, the values
  // it may have and the value given.
  std::optional<std::string> take(std::string_view option);
  std::optional<bool> take_bool(std::string_view option);  // true or false
  std::optional<double> take_number(std::string_view option, double least, double most);
  std::optional<std::int64_t> take_integer(std::string_view option, std::int64_t least, std::int64_t most);
  std::optional<std::vector<std::string>> take_list(std::string_view option);  // comma-separated

  // Throws ConfigError naming the options left and those that `known` lists.
  void require_all_options_taken(std::string_view known) const;

 private:
  std::string text_;
  std::string scheme_;
  std::string path_;
  std::map<std::string, std::string, std::less<>> options_;
};

}  // namespace halotap::io
