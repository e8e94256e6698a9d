// What a backlog holds that is too old.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

#include "halotap/pipeline/annotations.hpp"
#include "halotap/pipeline/clock.hpp"

namespace halotap::io {

// Of `frames` frames, the last of them captured at `last`, those at the front that can be in no chunk that begins at
// `now` or later with a last frame of at most `most_age`. A chunk that begins with frame i ends chunk_frames - 1 frames
// later, so frame i is stale when
//
//     captured(i) + (chunk_frames - 1) / rate < now - most_age,   captured(i) = last - (frames - 1 - i) / rate
inline std::int64_t stale_frames(std::int64_t frames, pipeline::Instant last, double rate_hz, std::int64_t chunk_frames,
                                 pipeline::Instant now,
                                 std::chrono::nanoseconds most_age) noexcept HALOTAP_NONBLOCKING {
  const double spare_s = std::chrono::duration<double>(last - (now - most_age)).count();
  const double fresh = std::floor(spare_s * rate_hz + static_cast<double>(chunk_frames));
  return frames - static_cast<std::int64_t>(std::clamp(fresh, 0.0, static_cast<double>(frames)));
}

}  // namespace halotap::io
