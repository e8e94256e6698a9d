// Where results go.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "halotap/io/handled_gap.hpp"
#include "halotap/io/source.hpp"
#include "halotap/pipeline/stage.hpp"

namespace halotap::io {

// What will be written.
struct SinkSpec {
  std::int64_t streams = 1;                // at least 1
  std::int64_t channels = 0;               // of each stream, at least 1
  double rate_hz = 0;                      // frames a second; 0 when not known
  std::int64_t frames = -1;                // a stream's length if known; -1 otherwise
  std::vector<std::string> channel_names;  // empty for none
  Arrangement arrangement = Arrangement::kFramesChannels;
  bool has_events = false;  // whether events may come besides frames
  // Whether frames come as a live source makes them, by a clock that is not the sink's.
  bool source_is_live = false;
  // Of a device: how much it may hold, in milliseconds, > 0; set from anywhere: a write waits no longer for room; and
  // who hears, in one line, what happens to it, also from a thread of the sink's.
  double ring_capacity_ms = 500;
  bool open_device = true;  // false: left alone; the sink only says what its address states, and takes no frames
  const std::atomic<bool>* stop = nullptr;
  std::function<void(const std::string&)> on_note = {};
};

// What a device has played of the frames that it was given:
//
//     frames_in + frames_added - frames_removed = frames_played + frames_dropped + frames_discarded + those that wait
//
// in the ring or a resampler. Behind finish none wait, and the sum is exact.
struct PlayedCounters {
  std::uint64_t frames_in = 0;
  std::uint64_t frames_played = 0;
  std::uint64_t frames_dropped = 0;    // found no room: the ring was full, or the session was stopped
  std::uint64_t frames_discarded = 0;  // had waited too long: the session or the device had hung
  std::uint64_t frames_silent = 0;     // underrun: silence in the place of frames that were not there
  std::uint64_t underruns = 0;         // how many times that began
  std::uint64_t device_underruns = 0;  // as the device tells; it may not: the system called it too late
  std::uint64_t corrects_drift = 0;    // 0 or 1; what follows is that of a sink that does
  std::uint64_t frames_added = 0;
  std::uint64_t frames_removed = 0;
  double correction_ppm = 0;         // now; above 0: frames are added
  std::uint64_t samples_zeroed = 0;  // not finite, or beyond 1e6: played as 0
};

// Takes frames in order. A file is written under a temporary name beside its place and moved there by finish, so that
// a file under the final name is always whole; destruction without finish removes what was written.
// construct (opens; throws) -> write, write_event -> finish -> destroy. One thread. [control]
class Sink {
 public:
  virtual ~Sink() = default;

  // Appends `frames` frames, `samples` [frames, streams, channels], channels fastest. Throws DataError (with the
  // system's reason, for instance a full disk) or DeviceError.
  virtual void write(const float* samples, std::int64_t frames) = 0;

  // Appends frames that stand in the place of late ones: the last good frame, again and again. A format that can mark
  // them does.
  virtual void write_held(const float* samples, std::int64_t frames) { write(samples, frames); }

  // Takes an event that comes before the frames written next. Throws as write does. A format that has no place for
  // events leaves them out.
  virtual void write_event([[maybe_unused]] const pipeline::StageEvent& event) {}

  // Takes word of a gap in the input, as soon as it is known. Throws as write does. A format that has no place for
  // it leaves it out.
  virtual void write_gap([[maybe_unused]] const HandledGap& gap) {}

  // Whether write waits for a device that plays what it gets: such a sink needs no other pace, and bears none.
  virtual bool sets_pace() const { return false; }
  // Of a device; none for a file. [any thread]
  virtual std::optional<PlayedCounters> played() const { return std::nullopt; }

  // Of a device: what a frame waits for in it until it is heard. Keys lead on from the sink.
  virtual std::vector<pipeline::LatencyTerm> latency() const { return {}; }

  // Completes the output with the frames written so far, be they fewer than SinkSpec announced. Throws DataError.
  virtual void finish() = 0;
};

}  // namespace halotap::io
