#include "json_reader.hpp"

#include <cstdint>
#include <exception>
#include <vector>

namespace halotap::pipeline {
namespace {

bool is_digit(int byte) { return byte >= '0' && byte <= '9'; }

class Reader {
 public:
  Reader(std::string_view text, JsonHandler& handler) : text_(text), handler_(handler) {}

  void read() {
    value();
    while (!open_.empty()) {
      const bool in_object = open_.back();
      skip_space();
      const int byte = peek();
      if (byte == (in_object ? '}' : ']')) {
        close();
      } else if (!first_) {
        expect(',');
        element();
      } else {
        element();
      }
    }
    skip_space();
    if (at_ != text_.size()) fail();
  }

 private:
  static constexpr int kEnd = -1;

  int peek() const { return at_ < text_.size() ? static_cast<unsigned char>(text_[at_]) : kEnd; }

  // At the byte that does not belong there.
  [[noreturn]] void fail() {
    const std::size_t end = at_ < text_.size() ? at_ + 1 : text_.size();
    handler_.syntax_error(at_, text_.substr(anchor_, end - anchor_));
    std::terminate();  // a handler that does not throw
  }

  void expect(char byte) {
    if (peek() != static_cast<unsigned char>(byte)) fail();
    ++at_;
  }

  void skip_space() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }

  // The next element of the innermost array, or key and value of the innermost object.
  void element() {
    skip_space();
    if (open_.back()) {
      if (peek() != '"') fail();
      handler_.key(string());
      skip_space();
      expect(':');
    }
    first_ = false;
    value();
  }

  void close() {
    ++at_;
    const bool in_object = open_.back();
    open_.pop_back();
    first_ = false;
    if (in_object) {
      handler_.end_object();
    } else {
      handler_.end_array();
    }
  }

  // A value, or the start of an object or array.
  void value() {
    skip_space();
    const int byte = peek();
    if (byte == '{' || byte == '[') {
      ++at_;
      open_.push_back(byte == '{');
      first_ = true;
      if (byte == '{') {
        handler_.start_object();
      } else {
        handler_.start_array();
      }
    } else if (byte == '"') {
      handler_.string(string());
    } else if (byte == '-' || is_digit(byte)) {
      number();
    } else if (byte == 't') {
      word("true");
      handler_.boolean(true);
    } else if (byte == 'f') {
      word("false");
      handler_.boolean(false);
    } else if (byte == 'n') {
      word("null");
      handler_.null();
    } else {
      fail();
    }
  }

  void word(std::string_view expected) {
    anchor_ = at_;
    for (const char byte : expected) expect(byte);
  }

  void digits() {
    if (!is_digit(peek())) fail();
    while (is_digit(peek())) ++at_;
  }

  void number() {
    anchor_ = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else {
      digits();
    }
    if (peek() == '.') {
      ++at_;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
    handler_.number(text_.substr(anchor_, at_ - anchor_));
  }

  std::string string() {
    anchor_ = at_;
    expect('"');
    std::string result;
    while (peek() != '"') {
      if (peek() == '\\') {
        ++at_;
        escape(result);
      } else {
        character(result);
      }
    }
    ++at_;
    return result;
  }

  // One character of UTF-8, as the table of RFC 3629 has it.
  void character(std::string& result) {
    const int lead = peek();
    if (lead < 0x20) fail();  // the end, too
    int least = 0x80;         // of the byte after the lead; what is below would be too long a form, or a surrogate
    int most = 0xBF;
    int more = 0;
    if (lead >= 0x80) {
      if (lead < 0xC2 || lead > 0xF4) fail();
      more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
      if (lead == 0xE0) least = 0xA0;
      if (lead == 0xED) most = 0x9F;
      if (lead == 0xF0) least = 0x90;
      if (lead == 0xF4) most = 0x8F;
    }
    result += text_[at_++];
    for (; more > 0; --more) {
      if (peek() < least || peek() > most) fail();
      result += text_[at_++];
      least = 0x80;
      most = 0xBF;
    }
  }

  std::uint32_t four_hex_digits() {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const int byte = peek();
      const int lower = byte | 0x20;
      if (is_digit(byte)) {
        code = code * 16 + static_cast<std::uint32_t>(byte - '0');
      } else if (lower >= 'a' && lower <= 'f') {
        code = code * 16 + static_cast<std::uint32_t>(lower - 'a' + 10);
      } else {
        fail();
      }
      ++at_;
    }
    return code;
  }

  void escape(std::string& result) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const int byte = peek();
    if (byte != 'u') {
      const std::size_t which = byte == kEnd ? kNames.npos : kNames.find(static_cast<char>(byte));
      if (which == kNames.npos) fail();
      result += kMeanings[which];
      ++at_;
      return;
    }
    ++at_;
    std::uint32_t code = four_hex_digits();
    if (code >= 0xDC00 && code < 0xE000) fail();
    if (code >= 0xD800 && code < 0xDC00) {  // the first half of a pair
      expect('\\');
      expect('u');
      const std::uint32_t low = four_hex_digits();
      if (low < 0xDC00 || low >= 0xE000) fail();
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append(code, result);
  }

  static void append(std::uint32_t code, std::string& result) {
    const auto tail = [&](int shift) { result += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
    if (code < 0x80) {
      result += static_cast<char>(code);
    } else if (code < 0x800) {
      result += static_cast<char>(0xC0 | code >> 6);
      tail(0);
    } else if (code < 0x10000) {
      result += static_cast<char>(0xE0 | code >> 12);
      tail(6);
      tail(0);
    } else {
      result += static_cast<char>(0xF0 | code >> 18);
      tail(12);
      tail(6);
      tail(0);
    }
  }

  std::string_view text_;
  JsonHandler& handler_;
  std::size_t at_ = 0;
  std::size_t anchor_ = 0;  // where the last string, number or word began
  std::vector<bool> open_;  // objects (true) and arrays around the place
  bool first_ = false;      // nothing yet in the innermost
};

}  // namespace

void read_json(std::string_view text, JsonHandler& handler) { Reader(text, handler).read(); }

}  // namespace halotap::pipeline
