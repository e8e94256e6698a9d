// Where frames come from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/latency_term.hpp"

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
  bool is_live = false;  // frames come as they are made, and nobody can make them wait
  // Of a live source: what a frame waits for from its instant until it is read. Keys lead on from `source`.
  std::vector<pipeline::LatencyTerm> latency;
};

// Frames of a live source that are missing in front of a frame.
struct Gap {
  std::int64_t frames_lost = 0;     // the device never delivered them; an estimate, from the clock
  std::int64_t frames_dropped = 0;  // it did, into a ring that was full
  bool is_reopening = false;        // the device was lost, and is back
  std::int64_t frames_late = 0;     // found so late that it may lie in front of so many frames that were read before

  bool exists() const { return frames_lost > 0 || frames_dropped > 0 || is_reopening; }
  Gap& operator+=(const Gap& other) {
    frames_lost += other.frames_lost;
    frames_dropped += other.frames_dropped;
    is_reopening = is_reopening || other.is_reopening;
    frames_late = std::max(frames_late, other.frames_late);
    return *this;
  }
};

// Frames that wait between a device and whoever reads, and how many may.
struct Waiting {
  std::int64_t frames = 0;
  std::int64_t capacity_frames = 0;  // 0: nothing ever waits
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
  //
  // A live source gives what is there, and waits 50 ms at most when nothing is: 0 is no end, for it has none. It stops
  // short of a gap. Throws DeviceError when its device is gone for good or is not what it claims to be.
  virtual std::int64_t read(float* samples, std::int64_t frames) = 0;

  // What is missing in front of the next frame that read gives; tells it once.
  virtual Gap take_gap() { return {}; }

  // Of a live source: when the last frame that read gave was meant to come from its device, by the count of frames
  // since the last gap. It does not depend on when a late block brought it. None before the first frame.
  virtual std::optional<pipeline::Instant> capture_time() const { return std::nullopt; }
  virtual Waiting waiting() const { return {}; }

  // The same in double, for comparing with float64 expectations: a source whose data is wider than float32 gives it
  // unrounded; the others widen what read gives.
  virtual std::int64_t read(double* samples, std::int64_t frames);
};

}  // namespace halotap::io
