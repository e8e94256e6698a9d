// Lines for the person at the terminal.
#pragma once

#include <string>
#include <string_view>

namespace halotap::apps {

// Writes `halotap: message` to standard error as one line: line breaks become spaces and control characters, which a
// malformed file can smuggle into a message, question marks.
void say(std::string_view message);

// `digits` significant digits, more for a larger whole part, for figures that people read: 1.235e-07, 0.5, 88080.
std::string format_number(double value, int digits = 4);

// "12.3 us", "4.56 ms" or "7.8 s".
std::string format_duration_ns(double nanoseconds);

}  // namespace halotap::apps
