// Where frames come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace halotap::io {

// How an array file lays out its axes; results are written in the input's arrangement.
enum class Arrangement {
  kFramesChannels,         // 2-D [frames, channels]: one stream (also WAV, CSV, synthetic)
  kStreamsChannelsFrames,  // 3-D [streams, channels, frames]: as PyTorch has it
};

struct SourceInfo {
  std::int64_t streams = 1;                // at least 1
  std::int64_t channels = 0;               // of each stream, at least 1
  double rate_hz = 0;                      // frames a second; 0 when not known
  std::int64_t frames = -1;                // a stream's length; -1 when not known before the end
  std::vector<std::string> channel_names;  // empty when the source names none
  Arrangement arrangement = Arrangement::kFramesChannels;
};

// Delivers frames of one or more streams that run side by side, in order, once.
// construct (opens; throws) -> read until 0. One thread. [control]
class Source {
 public:
  virtual ~Source() = default;

  virtual const SourceInfo& info() const = 0;

  // Reads up to `frames` (at least 1) frames into `samples` [frames, streams, channels], channels fastest. Returns the
  // frames read; less than asked only at the end, 0 after it. Throws DataError naming the file, the place, expected and
  // got, when the data is malformed or ends too early.
  virtual std::int64_t read(float* samples, std::int64_t frames) = 0;

  // The same in double, for comparing with float64 expectations: a source whose data is wider than float32 gives it
  // unrounded; the others widen what read gives.
  virtual std::int64_t read(double* samples, std::int64_t frames);
};

}  // namespace halotap::io
