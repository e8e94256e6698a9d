#include "npy/npy_header.hpp"

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"

namespace halotap::io {

using pipeline::DataError;

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// Reads the header's dictionary, {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, and nothing else: three
// keys in any order, each once, as NumPy writes them.
class DictionaryReader {
 public:
  // `first_byte`: where the text begins in the file.
  DictionaryReader(std::string_view text, std::size_t first_byte, const std::string& name)
      : text_(text), first_byte_(first_byte), name_(name) {}

  NpyHeader read() {
    NpyHeader header;
    bool has_type = false, has_order = false, has_shape = false;
    expect('{');
    while (!skip('}')) {
      const std::size_t key_begin = at_;
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !has_type) {
        read_type(header);
        has_type = true;
      } else if (key == "fortran_order" && !has_order) {
        header.fortran_order = boolean();
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        header.shape = shape();
        has_shape = true;
      } else {
        at_ = key_begin;
        fail("expected the keys descr, fortran_order and shape once each, got " + in_quotes(key));
      }
      if (!skip(',')) {
        expect('}');
        break;
      }
    }
    if (!has_type || !has_order || !has_shape) {
      fail(std::string("expected the key ") +
           (!has_type    ? "descr"
            : !has_order ? "fortran_order"
                         : "shape") +
           ", got the end of the header");
    }
    skip_spaces();
    if (at_ != text_.size()) fail("expected nothing behind the header's }, got " + in_quotes(text_.substr(at_)));
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw DataError(name_ + ": byte " + std::to_string(first_byte_ + at_) + ": " + what);
  }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }

  // Whether `c` comes next; passes over it.
  bool skip(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!skip(c)) fail(std::string("expected '") + c + "', got " + next());
  }

  std::string next() const { return at_ == text_.size() ? "the end of the header" : in_quotes(text_.substr(at_)); }

  std::string_view string() {
    skip_spaces();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail("expected a string, got " + next());
    const std::size_t begin = at_ + 1;
    const std::size_t end = text_.find(quote, begin);
    if (end == std::string_view::npos) fail("expected a closing quote, got " + next());
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  bool boolean() {
    skip_spaces();
    for (const std::string_view word : {"False", "True"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    fail("expected True or False, got " + next());
  }

  std::vector<std::int64_t> shape() {
    std::vector<std::int64_t> lengths;
    expect('(');
    while (!skip(')')) {
      const char* const begin = text_.data() + at_;
      std::int64_t length = -1;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), length);
      if (error != std::errc{} || length < 0) fail("expected an axis length, got " + next());
      at_ += static_cast<std::size_t>(end - begin);
      lengths.push_back(length);
      if (skip(',')) {
        skip_spaces();
        continue;
      }
      // (3) is a number in parentheses to Python; one axis is written (3,).
      if (lengths.size() == 1) fail("expected ',', got " + next());
      expect(')');
      break;
    }
    return lengths;
  }

  void read_type(NpyHeader& header) {
    skip_spaces();
    if (at_ < text_.size() && text_[at_] == '[') fail("expected numbers, got records (a structured dtype)");
    const std::size_t begin = at_;
    const std::string_view descr = string();
    const std::optional<NpyType> type = descr.size() == 3 ? type_of(descr.substr(1)) : std::nullopt;
    if (!type || (descr[0] != '<' && descr[0] != '>')) {
      at_ = begin;
      if (descr.find('O') != std::string_view::npos) {
        fail("expected numbers, got Python objects (dtype " + in_quotes(descr) + ")");
      }
      fail("expected dtype f2, f4, f8, i2 or i4 with < or > before it, got " + in_quotes(descr));
    }
    header.type = *type;
    header.big_endian = descr[0] == '>';
  }

  static std::optional<NpyType> type_of(std::string_view code) {
    if (code == "f2") return NpyType::kFloat16;
    if (code == "f4") return NpyType::kFloat32;
    if (code == "f8") return NpyType::kFloat64;
    if (code == "i2") return NpyType::kInt16;
    if (code == "i4") return NpyType::kInt32;
    return std::nullopt;
  }

  std::string_view text_;
  std::size_t first_byte_;
  const std::string& name_;
  std::size_t at_ = 0;
};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) text += (axis > 0 ? ", " : "") + std::to_string(shape[axis]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

void check_shape(const std::vector<std::int64_t>& shape, const std::string& name) {
  if (shape.empty() || shape.size() > 3) {
    throw DataError(name + ": expected [frames], [frames, channels] or [streams, channels, frames], got shape " +
                    shape_text(shape));
  }
  const std::int64_t streams = shape.size() == 3 ? shape[0] : 1;
  const std::int64_t channels = shape.size() == 1 ? 1 : shape[1];
  if (streams < 1 || streams > kMaxNpyStreams || channels < 1 || channels > kMaxNpyChannels ||
      streams * channels > kMaxNpyFrameValues) {
    throw DataError(name + ": expected 1 to " + std::to_string(kMaxNpyStreams) + " streams and 1 to " +
                    std::to_string(kMaxNpyChannels) + " channels, at most " + std::to_string(kMaxNpyFrameValues) +
                    " values a frame, got shape " + shape_text(shape));
  }
}

void check_size(const NpyHeader& header, std::int64_t file_size, const std::string& name) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  std::int64_t bytes = size_bytes(header.type);
  for (const std::int64_t length : header.shape) {
    if (length > 0 && bytes > kMost / length) {
      throw DataError(name + ": shape " + shape_text(header.shape) + " is larger than any file");
    }
    bytes *= length;
  }
  const std::int64_t held = file_size - header.data_offset_bytes;
  if (bytes != held) {
    throw DataError(name + ": shape " + shape_text(header.shape) + " takes " + std::to_string(bytes) +
                    " bytes behind the header, got " + std::to_string(held));
  }
}

}  // namespace

