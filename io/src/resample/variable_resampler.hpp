// Frames at a rate that may be changed a little at any time.
#pragma once

#include <cstdint>
#include <memory>

namespace halotap::io {

// Makes some more or some less frames of those that it is given, by libsoxr in its variable-rate mode, which gives
// every frame as soon as its filter can:
//
//     frames out = frames in * (1 + correction), the filter's delay aside
//
// What it changes lies 90 dB below a signal up to 20 kHz of 48; its delay is about 240 frames. Its filter is recursive:
// a NaN in it would stay. Samples that are not finite, or beyond +-kLargest, are taken as 0, and counted.
// construct -> change, process. One thread. [control]
class VariableResampler {
 public:
  // Beyond any two clocks that claim the same rate.
  static constexpr double kMostCorrection = 0.01;
  static constexpr float kLargest = 1e6F;  // a loudspeaker's largest sample is 1

  // `channels` at least 1. Throws ConfigError in a build without libsoxr.
  explicit VariableResampler(std::int64_t channels);
  ~VariableResampler();
  VariableResampler(const VariableResampler&) = delete;
  VariableResampler& operator=(const VariableResampler&) = delete;

  // From here on, reached over the next `over_frames` frames of output so that no step is heard. `correction` within
  // +-kMostCorrection.
  void change(double correction, std::int64_t over_frames);

  // What `frames` frames, [frames, channels], let out. Valid until the next call.
  struct Made {
    const float* samples = nullptr;
    std::int64_t frames = 0;
  };
  Made process(const float* samples, std::int64_t frames);

  // Taken as 0 so far.
  std::uint64_t samples_zeroed() const;

  // How much later a frame comes out than it went in, in frames: measured when it was made.
  std::int64_t delay_frames() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::io
