// Checks of an audio file's frame that libsndfile leaves out: it reads a file that lost its end, or a part, without a
// word.
#pragma once

#include <cstdint>
#include <optional>

#include "file.hpp"

namespace halotap::io {

// Bytes of samples that the header of a WAV (RIFF, RIFX or RF64) file claims, or nothing when the file is no WAV.
// Throws DataError naming file, byte, expected and got when a chunk reaches past the end of the file, the format chunk
// has channels or a rate out of range, or what follows the samples is no chunk. [control]
std::optional<std::int64_t> check_wav_chunks(const File& file);

// Throws DataError when an Ogg file's pages do not follow each other to the end of the file, one has a wrong checksum,
// or the last does not say that it is the last. Does nothing for a file that is no Ogg. [control]
void check_ogg_pages(const File& file);

}  // namespace halotap::io
