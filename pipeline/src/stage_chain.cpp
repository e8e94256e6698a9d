#include "stage_chain.hpp"

#include <algorithm>
#include <cassert>
#include <new>
#include <string>

#include "halotap/pipeline/errors.hpp"
#include "memory.hpp"

namespace halotap::pipeline {
namespace {

constexpr std::int64_t kMaxStageChannels = 65536;
// Of all stages together, so that no count overflows: 12 days at 1 MHz and 52 days at 1 GHz.
constexpr std::int64_t kMaxMerged = std::int64_t{1} << 40;
constexpr std::int64_t kMaxLatencyFrames = std::int64_t{1} << 52;
constexpr double kMaxEvents = 1e12;  // far more than fit in memory

std::string place_of(const StageEntry& entry, std::size_t number) {
  if (!entry.place.empty()) return entry.place;
  return "stage " + std::to_string(number) + (entry.name.empty() ? "" : " (" + entry.name + ")");
}

// What a stage of the user's own may have got wrong. `merged` engine's frames are one in front of it.
void check(const StageOutput& output, std::int64_t merged) {
  if (output.channels < 1 || output.channels > kMaxStageChannels) {
    throw ConfigError("expected to give 1 to " + std::to_string(kMaxStageChannels) + " channels, got " +
                      std::to_string(output.channels));
  }
  if (!output.channel_names.empty() && std::ssize(output.channel_names) != output.channels) {
    throw ConfigError("expected no channel names or one for each of " + std::to_string(output.channels) +
                      " channels, got " + std::to_string(output.channel_names.size()));
  }
  if (output.frames_merged < 1 || output.frames_merged > kMaxMerged / merged) {
    throw ConfigError("expected to merge 1 to " + std::to_string(kMaxMerged / merged) + " frames, got " +
                      std::to_string(output.frames_merged));
  }
  if (output.latency_frames < 0 || output.latency_frames > kMaxLatencyFrames / merged || output.events_a_frame < 0) {
    throw ConfigError("expected a latency from 0 to " + std::to_string(kMaxLatencyFrames / merged) +
                      " frames and 0 events a frame or more, got " + std::to_string(output.latency_frames) + " and " +
                      std::to_string(output.events_a_frame));
  }
  if (output.latency_key.step_frames < 1 || output.latency_key.step_frames > kMaxLatencyFrames / merged) {
    throw ConfigError("expected a latency key with steps of 1 to " + std::to_string(kMaxLatencyFrames / merged) +
                      " frames, got " + std::to_string(output.latency_key.step_frames));
  }
}

// In frames of the engine, `merged` of which are one in front of the stage.
LatencyTerm latency_of(const StageEntry& entry, std::size_t number, const StageOutput& output, std::int64_t merged,
                       double rate_hz) {
  LatencyTerm term;
  term.place = "stage " + std::to_string(number) + (entry.name.empty() ? "" : " (" + entry.name + ")");
  term.part = LatencyPart::kStages;
  term.frames = output.latency_frames * merged;
  term.rate_hz = rate_hz;
  term.sets_rate = output.frames_merged > 1;
  term.key = output.latency_key;
  term.key.step_frames *= merged;
  if (!term.key.name.empty()) term.key.name = "stages." + std::to_string(number) + "." + term.key.name;
  return term;
}

}  // namespace

StageChain::StageChain(const StageFormat& input, const std::vector<StageEntry>& entries, std::int64_t max_frames)
    : output_(input), links_(entries.size()), max_frames_(max_frames), events_(0) {
  if (entries.empty()) return;
  if (!(input.rate_hz > 0)) throw ConfigError("the model: expected a frame rate, which its stages need, got none");
  std::int64_t merged = 1;  // frames of the engine that a frame in front of the stage stands for
  std::int64_t events_a_frame = 0;
  std::size_t number = 0;
  try {
    for (; number < entries.size(); ++number) {
      Link& link = links_[number];
      if (entries[number].make) link.stage = entries[number].make();
      if (!link.stage) throw ConfigError("expected a maker that gives a stage, got none");
      link.input = output_;
      const StageOutput output = link.stage->prepare(link.input);
      check(output, merged);
      latency_.push_back(latency_of(entries[number], number, output, merged, input.rate_hz));
      merged *= output.frames_merged;
      events_a_frame += output.events_a_frame;
      link.frames_merged = output.frames_merged;
      output_ = {input.streams, output.channels, link.input.rate_hz / static_cast<double>(output.frames_merged),
                 output.channel_names};
      link.result.resize(static_cast<std::size_t>(output_.frame_samples()));
    }
    const auto most = static_cast<double>(max_frames);
    if (most * static_cast<double>(events_a_frame) > kMaxEvents) throw std::bad_alloc();
    if (most * static_cast<double>(output_.frame_samples()) * sizeof(float) > memory_bytes()) throw std::bad_alloc();
    results_.resize(static_cast<std::size_t>(max_frames * output_.frame_samples()));
    events_ = EventList(max_frames * events_a_frame);
    has_events_ = events_a_frame > 0;
  } catch (const ConfigError& error) {
    throw ConfigError(place_of(entries[number], number) + ": " + error.what());
  } catch (const std::bad_alloc&) {
    throw ConfigError("the stages' results and events for " + std::to_string(max_frames) +
                      " frames do not fit in memory");
  }
}

std::int64_t StageChain::output_frames(std::int64_t input_frames) const noexcept {
  for (const Link& link : links_) {
    input_frames = input_frames / link.frames_merged + (input_frames % link.frames_merged != 0);
  }
  return input_frames;
}

void StageChain::begin() noexcept HALOTAP_NONBLOCKING {
  frames_ = 0;
  events_.clear();
}

void StageChain::feed(const float* frames, std::int64_t count) noexcept HALOTAP_NONBLOCKING {
  for (std::int64_t i = 0; i < count; ++i) pass(frames + i * links_.front().input.frame_samples(), 0);
  publish();
}

void StageChain::finish() noexcept HALOTAP_NONBLOCKING {
  while (finishing_ < links_.size() && frames_ < max_frames_) {
    Link& link = links_[finishing_];
    const std::size_t known = events_.events().size();
    const bool emitted = link.stage->flush(link.result.data(), events_);
    complete_events(finishing_, known);
    if (emitted) {
      count_output(link);
      pass(link.result.data(), finishing_ + 1);
    } else {
      ++finishing_;
    }
  }
  if (finishing_ == links_.size()) {
    for (Link& link : links_) {
      link.stage->reset();
      link.frames_of_recordings = static_cast<std::int64_t>(link.counters.frames_in);
      link.counters.frames_discarded += link.counters.frames_in_flight;
      link.counters.frames_in_flight = 0;
    }
    finishing_ = 0;
  }
  publish();
}

// Through the stages from `first` on, until one keeps it.
void StageChain::pass(const float* frame, std::size_t first) noexcept HALOTAP_NONBLOCKING {
  for (std::size_t i = first; i < links_.size(); ++i) {
    Link& link = links_[i];
    ++link.counters.frames_in;
    ++link.counters.frames_in_flight;
    const std::size_t known = events_.events().size();
    const bool emitted = link.stage->process(frame, link.result.data(), events_);
    complete_events(i, known);
    if (!emitted) return;
    count_output(link);
    frame = link.result.data();
  }
  assert(frames_ < max_frames_);
  std::copy_n(frame, output_.frame_samples(), results_.data() + frames_ * output_.frame_samples());
  ++frames_;
}

void StageChain::count_output(Link& link) noexcept HALOTAP_NONBLOCKING {
  StageCounters& counters = link.counters;
  assert(counters.frames_in_flight > 0);
  const std::uint64_t gone = std::min(counters.frames_in_flight, static_cast<std::uint64_t>(link.frames_merged));
  counters.frames_in_flight -= gone;
  counters.frames_merged += gone - 1;
  ++counters.frames_out;
}

// The stage knows which frame, stream and channel of its own input; this knows the rest.
void StageChain::complete_events(std::size_t stage, std::size_t known) noexcept HALOTAP_NONBLOCKING {
  Link& link = links_[stage];
  for (StageEvent& event : events_.events().subspan(known)) {
    event.stage = static_cast<std::int64_t>(stage);
    event.frame += link.frames_of_recordings;
    const auto channel = static_cast<std::size_t>(event.channel);
    if (channel < link.input.channel_names.size()) event.channel_name = link.input.channel_names[channel];
    event.time_s = static_cast<double>(event.frame) / link.input.rate_hz;
    event.frames_before = frames_;
    ++link.counters.events;
  }
  link.counters.events_dropped += events_.dropped() - events_dropped_;
  events_dropped_ = events_.dropped();
}

void StageChain::publish() noexcept HALOTAP_NONBLOCKING {
  for (Link& link : links_) link.published.store(link.counters);
}

}  // namespace halotap::pipeline
