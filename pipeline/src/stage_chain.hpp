// The stages of a pipeline, one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "halotap/kernels/annotations.hpp"
#include "halotap/pipeline/latency_term.hpp"
#include "halotap/pipeline/published.hpp"
#include "halotap/pipeline/stage.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::pipeline {

// Takes what comes out of the engine frame by frame through every stage and gathers what comes out of the last one.
// construct (allocates, may throw) -> begin -> feed, finish -> begin ... [worker]
class StageChain {
 public:
  // `input` is what the engine gives, at most `max_frames` a step. Throws ConfigError naming the stage's place.
  StageChain(const StageFormat& input, const std::vector<StageEntry>& entries, std::int64_t max_frames);

  std::size_t size() const noexcept { return links_.size(); }
  bool has_events() const noexcept { return has_events_; }
  // What comes out of the last stage, and of all of them for so many frames of a whole recording. [any thread]
  const StageFormat& output() const noexcept { return output_; }
  std::int64_t output_frames(std::int64_t input_frames) const noexcept;
  // A term a stage, in frames of the engine. [any thread]
  const std::vector<LatencyTerm>& latency() const noexcept { return latency_; }
  StageCounters counters(std::size_t stage) const noexcept { return links_[stage].published.load(); }

  // Starts a step: what the last one gave is gone.
  void begin() noexcept HALOTAP_NONBLOCKING;
  // Takes up to max_frames frames of the engine's; no more than that in one step, flushed ones included.
  void feed(const float* frames, std::int64_t count) noexcept HALOTAP_NONBLOCKING;
  // Goes on ending the recording, as far as the step has room. A step in which nothing came out is the end: every stage
  // is then as new.
  void finish() noexcept HALOTAP_NONBLOCKING;

  // What came out since begin: [frames(), streams, channels] and the events on the way, in the order in which the
  // engine's frames made them.
  std::int64_t frames() const noexcept { return frames_; }
  const float* samples() const noexcept { return results_.data(); }
  std::span<const StageEvent> events() noexcept { return events_.events(); }

 private:
  struct Link {
    std::unique_ptr<Stage> stage;
    StageFormat input;
    std::int64_t frames_merged = 1;
    std::vector<float> result;              // one frame
    std::int64_t frames_of_recordings = 0;  // that went in before this recording
    StageCounters counters;
    Published<StageCounters> published;
  };

  void pass(const float* frame, std::size_t first) noexcept HALOTAP_NONBLOCKING;
  void count_output(Link& link) noexcept HALOTAP_NONBLOCKING;
  void complete_events(std::size_t stage, std::size_t known) noexcept HALOTAP_NONBLOCKING;
  void publish() noexcept HALOTAP_NONBLOCKING;

  StageFormat output_;
  std::vector<Link> links_;
  std::int64_t max_frames_;
  std::vector<LatencyTerm> latency_;
  bool has_events_ = false;
  EventList events_;
  std::uint64_t events_dropped_ = 0;  // that a stage was charged with
  std::vector<float> results_;        // [max_frames_, streams, channels]
  std::int64_t frames_ = 0;           // in it
  std::size_t finishing_ = 0;         // the first stage that may still hold frames at the recording's end
};

}  // namespace halotap::pipeline
