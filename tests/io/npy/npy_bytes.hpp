// .npy files made by hand.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace halotap::io {

// A file with this header text, as NumPy frames it, and `data` behind it.
inline std::string npy_file(const std::string& header, const std::string& data, char version = 1) {
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::string text = header;
  while ((8 + length_bytes + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  std::string file = "\x93NUMPY";
  file += version;
  file += '\0';
  for (std::size_t i = 0; i < length_bytes; ++i) file += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return file + text + data;
}

// The same for the three keys in NumPy's words; `shape` like "(3, 2)".
inline std::string npy_file(const std::string& descr, bool fortran_order, const std::string& shape,
                            const std::string& data) {
  return npy_file("{'descr': '" + descr + "', 'fortran_order': " + (fortran_order ? "True" : "False") +
                      ", 'shape': " + shape + ", }",
                  data);
}

// The bytes of `values` as they lie in memory, or reversed one by one.
template <class Value>
std::string bytes_of(const std::vector<Value>& values, bool reversed = false) {
  std::string bytes;
  for (const Value value : values) {
    char raw[sizeof(Value)];
    std::memcpy(raw, &value, sizeof(Value));
    if (reversed) std::reverse(raw, raw + sizeof(Value));
    bytes.append(raw, sizeof(Value));
  }
  return bytes;
}

}  // namespace halotap::io
