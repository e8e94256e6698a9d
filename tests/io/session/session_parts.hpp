// Sources, models and sinks that a session's tests put together.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "wound_clock.hpp"

namespace halotap::io {

// Frame n of every channel of every stream has a value of its own: 1, 2, 3, ...
class CountingSource final : public Source {
 public:
  CountingSource(std::int64_t frames, std::int64_t streams, std::int64_t channels, double rate_hz = 1000)
      : frames_(frames) {
    info_.frames = frames;
    info_.streams = streams;
    info_.channels = channels;
    info_.rate_hz = rate_hz;
  }

  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    on_read();
    const std::int64_t count = std::min(frames, frames_ - at_);
    const std::int64_t frame_samples = info_.streams * info_.channels;
    std::iota(samples, samples + count * frame_samples, static_cast<float>(at_ * frame_samples + 1));
    at_ += count;
    return count;
  }

  std::function<void()> on_read = [] {};

 private:
  SourceInfo info_;
  std::int64_t frames_;
  std::int64_t at_ = 0;
};

struct Recording {
  std::vector<float> samples;
  std::vector<std::pair<std::int64_t, std::size_t>> events;  // the event's frame, and the samples written before it
  std::int64_t frames_held = 0;
  std::vector<HandledGap> gaps;
  bool finished = false;
};

// Keeps what it is given in a Recording that outlives it.
class RecordingSink final : public Sink {
 public:
  RecordingSink(Recording& recording, std::int64_t frame_samples)
      : recording_(recording), frame_samples_(frame_samples) {}

  void write(const float* samples, std::int64_t frames) override {
    EXPECT_FALSE(recording_.finished);
    recording_.samples.insert(recording_.samples.end(), samples, samples + frames * frame_samples_);
    on_write();
  }
  void write_held(const float* samples, std::int64_t frames) override {
    recording_.frames_held += frames;
    write(samples, frames);
  }
  void write_event(const pipeline::StageEvent& event) override {
    EXPECT_FALSE(recording_.finished);
    recording_.events.emplace_back(event.frame, recording_.samples.size());
  }
  void write_gap(const HandledGap& gap) override { recording_.gaps.push_back(gap); }
  void finish() override {
    EXPECT_FALSE(recording_.finished);
    recording_.finished = true;
  }

  std::function<void()> on_write = [] {};

 private:
  Recording& recording_;
  std::int64_t frame_samples_;
};

inline pipeline::Model model_of(kernels::LayerSpec spec, const std::vector<double>& taps) {
  const std::int64_t channels = spec.in_channels;
  kernels::LayerWeights weights;
  for (std::int64_t channel = 0; channel < channels && !taps.empty(); ++channel) {
    weights.dw_weight.insert(weights.dw_weight.end(), taps.begin(), taps.end());
  }
  weights.pw_weight.assign(static_cast<std::size_t>(channels * channels), 0.0);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    weights.pw_weight[static_cast<std::size_t>(channel * channels + channel)] = 1;
  }
  pipeline::Model model;
  model.name = "test";
  model.frame_rate_hz = 1000;
  model.stack = std::make_shared<kernels::Stack>(std::vector<kernels::Layer>{{std::move(spec), std::move(weights)}});
  return model;
}

// y[t] = x[t]
inline pipeline::Model identity_model(std::int64_t channels) {
  kernels::LayerSpec spec;
  spec.name = "identity";
  spec.type = kernels::LayerType::kPointwise;
  spec.in_channels = spec.out_channels = channels;
  spec.activation = kernels::Activation::kIdentity;
  return model_of(spec, {});
}

// y[t] = x[t + 2]: looks two frames ahead, and sees zeros behind the end.
inline pipeline::Model look_ahead_model(std::int64_t channels) {
  kernels::LayerSpec spec;
  spec.name = "ahead";
  spec.in_channels = spec.out_channels = channels;
  spec.kernel_size = 5;
  spec.padding = kernels::Padding::kSame;
  spec.activation = kernels::Activation::kIdentity;
  return model_of(spec, {0, 0, 0, 0, 1});
}

inline pipeline::PipelineSpec pipeline_spec(std::int64_t chunk_frames, std::int64_t streams = 1,
                                            std::int64_t ring_capacity_frames = 1) {
  pipeline::PipelineSpec spec;
  spec.backend = pipeline::Backend::kCpu;
  spec.streams = streams;
  spec.chunks.max_frames = chunk_frames;
  spec.ring_capacity_frames = ring_capacity_frames;
  return spec;
}

inline std::vector<float> counted(std::int64_t samples) {
  std::vector<float> result(static_cast<std::size_t>(samples));
  std::iota(result.begin(), result.end(), 1.0F);
  return result;
}

inline std::vector<std::unique_ptr<Sink>> sinks_into(std::vector<Recording>& recordings, std::int64_t frame_samples) {
  std::vector<std::unique_ptr<Sink>> sinks;
  for (Recording& recording : recordings) {
    sinks.push_back(std::make_unique<RecordingSink>(recording, frame_samples));
  }
  return sinks;
}

// A live source whose frames a clock makes that a test winds: frame i, of the value i + 1, is whole at (i + 1) /
// rate_hz.
class ClockedSource final : public Source {
 public:
  ClockedSource(const test::WoundClock& clock, double rate_hz) : clock_(clock), start_(clock.now()) {
    info_.channels = 1;
    info_.rate_hz = rate_hz;
    info_.is_live = true;
  }

  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    on_read();
    while (waiting().frames == 0) clock_.wind(std::chrono::milliseconds(1));
    const std::int64_t count = std::min(frames, waiting().frames);
    std::iota(samples, samples + count, static_cast<float>(at_ + 1));
    at_ += count;
    return count;
  }
  std::optional<pipeline::Instant> capture_time() const override {
    const std::chrono::duration<double> since(static_cast<double>(at_) / info_.rate_hz);
    return start_ + std::chrono::round<std::chrono::nanoseconds>(since);
  }
  Waiting waiting() const override {
    const std::chrono::duration<double> since = clock_.now() - start_;
    return {static_cast<std::int64_t>(std::floor(since.count() * info_.rate_hz + 1e-6)) - at_, 500};
  }

  std::function<void()> on_read = [] {};

 private:
  const test::WoundClock& clock_;
  pipeline::Instant start_;
  SourceInfo info_;
  std::int64_t at_ = 0;
};

}  // namespace halotap::io
