#include "halotap/io/recorder.hpp"

#include <optional>
#include <utility>

#include "halotap/pipeline/errors.hpp"
#include "record/wav_track.hpp"

namespace halotap::io {

using pipeline::DataError;

struct Recorder::Impl {
  std::optional<WavTrack> input;
  std::optional<WavTrack> output;
  bool has_input = false;  // since the last beginning
};

Recorder::Recorder(const RecorderSpec& spec, const SourceInfo& input, const pipeline::StageFormat& output)
    : impl_(std::make_unique<Impl>()) {
  if (!spec.input.empty()) {
    impl_->input.emplace(WavTrackSpec{spec.input, "record.file", input.streams, input.channels, input.rate_hz});
  }
  if (!spec.output.empty()) {
    impl_->output.emplace(WavTrackSpec{spec.output, "record.output", output.streams, output.channels, output.rate_hz});
  }
}

Recorder::~Recorder() = default;

void Recorder::begin() {
  // Neither is touched unless both can be written.
  for (const std::optional<WavTrack>* track : {&impl_->input, &impl_->output}) {
    if (*track) (*track)->check();
  }
  if (impl_->input) impl_->input->begin();
  if (impl_->output) impl_->output->begin();
}

void Recorder::push_input(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  impl_->has_input = impl_->has_input || frames > 0;
  if (impl_->input) impl_->input->push(samples, frames);
}

void Recorder::push_output(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  if (impl_->output) impl_->output->push(samples, frames);
}

void Recorder::begin_next() noexcept HALOTAP_NONBLOCKING {
  // Both in step, whatever came out of what went in: their files' numbers tell which belong together.
  if (!std::exchange(impl_->has_input, false)) return;
  if (impl_->input) impl_->input->begin_next();
  if (impl_->output) impl_->output->begin_next();
}

RecorderReport Recorder::finish() {
  RecorderReport report;
  std::string failure;
  const auto finish_track = [&failure](std::optional<WavTrack>& track, RecorderCounters& counters) {
    if (!track) return;
    try {
      counters = track->finish();
    } catch (const DataError& error) {
      failure += (failure.empty() ? "" : "; ") + std::string(error.what());
    }
  };
  finish_track(impl_->input, report.input);
  finish_track(impl_->output, report.output);
  if (!failure.empty()) throw DataError(failure);
  return report;
}

}  // namespace halotap::io
