#include "input/sample_guard.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>

namespace halotap::io {
namespace {

using pipeline::OnInvalid;

// Magnitudes are compared as whole numbers, which order floats without their sign as the floats do, infinity and then
// the NaNs above all. It costs one comparison a sample, and no mode of the processor or the compiler has a say in it.
std::uint32_t magnitude_bits(float sample) { return std::bit_cast<std::uint32_t>(sample) & 0x7FFFFFFFU; }

const std::uint32_t kMostBits = magnitude_bits(pipeline::kMaxMagnitude);
const std::uint32_t kInfinityBits = magnitude_bits(std::numeric_limits<float>::infinity());

bool is_invalid(float sample) { return magnitude_bits(sample) > kMostBits; }

}  // namespace

SampleGuard::SampleGuard(OnInvalid on_invalid, std::int64_t frame_samples)
    : on_invalid_(on_invalid), frame_samples_(frame_samples), before_(static_cast<std::size_t>(frame_samples), 0.0F) {}

void SampleGuard::clean(float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  if (frames == 0) return;
  float* const end = samples + frames * frame_samples_;
  std::uint32_t invalid = 0;  // a block is far below 2^32 samples
  for (const float* sample = samples; sample != end; ++sample) invalid += is_invalid(*sample) ? 1 : 0;
  if (invalid > 0) {
    std::uint32_t infinite = 0;
    std::uint32_t nan = 0;
    for (const float* sample = samples; sample != end; ++sample) {
      infinite += magnitude_bits(*sample) == kInfinityBits ? 1 : 0;
      nan += magnitude_bits(*sample) > kInfinityBits ? 1 : 0;
    }
    counts_.nan += nan;
    counts_.infinite += infinite;
    counts_.too_large += invalid - infinite - nan;
    if (on_invalid_ == OnInvalid::kZero) {
      for (float* sample = samples; sample != end; ++sample) *sample = is_invalid(*sample) ? 0.0F : *sample;
    } else if (on_invalid_ == OnInvalid::kHold) {
      const float* before = before_.data();
      for (float* frame = samples; frame != end; before = frame, frame += frame_samples_) {
        for (std::int64_t i = 0; i < frame_samples_; ++i) frame[i] = is_invalid(frame[i]) ? before[i] : frame[i];
      }
    }
  }
  std::copy_n(end - frame_samples_, frame_samples_, before_.begin());
}

void SampleGuard::begin_again() noexcept HALOTAP_NONBLOCKING { std::fill(before_.begin(), before_.end(), 0.0F); }

}  // namespace halotap::io
