// Reads JSON (RFC 8259) event by event, for headers of foreign files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halotap::pipeline {

// Takes what read_json finds, in the order of the text. A handler that has seen enough throws.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;

  virtual void null() = 0;
  virtual void boolean(bool value) = 0;
  virtual void number(std::string_view text) = 0;    // as written
  virtual void string(const std::string& text) = 0;  // escapes resolved
  virtual void start_object() = 0;
  virtual void key(const std::string& text) = 0;
  virtual void end_object() = 0;
  virtual void start_array() = 0;
  virtual void end_array() = 0;
  // The text is no JSON at byte `position`. `token` reaches from the start of the last string, number or word up to
  // that byte, for a person to find the place. Must throw.
  virtual void syntax_error(std::size_t position, std::string_view token) = 0;
};

// Reads `text`, which must be one value and nothing behind it but white space. Strings must be UTF-8, and nesting is
// bounded only by the handler's throwing: no recursion. [control]
void read_json(std::string_view text, JsonHandler& handler);

}  // namespace halotap::pipeline