std::int64_t size_bytes(NpyType type) {
  switch (type) {
    case NpyType::kFloat16:
    case NpyType::kInt16:
      return 2;
    case NpyType::kFloat32:
    case NpyType::kInt32:
      return 4;
    case NpyType::kFloat64:
      return 8;
  }
  return 0;
}

NpyHeader read_npy_header(std::span<const std::byte> start, std::int64_t file_size, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  const auto byte = [&](std::size_t at) { return std::to_integer<std::size_t>(start[at]); };
  // Version 1 gives the header's length in 2 bytes, later ones in 4; little endian.
  if (text.size() < 10 || !text.starts_with(kMagic)) throw DataError(name + ": not an .npy file");
  const std::size_t version = byte(6);
  if (version < 1 || version > 3 || byte(7) != 0) {
    throw DataError(name + ": expected .npy version 1.0, 2.0 or 3.0, got " + std::to_string(version) + "." +
                    std::to_string(byte(7)));
  }
  const std::size_t begin = version == 1 ? 10 : 12;
  if (text.size() < begin) throw DataError(name + ": ends within the header's length");
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMaxNpyHeaderBytes - 12) {
    throw DataError(name + ": expected a header of at most 65536 bytes, got a length of " + std::to_string(length));
  }
  if (length > text.size() - begin) {
    throw DataError(name + ": expected a header of " + std::to_string(length) + " bytes, got " +
                    std::to_string(text.size() - begin) + " and then the end of the file");
  }
  NpyHeader header = DictionaryReader(text.substr(begin, length), begin, name).read();
  header.data_offset_bytes = static_cast<std::int64_t>(begin + length);
  check_shape(header.shape, name);
  check_size(header, file_size, name);
  return header;
}

std::string npy_header(const std::vector<std::int64_t>& shape) {
  // 10 bytes before the text, 54 of keys, up to 3 axes of 19 digits and their commas, and the line's end: below 128, a
  // multiple of 64 as readers like it.
  constexpr std::size_t kBytes = 128;
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape_text(shape) + ", }";
  text.resize(kBytes - 11, ' ');
  return std::string(kMagic) + std::string("\x01\x00", 2) + static_cast<char>(kBytes - 10) + '\0' + text + '\n';
}

}  // namespace halotap::io
