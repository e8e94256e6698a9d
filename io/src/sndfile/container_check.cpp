#include "sndfile/container_check.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

#include "halotap/pipeline/errors.hpp"
#include "sndfile/limits.hpp"

namespace halotap::io {
namespace {

using pipeline::DataError;

bool spells(const unsigned char* bytes, std::string_view word) {
  return std::memcmp(bytes, word.data(), word.size()) == 0;
}

std::uint64_t number(const unsigned char* bytes, int count, bool big_endian) {
  std::uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    value = value << 8 | bytes[big_endian ? i : count - 1 - i];
  }
  return value;
}

bool is_chunk_name(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char letter) { return letter >= 0x20 && letter < 0x7f; });
}

std::string place(const File& file, std::int64_t at) { return file.name() + ": byte " + std::to_string(at) + ": "; }

// `at`: the chunk's content, `size` bytes that the file has.
void check_format_chunk(const File& file, std::int64_t at, std::int64_t size, bool big_endian) {
  std::array<unsigned char, 8> format{};
  if (size < 16) {
    throw DataError(place(file, at) + "format chunk: expected at least 16 bytes, got " + std::to_string(size));
  }
  file.read_at(at, format.data(), format.size());
  const auto channels = static_cast<std::int64_t>(number(&format[2], 2, big_endian));
  if (channels < 1 || channels > kMaxAudioChannels) {
    throw DataError(place(file, at + 2) + "channels: expected 1 to " + std::to_string(kMaxAudioChannels) + ", got " +
                    std::to_string(channels));
  }
  const auto rate_hz = static_cast<std::int64_t>(number(&format[4], 4, big_endian));
  if (rate_hz < 1 || rate_hz > kMaxAudioRateHz) {
    throw DataError(place(file, at + 4) + "rate: expected 1 to " + std::to_string(kMaxAudioRateHz) + " Hz, got " +
                    std::to_string(rate_hz));
  }
}

constexpr std::array<std::uint32_t, 256> make_ogg_checksum_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t remainder = byte << 24;
    for (int bit = 0; bit < 8; ++bit) {
      remainder = (remainder & 0x80000000U) != 0 ? remainder << 1 ^ 0x04c11db7U : remainder << 1;
    }
    table[byte] = remainder;
  }
  return table;
}

std::uint32_t ogg_checksum(const std::vector<unsigned char>& page) {
  static constexpr std::array<std::uint32_t, 256> kTable = make_ogg_checksum_table();
  std::uint32_t checksum = 0;
  for (const unsigned char byte : page) {
    checksum = checksum << 8 ^ kTable[(checksum >> 24 ^ byte) & 0xffU];
  }
  return checksum;
}

}  // namespace

