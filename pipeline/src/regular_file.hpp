// A regular file, open for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "fault.hpp"

namespace halotap::pipeline {

// Reads any part of a file by its offset. What is no regular file (a directory, a FIFO, a device) is refused without
// waiting for it. [control]
class RegularFile {
 public:
  // Throws the fault's error when `path` cannot be opened or is no regular file.
  RegularFile(const std::filesystem::path& path, Fault fault);
  ~RegularFile();
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  std::uint64_t size_bytes() const { return size_bytes_; }  // as it was when opened
  const std::string& name() const { return name_; }         // for messages

  // Fills `bytes` from `offset` on; throws the fault's error when the file gives fewer.
  void read(std::uint64_t offset, std::span<char> bytes) const;

 private:
  std::string name_;
  Fault fault_;
  int descriptor_ = -1;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace halotap::pipeline
