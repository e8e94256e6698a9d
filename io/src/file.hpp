// An open file: positioned and sequential transfer that is whole or throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace halotap::io {

// Owns a file descriptor. Every member throws DataError with the name and the system's reason; none leaves a transfer
// half done in silence. One thread. [control]
class File {
 public:
  File() = default;  // none open
  // Takes over `descriptor`; `name` is for messages.
  File(int descriptor, std::string name);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  // Opens a regular file for reading. Throws DataError when it is missing, unreadable, a folder, a pipe or a device.
  static File open_regular(const std::string& path);

  // A file without a name in `folder`, gone when closed. Empty: the system's folder for such (TMPDIR, else /tmp).
  // `purpose`, the file that it is needed for, comes first in messages.
  static File temporary(const std::string& folder, const std::string& purpose);

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }
  bool is_regular() const { return is_regular_; }
  std::int64_t size_bytes() const;

  // Reads or writes exactly `size` bytes at `offset`.
  void read_at(std::int64_t offset, void* bytes, std::size_t size) const;
  void write_at(std::int64_t offset, const void* bytes, std::size_t size);

  // Reads up to `size` bytes at the file's position; 0 at the end.
  std::size_t read_some(void* bytes, std::size_t size);
  // Writes exactly `size` bytes at the file's position.
  void write(const void* bytes, std::size_t size);

  void truncate(std::int64_t size);
  // Closes now, so that what the system reports only then (a quota, a network disk) is not lost.
  void close();

 private:
  int descriptor_ = -1;
  std::string name_;
  bool is_regular_ = false;
};

}  // namespace halotap::io
