// How a wrong input file is told.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halotap::pipeline {

// Whose file it is, and so which exception says that it is wrong.
enum class Fault { kModel, kConfig };

// Throws ModelError or ConfigError. `message` is one line.
[[noreturn]] void fail(Fault fault, const std::string& message);

// Bytes of the UTF-8 character that `text` begins with; 0 when it begins with none.
std::size_t utf8_length(std::string_view text);

// `text` with control characters and bytes that are no UTF-8 written as \n or \x1b, so that a name taken from a file
// can never break a message into lines or reach a terminal as an escape sequence.
std::string printable(std::string_view text);

// printable text in single quotes, cut after about 80 bytes.
std::string in_quotes(std::string_view text);

}  // namespace halotap::pipeline
