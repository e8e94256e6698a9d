// An output file of lines.
#pragma once

#include <string>
#include <string_view>

#include "output_file.hpp"

namespace halotap::io {

// Gathers text and hands it to an OutputFile: a file by large pieces, a terminal or pipe (where somebody may be waiting
// for it) whenever a sink's write ends. [control]
class TextOutput {
 public:
  explicit TextOutput(const std::string& path) : output_(path) {}

  void append(std::string_view text) { text_ += text; }
  void append(char c) { text_ += c; }
  // The shortest text that reads back to the same number; "nan", "inf" or "-inf".
  void append_number(float number);
  void append_number(double number);
  void append_integer(std::int64_t number);

  // The sink's write ends here. Throws DataError.
  void end_write();
  void finish();

 private:
  OutputFile output_;
  std::string text_;
};

}  // namespace halotap::io
