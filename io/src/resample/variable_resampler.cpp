#include "resample/variable_resampler.hpp"

#include <soxr.h>

#include <cassert>
#include <cmath>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "halotap/pipeline/errors.hpp"

namespace halotap::io {
namespace {

// Keeps the recursive filter out of the denormals when sound ends: they would take ten times as long. -400 dB.
constexpr float kOffset = 1e-20F;

struct Deleter {
  void operator()(soxr_t resampler) const { soxr_delete(resampler); }
};
using Resampler = std::unique_ptr<soxr, Deleter>;

Resampler new_resampler(std::int64_t channels) {
  soxr_error_t error = nullptr;
  const soxr_io_spec_t io_spec = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, SOXR_VR);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  Resampler resampler(soxr_create(1 / (1 - VariableResampler::kMostCorrection), 1, static_cast<unsigned>(channels),
                                  &error, &io_spec, &quality, &runtime));
  if (error == nullptr && resampler) error = soxr_set_io_ratio(resampler.get(), 1, 0);
  if (error != nullptr || !resampler) {
    throw pipeline::ConfigError("resampling " + std::to_string(channels) +
                                " channels at a variable rate: " + soxr_strerror(error));
  }
  return resampler;
}

// An impulse goes in, and as many frames behind it as it takes until its peak is out.
std::int64_t measured_delay_frames() {
  constexpr std::int64_t kImpulseAt = 1024;
  constexpr std::int64_t kFrames = 4096;
  const Resampler resampler = new_resampler(1);
  float largest = 0;
  std::int64_t peak_at = kImpulseAt;
  for (std::int64_t frame = 0; frame < kFrames; ++frame) {
    const float in = frame == kImpulseAt ? 1.0F : 0.0F;
    float out = 0;
    std::size_t made = 0;
    soxr_process(resampler.get(), &in, 1, nullptr, &out, 1, &made);
    if (made == 1 && std::abs(out) > largest) {
      largest = std::abs(out);
      peak_at = frame;
    }
  }
  return peak_at - kImpulseAt;
}

}  // namespace

struct VariableResampler::Impl {
  explicit Impl(std::int64_t given_channels)
      : channels(given_channels), resampler(new_resampler(channels)), delay_frames(measured_delay_frames()) {}

  std::int64_t channels;
  Resampler resampler;
  std::int64_t delay_frames;
  std::uint64_t samples_zeroed = 0;
  // Both grow to what the longest call needs.
  std::vector<float> taken;
  std::vector<float> made;
};

VariableResampler::VariableResampler(std::int64_t channels) : impl_(std::make_unique<Impl>(channels)) {}
VariableResampler::~VariableResampler() = default;

void VariableResampler::change(double correction, std::int64_t over_frames) {
  assert(std::abs(correction) <= kMostCorrection);
  soxr_set_io_ratio(impl_->resampler.get(), 1 / (1 + correction), static_cast<std::size_t>(over_frames));
}

VariableResampler::Made VariableResampler::process(const float* samples, std::int64_t frames) {
  constexpr std::int64_t kSlackFrames = 16;  // for rounding
  if (frames == 0) return {};                // libsoxr may take it for the end
  const auto channels = static_cast<std::size_t>(impl_->channels);
  const auto room =
      static_cast<std::size_t>(std::ceil(static_cast<double>(frames) * (1 + kMostCorrection))) + kSlackFrames;
  if (impl_->made.size() < room * channels) impl_->made.resize(room * channels);
  const auto count = static_cast<std::size_t>(frames) * channels;
  if (impl_->taken.size() < count) impl_->taken.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_sound = std::abs(samples[i]) <= kLargest;  // of a NaN too
    impl_->taken[i] = (is_sound ? samples[i] : 0.0F) + kOffset;
    impl_->samples_zeroed += is_sound ? 0 : 1;
  }
  std::size_t taken = 0;
  std::size_t made = 0;
  const soxr_error_t error = soxr_process(impl_->resampler.get(), impl_->taken.data(), static_cast<std::size_t>(frames),
                                          &taken, impl_->made.data(), room, &made);
  if (error != nullptr) throw std::bad_alloc();  // all else is checked when it is made
  assert(taken == static_cast<std::size_t>(frames) && made < room);
  return {impl_->made.data(), static_cast<std::int64_t>(made)};
}

std::uint64_t VariableResampler::samples_zeroed() const { return impl_->samples_zeroed; }

std::int64_t VariableResampler::delay_frames() const { return impl_->delay_frames; }

}  // namespace halotap::io
