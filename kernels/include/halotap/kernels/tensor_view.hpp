// A strided 2-D window on somebody else's samples.
#pragma once

#include <cstdint>
#include <type_traits>

namespace halotap::kernels {

// Refers to `[channels, frames]` samples without owning them. Both strides are free, so planar memory (a channel's
// frames side by side) and interleaved memory (a frame's channels side by side) are read and written in place.
// Strides count samples, not bytes. A plain value: copying it copies the reference. [any thread]
template <typename Sample>
struct TensorView {
  Sample* data = nullptr;
  std::int64_t channels = 0;
  std::int64_t frames = 0;
  std::int64_t channel_stride = 0;
  std::int64_t frame_stride = 0;

  // The sample; both indices inside the view.
  Sample& operator()(std::int64_t channel, std::int64_t frame) const {
    return data[channel * channel_stride + frame * frame_stride];
  }

  // The frames `[first, first + count)`; the caller keeps that range inside `[0, frames)`.
  TensorView slice(std::int64_t first, std::int64_t count) const {
    return {data + first * frame_stride, channels, count, channel_stride, frame_stride};
  }

  operator TensorView<const Sample>() const requires(!std::is_const_v<Sample>) {
    return {data, channels, frames, channel_stride, frame_stride};
  }
};

using FrameView = TensorView<float>;
using ConstFrameView = TensorView<const float>;

// A view of dense `[channels, frames]` memory, frames fastest. [any thread]
template <typename Sample>
TensorView<Sample> planar(Sample* data, std::int64_t channels, std::int64_t frames) {
  return {data, channels, frames, frames, 1};
}

// A view of dense `[frames, channels]` memory, channels fastest. [any thread]
template <typename Sample>
TensorView<Sample> interleaved(Sample* data, std::int64_t channels, std::int64_t frames) {
  return {data, channels, frames, 1, channels};
}

}  // namespace halotap::kernels
