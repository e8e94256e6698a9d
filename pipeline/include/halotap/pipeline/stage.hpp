// Stages: what happens to an engine's results on their way to the sinks, and the interface to write one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halotap/kernels/annotations.hpp"
#include "halotap/pipeline/latency_term.hpp"

namespace halotap::pipeline {

// What the frames between two stages are.
struct StageFormat {
  std::int64_t streams = 1;                     // side by side in every frame, at least 1
  std::int64_t channels = 0;                    // of each stream, at least 1
  double rate_hz = 0;                           // frames a second, > 0
  std::vector<std::string> channel_names = {};  // one a channel, or empty

  std::int64_t frame_samples() const { return streams * channels; }
};

// What a stage makes of its input. Streams stay; the rate becomes the input's divided by `frames_merged`.
struct StageOutput {
  std::int64_t channels = 0;                    // of each stream, at least 1
  std::vector<std::string> channel_names = {};  // one a channel, or empty
  std::int64_t frames_merged = 1;               // input frames that one output frame stands for, at least 1
  std::int64_t latency_frames = 0;              // input frames by which a result or an event may come late, at least 0
  std::int64_t events_a_frame = 0;              // the most events that one call of process or flush adds
  LatencyKey latency_key = {};                  // which of the stage's keys sets latency_frames: "factor"
};

// Something that a stage noticed, at one frame of one stream.
struct StageEvent {
  std::string_view name;           // "on"; of static storage
  std::int64_t stage = 0;          // from 0, in the order in which they run
  std::int64_t stream = 0;         // from 0
  std::int64_t channel = 0;        // from 0, of the stage's input
  std::string_view channel_name;   // of the stage's input; empty when it has no names
  std::int64_t frame = 0;          // of the stage's input, from 0, over all recordings of the pipeline
  double time_s = 0;               // frame / the rate of the stage's input
  std::int64_t frames_before = 0;  // frames of the same step's output that come before it
};

// Where stages put their events: room that was allocated beforehand. [worker]
class EventList {
 public:
  explicit EventList(std::int64_t room) { events_.reserve(static_cast<std::size_t>(room)); }

  // `name` is of static storage; stream, channel and frame are those of the stage's input, the frame since the stage
  // was reset. Without room the event is dropped and counted.
  void add(std::string_view name, std::int64_t stream, std::int64_t channel,
           std::int64_t frame) noexcept HALOTAP_NONBLOCKING {
    if (events_.size() == events_.capacity()) {
      ++dropped_;
      return;
    }
    StageEvent event;
    event.name = name;
    event.stream = stream;
    event.channel = channel;
    event.frame = frame;
    events_.push_back(event);
  }

  std::span<StageEvent> events() noexcept { return events_; }
  std::uint64_t dropped() const noexcept { return dropped_; }  // since it was made
  void clear() noexcept { events_.clear(); }

 private:
  std::vector<StageEvent> events_;
  std::uint64_t dropped_ = 0;
};

// One step of what follows the engine. Frames go in one at a time, all streams of an instant together, and each time
// none or one comes out:
//
//     frame [streams, input channels] -> result [streams, output channels], channels fastest
//
// So no result can depend on how the input was cut into chunks. What a stage has to keep to:
//   - whether a frame comes out depends on how many went in, not on their samples;
//   - over a recording, frames out = ceil(frames in / frames_merged), flush included;
//   - a stream's results depend on that stream's samples alone;
//   - after a NaN or Inf its results become clean again.
//
// construct -> prepare, once -> process ... flush -> reset -> process ... One thread at a time.
class Stage {
 public:
  virtual ~Stage() = default;

  // Checks what comes in, allocates all that process will need, and says what comes out. Throws ConfigError. [control]
  virtual StageOutput prepare(const StageFormat& input) = 0;

  // Takes one frame; true when one comes out, then in `result`. The two do not overlap. [worker, prepared]
  virtual bool process(const float* frame, float* result, EventList& events) noexcept HALOTAP_NONBLOCKING = 0;

  // At the recording's end: true while a frame that was held back comes out, then in `result`. A stage into which
  // nothing went gives none. [worker, prepared]
  virtual bool flush([[maybe_unused]] float* result, [[maybe_unused]] EventList& events) noexcept HALOTAP_NONBLOCKING {
    return false;
  }

  // Back to the state that prepare left. [worker, prepared]
  virtual void reset() noexcept HALOTAP_NONBLOCKING = 0;
};

// Makes a stage; called once for every pipeline that has it. May throw. [control]
using StageMaker = std::function<std::unique_ptr<Stage>()>;

// A stage as a pipeline is given it.
struct StageEntry {
  std::string name;        // "threshold": for counters and summaries
  StageMaker make;         // not empty
  std::string place = {};  // where it was asked for, "p.yaml:5:11: key 'stages.0'", for messages; empty: its number
};

}  // namespace halotap::pipeline
