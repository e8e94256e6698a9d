#include "message.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace halotap::apps {

void say(std::string_view message) {
  std::string line = "halotap: ";
  for (const char c : message) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\r' || c == '\t') {
      line += ' ';
    } else {
      line += code < 0x20 || code == 0x7f ? '?' : c;
    }
  }
  while (line.back() == ' ') line.pop_back();
  line += '\n';
  std::cerr << line << std::flush;
}

std::string format_number(double value, int digits) {
  // %g writes 88080 with four digits as 8.808e+04.
  if (std::abs(value) >= 1 && std::abs(value) < 1e15) {
    digits = std::max(digits, static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1);
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return text;
}

std::string format_duration_ns(double nanoseconds) {
  if (nanoseconds < 1e6) return format_number(nanoseconds / 1e3, 3) + " us";
  if (nanoseconds < 1e9) return format_number(nanoseconds / 1e6, 3) + " ms";
  return format_number(nanoseconds / 1e9, 4) + " s";
}

}  // namespace halotap::apps