std::optional<std::int64_t> check_wav_chunks(const File& file) {
  constexpr std::int64_t kHeaderBytes = 8;  // a chunk's: four letters and the size
  constexpr int kMaxChunks = 10'000;        // a file of nothing but empty chunks would keep us for minutes
  const std::int64_t file_bytes = file.size_bytes();
  std::array<unsigned char, 16> bytes{};
  if (file_bytes < 12) {
    return std::nullopt;
  }
  file.read_at(0, bytes.data(), 12);
  const bool big_endian = spells(&bytes[0], "RIFX");
  const bool is_rf64 = spells(&bytes[0], "RF64");
  if (!spells(&bytes[8], "WAVE") || !(big_endian || is_rf64 || spells(&bytes[0], "RIFF"))) {
    return std::nullopt;
  }
  const std::int64_t riff_end =
      is_rf64 ? file_bytes : static_cast<std::int64_t>(number(&bytes[4], 4, big_endian)) + kHeaderBytes;
  std::optional<std::int64_t> long_data_bytes;  // RF64's ds64 chunk has the size that 32 bits cannot hold
  std::optional<std::int64_t> data_bytes;
  std::int64_t at = 12;
  for (int chunk = 0;; ++chunk) {
    // What lies behind the RIFF chunk is not ours to judge, unless the samples are said to be none: a recorder that
    // died leaves sizes of 0 before all that it wrote.
    const std::int64_t end = data_bytes && *data_bytes > 0 ? std::min(riff_end, file_bytes) : file_bytes;
    if (at + kHeaderBytes > end) {
      break;
    }
    if (chunk == kMaxChunks) {
      throw DataError(place(file, at) + "expected at most " + std::to_string(kMaxChunks) + " chunks, got more");
    }
    file.read_at(at, bytes.data(), kHeaderBytes);
    const std::string name(bytes.begin(), bytes.begin() + 4);
    if (!is_chunk_name(name)) {
      throw DataError(place(file, at) + "expected a chunk" +
                      (data_bytes ? " or the end of the file after the " + std::to_string(*data_bytes) +
                                        " bytes of samples that the header claims"
                                  : "") +
                      ", got something else");
    }
    auto size = static_cast<std::int64_t>(number(&bytes[4], 4, big_endian));
    if (name == "data" && long_data_bytes) {
      size = *long_data_bytes;
    }
    const std::int64_t content = at + kHeaderBytes;
    if (size < 0 || size > file_bytes - content) {
      throw DataError(place(file, at) + "chunk '" + name + "': expected " + std::to_string(size) +
                      " bytes, as its header claims, got " + std::to_string(file_bytes - content) +
                      " before the end of the file");
    }
    if (name == "fmt ") {
      check_format_chunk(file, content, size, big_endian);
    } else if (name == "ds64" && is_rf64 && size >= 16) {
      file.read_at(content, bytes.data(), 16);
      long_data_bytes = static_cast<std::int64_t>(number(&bytes[8], 8, false));
    } else if (name == "data" && !data_bytes) {
      data_bytes = size;
    }
    at = content + size + size % 2;  // chunks start at even bytes
  }
  if (!data_bytes) {
    throw DataError(place(file, at) + "expected a data chunk, got the end of the file");
  }
  return data_bytes;
}

void check_ogg_pages(const File& file) {
  constexpr std::int64_t kHeaderBytes = 27;
  constexpr unsigned char kLastPageFlag = 4;
  const std::int64_t file_bytes = file.size_bytes();
  std::vector<unsigned char> page(4);
  if (file_bytes < 4) {
    return;
  }
  file.read_at(0, page.data(), page.size());
  if (!spells(page.data(), "OggS")) {
    return;
  }
  bool ended = false;
  for (std::int64_t at = 0; at < file_bytes;) {
    const std::int64_t left = file_bytes - at;
    // Reads the page's first `size` bytes.
    const auto read_page = [&](std::int64_t size) {
      if (size > left) {
        throw DataError(place(file, at) + "expected an Ogg page of at least " + std::to_string(size) + " bytes, got " +
                        std::to_string(left) + " before the end of the file");
      }
      page.resize(static_cast<std::size_t>(size));
      file.read_at(at, page.data(), page.size());
      if (!spells(page.data(), "OggS")) {
        throw DataError(place(file, at) + "expected an Ogg page, got something else");
      }
    };
    read_page(kHeaderBytes);
    // Behind the header, a byte a segment gives the lengths of the segments that follow: at most 255 of 255 bytes.
    const std::int64_t segments = page[26];
    read_page(kHeaderBytes + segments);
    read_page(kHeaderBytes + segments + std::accumulate(page.begin() + kHeaderBytes, page.end(), std::int64_t{0}));
    const std::uint64_t claimed = number(&page[22], 4, false);
    std::fill_n(page.begin() + 22, 4, static_cast<unsigned char>(0));
    if (ogg_checksum(page) != claimed) {
      throw DataError(place(file, at) + "Ogg page: its checksum does not match its content");
    }
    ended = (page[5] & kLastPageFlag) != 0;
    at += static_cast<std::int64_t>(page.size());
  }
  if (!ended) {
    throw DataError(place(file, file_bytes) +
                    "expected another Ogg page, as the last does not end the recording, got the end of the file");
  }
}

}  // namespace halotap::io
