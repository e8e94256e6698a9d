// Lines for the person at the terminal.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

namespace halotap::apps {

// Writes `halotap: message` to standard error as one line: line breaks become spaces and control characters, which a
// malformed file can smuggle into a message, question marks. [any thread]
void say(std::string_view message);

// Keeps `line` as the last one on the terminal that standard error is, cut to its width, in place of the one before;
// empty: none. Messages, and what `print` writes, go above it. [any thread]
void show_status(std::string_view line);

// Writes whole lines to standard output or error while a status may be shown. [any thread]
void print(std::ostream& out, std::string_view lines);

// `digits` significant digits, more for a larger whole part, for figures that people read: 1.235e-07, 0.5, 88080.
std::string format_number(double value, int digits = 4);

}  // namespace halotap::apps
