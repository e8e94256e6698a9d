// Bytes as a file that an endpoint opens.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"

namespace halotap::fuzz {

// Reads `data` through the source that `scheme` opens, up to 4096 frames. DataError is a good answer if its message is
// one line; any other exception ends the process.
inline void read_as(const std::string& scheme, const std::uint8_t* data, std::size_t size) {
  const int descriptor = memfd_create("input", MFD_CLOEXEC);
  if (descriptor < 0 || write(descriptor, data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const auto source = io::open_source(scheme + ":///proc/self/fd/" + std::to_string(descriptor), {});
    const std::int64_t values = source->info().streams * source->info().channels;
    const std::int64_t block_frames = std::clamp<std::int64_t>((1 << 20) / values, 1, 64);
    std::vector<float> floats(static_cast<std::size_t>(block_frames * values));
    std::vector<double> doubles(floats.size());
    for (std::int64_t frames = 0; frames < 4096; frames += block_frames) {
      const bool wide = frames / block_frames % 2 != 0;
      const std::int64_t count =
          wide ? source->read(doubles.data(), block_frames) : source->read(floats.data(), block_frames);
      if (count < 0 || count > block_frames) std::abort();
      if (count < block_frames) break;
    }
  } catch (const pipeline::DataError& error) {
    if (std::string(error.what()).find('\n') != std::string::npos) std::abort();
  }
  close(descriptor);
}

}  // namespace halotap::fuzz
