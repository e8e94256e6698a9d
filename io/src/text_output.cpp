#include "text_output.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace halotap::io {

namespace {

template <class Number>
std::string_view text_of(Number number, std::array<char, 32>& room) {
  return {room.data(), std::to_chars(room.data(), room.data() + room.size(), number).ptr};
}

}  // namespace

// A NaN's sign is left out: it says nothing, and differs between processors.
void TextOutput::append_number(float number) {
  std::array<char, 32> room;
  append(std::isnan(number) ? "nan" : text_of(number, room));
}

void TextOutput::append_number(double number) {
  std::array<char, 32> room;
  append(std::isnan(number) ? "nan" : text_of(number, room));
}

void TextOutput::append_integer(std::int64_t number) {
  std::array<char, 32> room;
  append(text_of(number, room));
}

void TextOutput::end_write() {
  constexpr std::size_t kPieceBytes = 1 << 16;
  if (output_.file().is_regular() && text_.size() < kPieceBytes) return;
  output_.file().write(text_.data(), text_.size());
  text_.clear();
}

void TextOutput::finish() {
  output_.file().write(text_.data(), text_.size());
  text_.clear();
  output_.finish();
}

}  // namespace halotap::io
