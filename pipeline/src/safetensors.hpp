// Reader of safetensors files: a JSON header that names tensors, then their bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "regular_file.hpp"

namespace halotap::pipeline {

// Where one tensor lies and what it holds.
struct TensorEntry {
  std::string dtype;                // "F32"
  std::vector<std::int64_t> shape;  // fastest axis last; empty for a scalar
  std::uint64_t begin = 0;          // bytes from the start of the data
  std::uint64_t end = 0;
};

// "[48,40,1]"
std::string to_string(const std::vector<std::int64_t>& shape);

// A safetensors file, checked whole when opened:
//
//     u64 little endian: header bytes | header: JSON | data
//
// Every tensor has a known dtype and a span of its shape's size; together the spans cover the data once, without gap
// or overlap. Names are unique. Limits: header 16 MiB, 65,536 tensors and metadata entries, 8 axes a tensor. Numbers
// are read when asked for. [control]
class SafetensorsFile {
 public:
  // Throws ModelError naming the file, the tensor, expected and got.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& name() const { return file_.name(); }  // the file's, for messages
  const std::map<std::string, TensorEntry, std::less<>>& tensors() const { return tensors_; }

  // The tensor's numbers in the file's order, each exactly as stored. Throws ModelError for a tensor that is not there
  // or is not F16, BF16, F32 or F64.
  std::vector<double> read(std::string_view tensor) const;

 private:
  void check_spans() const;

  RegularFile file_;
  std::map<std::string, TensorEntry, std::less<>> tensors_;
  std::uint64_t data_offset_ = 0;  // of the data, in the file
};

}  // namespace halotap::pipeline
