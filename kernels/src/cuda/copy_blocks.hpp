// The order in which samples are copied between a caller's view and our own memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace halotap::kernels {

// Calls copy(channel, frame) for all of them in blocks of a cache line of frames by few channels. A planar view's
// channels often lie a power of two apart and fall into one set of the cache: with more of them at a time than the
// set has ways (8 or more), every line would be lost before its next frame is wanted. [any thread]
template <typename Copy>
void copy_blocks(std::int64_t channels, std::int64_t frames, const Copy& copy) {
  constexpr std::int64_t kBlockChannels = 8;
  constexpr std::int64_t kBlockFrames = 16;
  for (std::int64_t c = 0; c < channels; c += kBlockChannels) {
    const std::int64_t c_end = std::min(c + kBlockChannels, channels);
    for (std::int64_t t = 0; t < frames; t += kBlockFrames) {
      const std::int64_t t_end = std::min(t + kBlockFrames, frames);
      for (std::int64_t frame = t; frame < t_end; ++frame) {
        for (std::int64_t channel = c; channel < c_end; ++channel) copy(channel, frame);
      }
    }
  }
}

}  // namespace halotap::kernels
