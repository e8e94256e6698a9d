// The header of an .npy array: what is in the bytes behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace halotap::io {

enum class NpyType { kFloat16, kFloat32, kFloat64, kInt16, kInt32 };

// Bytes of one value.
std::int64_t size_bytes(NpyType type);

// Largest shape read: what a frame buffer of float64 still holds without trouble, far above any real recording.
inline constexpr std::int64_t kMaxNpyStreams = 1 << 20;
inline constexpr std::int64_t kMaxNpyChannels = 1 << 16;
inline constexpr std::int64_t kMaxNpyFrameValues = 1 << 24;  // streams * channels

struct NpyHeader {
  NpyType type = NpyType::kFloat32;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;     // [frames], [frames, channels] or [streams, channels, frames]
  std::int64_t data_offset_bytes = 0;  // where the header ends
};

// The most bytes of a file that read_npy_header needs: magic, version, length and a header of 64 KiB.
inline constexpr std::size_t kMaxNpyHeaderBytes = 12 + 65536;

// Reads the header of a file of `file_size` bytes from its first bytes (the whole file, or kMaxNpyHeaderBytes of it).
// `name` is for messages. Throws DataError when it is not such a header, holds a type or shape that is not read, or
// does not describe exactly the rest of the file.
NpyHeader read_npy_header(std::span<const std::byte> start, std::int64_t file_size, const std::string& name);

// A header for float32 values in C order, of the same length for every shape of as many axes, so that a shape can be
// corrected in place.
std::string npy_header(const std::vector<std::int64_t>& shape);

}  // namespace halotap::io
