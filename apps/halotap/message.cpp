#include "message.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <mutex>

namespace halotap::apps {
namespace {

// The status line, and the turn of whoever writes.
std::mutex turn;
std::string shown;

// In a turn. Spaces and not an escape sequence: they work on every terminal.
void erase_status() {
  if (!shown.empty()) std::cerr << '\r' << std::string(shown.size(), ' ') << '\r' << std::flush;
}

void draw_status() { std::cerr << shown << std::flush; }

// A line that fills its row would begin the next one.
std::size_t most_columns() {
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  return is_known ? size.ws_col - 1 : 79;
}

}  // namespace

void show_status(std::string_view line) {
  const std::lock_guard lock(turn);
  const std::string cut(line.substr(0, most_columns()));
  if (cut.size() < shown.size()) erase_status();
  if (!cut.empty()) std::cerr << '\r';
  shown = cut;
  draw_status();
}

void print(std::ostream& out, std::string_view lines) {
  const std::lock_guard lock(turn);
  erase_status();
  out << lines << std::flush;
  draw_status();
}

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
  print(std::cerr, line);
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

}  // namespace halotap::apps
