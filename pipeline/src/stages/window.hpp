// One frame in place of several: what decimate and rms have in common.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "halotap/pipeline/stage.hpp"

namespace halotap::pipeline {

// Gives one frame a window, the last one however short it is. Every sample of the frame is gathered in a double of its
// own, which begins anew with each window: whatever a sample was, nothing of it is left in the next. `Gather` has
//
//     double first(double x)                     the sum, or whatever it is, after a window's first sample
//     double next(double sum, double x)          and after one more
//     double result(double sum, double frames)   what comes out
template <typename Gather>
class WindowStage : public Stage {
 public:
  bool process(const float* frame, float* result, EventList& events) noexcept HALOTAP_NONBLOCKING final {
    if (frames_ == 0) {
      for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] = Gather::first(frame[i]);
    } else {
      for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] = Gather::next(sums_[i], frame[i]);
    }
    return ++frames_ == window_frames_ && WindowStage::flush(result, events);
  }

  bool flush(float* result, EventList&) noexcept HALOTAP_NONBLOCKING final {
    if (frames_ == 0) return false;
    const auto frames = static_cast<double>(frames_);
    for (std::size_t i = 0; i < sums_.size(); ++i) result[i] = static_cast<float>(Gather::result(sums_[i], frames));
    frames_ = 0;
    return true;
  }

  void reset() noexcept HALOTAP_NONBLOCKING final { frames_ = 0; }

 protected:
  // `key` is the one that sets the window.
  StageOutput prepare_window(const StageFormat& input, std::int64_t frames, LatencyKey key) {
    sums_.assign(static_cast<std::size_t>(input.frame_samples()), 0.0);
    window_frames_ = frames;
    return {.channels = input.channels,
            .channel_names = input.channel_names,
            .frames_merged = frames,
            .latency_frames = frames - 1,
            .latency_key = std::move(key)};
  }

 private:
  std::vector<double> sums_;  // [streams, channels]
  std::int64_t window_frames_ = 1;
  std::int64_t frames_ = 0;  // in the window so far
};

}  // namespace halotap::pipeline
