// Just enough of .npy, written apart from the program's own reader, to make and change recordings in tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace halotap::apps {

// A little-endian, C-ordered array of f4 or f8; the last axis is the fastest.
struct ArrayFile {
  std::string type = "<f8";
  std::vector<std::int64_t> shape;
  std::vector<double> values;
};

ArrayFile read_array(const std::filesystem::path& file);
void write_array(const std::filesystem::path& file, const ArrayFile& array);

}  // namespace halotap::apps
