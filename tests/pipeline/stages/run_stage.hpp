// A stage by itself, fed from memory.
#pragma once

#include <string>
#include <vector>

#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/stage.hpp"

namespace halotap::test {

struct StageRun {
  pipeline::StageOutput output;
  std::vector<float> results;
  std::vector<pipeline::StageEvent> events;
};

// Feeds a stage that is prepared `samples` [frames, streams, channels] and ends the recording there.
inline void feed(pipeline::Stage& stage, const pipeline::StageFormat& input, const std::vector<float>& samples,
                 StageRun& run) {
  const auto frame_samples = static_cast<std::size_t>(input.frame_samples());
  std::vector<float> result(static_cast<std::size_t>(input.streams * run.output.channels));
  pipeline::EventList events(static_cast<std::int64_t>(samples.size()));
  for (std::size_t at = 0; at < samples.size(); at += frame_samples) {
    if (stage.process(samples.data() + at, result.data(), events)) {
      run.results.insert(run.results.end(), result.begin(), result.end());
    }
  }
  while (stage.flush(result.data(), events)) run.results.insert(run.results.end(), result.begin(), result.end());
  run.events.assign(events.events().begin(), events.events().end());
}

inline StageRun run_stage(const pipeline::StageMaker& make, const pipeline::StageFormat& input,
                          const std::vector<float>& samples) {
  const auto stage = make();
  StageRun run;
  run.output = stage->prepare(input);
  feed(*stage, input, samples, run);
  return run;
}

// One stream of one channel at `rate_hz`.
inline std::vector<float> run_stage(const pipeline::StageMaker& make, double rate_hz,
                                    const std::vector<float>& samples) {
  return run_stage(make, {.channels = 1, .rate_hz = rate_hz}, samples).results;
}

// The latency in frames of a stage at 48 kHz when its key has the value that LatencyKey states for `frames` frames.
template <typename Make>
std::int64_t latency_for(const pipeline::LatencyKey& key, std::int64_t frames, Make make_with) {
  const double value = key.at_zero + key.per_step * static_cast<double>(frames / key.step_frames);
  return make_with(value)()->prepare({.channels = 1, .rate_hz = 48000}).latency_frames;
}

// The message with which `call` throws ConfigError; empty when it does not.
template <typename Call>
std::string config_error(Call call) {
  try {
    call();
    return "";
  } catch (const pipeline::ConfigError& error) {
    return error.what();
  }
}

}  // namespace halotap::test
