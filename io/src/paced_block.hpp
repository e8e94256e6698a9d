// The blocks in which a paced recording is read.
#pragma once

#include <algorithm>
#include <cstdint>

namespace halotap::io {

// As short as a device's, about a millisecond, so that a chunk is computed soon after its last frame was made. At most
// `most_frames`. [any thread]
inline std::int64_t paced_block_frames(double frames_per_second, std::int64_t most_frames) {
  constexpr double kBlockSeconds = 0.001;
  const double frames = std::max(1.0, frames_per_second * kBlockSeconds);
  return static_cast<std::int64_t>(std::min(frames, static_cast<double>(most_frames)));
}

}  // namespace halotap::io
