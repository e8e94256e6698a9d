#include "halotap/io/source.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace halotap::io {

std::int64_t Source::read(double* samples, std::int64_t frames) {
  constexpr std::int64_t kPieceSamples = 16384;
  const std::int64_t frame_samples = info().streams * info().channels;
  const std::int64_t piece_frames = std::clamp(kPieceSamples / std::max<std::int64_t>(frame_samples, 1),
                                               std::int64_t{1}, std::max<std::int64_t>(frames, 1));
  std::vector<float> piece(static_cast<std::size_t>(piece_frames * frame_samples));
  std::int64_t done = 0;
  while (done < frames) {
    const std::int64_t asked = std::min(piece_frames, frames - done);
    const std::int64_t got = read(piece.data(), asked);
    std::copy_n(piece.data(), got * frame_samples, samples + done * frame_samples);
    done += got;
    if (got < asked) {
      break;
    }
  }
  return done;
}

}  // namespace halotap::io
