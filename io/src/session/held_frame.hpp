// The last good frame.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "halotap/pipeline/annotations.hpp"

namespace halotap::io {

// Keeps a frame and gives it back as often as wanted, kMostFrames at a time. Zeros at first. One thread.
class HeldFrame {
 public:
  static constexpr std::int64_t kMostFrames = 64;

  explicit HeldFrame(std::int64_t frame_samples)
      : frame_samples_(frame_samples), frames_(static_cast<std::size_t>(kMostFrames * frame_samples)) {}

  void keep(const float* frame) noexcept HALOTAP_NONBLOCKING {
    std::copy_n(frame, frame_samples_, frames_.begin());
    is_repeated_ = false;
  }
  // [kMostFrames, streams, channels]
  const float* repeated() noexcept HALOTAP_NONBLOCKING {
    if (!is_repeated_) {
      for (std::int64_t i = 1; i < kMostFrames; ++i) {
        std::copy_n(frames_.begin(), frame_samples_, frames_.begin() + i * frame_samples_);
      }
    }
    is_repeated_ = true;
    return frames_.data();
  }

 private:
  std::int64_t frame_samples_;
  std::vector<float> frames_;
  bool is_repeated_ = true;
};

}  // namespace halotap::io
