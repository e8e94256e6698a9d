#include "comparison.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "halotap/pipeline/errors.hpp"

namespace halotap::apps {
namespace {

// Each peak exceeds the one before by this factor, so that there are at most ln(1e308 / 5e-324) / ln(1.001) = 1.5
// million, and only for an error that grows all the way; a stationary one has about ln(samples).
constexpr double kPeakGrowth = 1.001;

[[noreturn]] void refuse(const std::string& name, const std::string& what, std::int64_t expected, std::int64_t got) {
  throw pipeline::DataError(name + ": " + what + ": expected " + std::to_string(expected) + " as the result has, got " +
                            std::to_string(got));
}

}  // namespace

Comparison::Comparison(std::unique_ptr<io::Source> expected, std::string name, const io::SinkSpec& result,
                       const std::atomic<bool>* stop)
    : expected_(std::move(expected)),
      name_(std::move(name)),
      stop_(stop),
      streams_(result.streams),
      channels_(result.channels) {
  const io::SourceInfo& info = expected_->info();
  if (info.streams != streams_) refuse(name_, "streams", streams_, info.streams);
  if (info.channels != channels_) refuse(name_, "channels", channels_, info.channels);
  if (info.frames >= 0 && result.frames >= 0 && info.frames != result.frames) {
    refuse(name_, "frames", result.frames, info.frames);
  }
  const std::int64_t frame_samples = streams_ * channels_;
  block_frames_ = std::clamp<std::int64_t>((1 << 19) / frame_samples, 1, 4096);
  block_.resize(static_cast<std::size_t>(block_frames_ * frame_samples));
}

void Comparison::write(const float* samples, std::int64_t frames) {
  const std::int64_t frame_samples = streams_ * channels_;
  while (frames > 0 && missing_frames_ == 0) {
    const std::int64_t read = expected_->read(block_.data(), std::min(frames, block_frames_));
    if (read == 0) break;
    const std::int64_t first = frames_ * frame_samples;
    for (std::int64_t i = 0; i < read * frame_samples; ++i) {
      compare({first + i, static_cast<double>(samples[i]), block_[static_cast<std::size_t>(i)]});
    }
    samples += read * frame_samples;
    frames -= read;
    frames_ += read;
  }
  missing_frames_ += frames;
}

void Comparison::finish() {
  if (missing_frames_ > 0) refuse(name_, "frames", frames_ + missing_frames_, frames_);
  if (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) return;
  std::int64_t extra_frames = 0;
  while (const std::int64_t read = expected_->read(block_.data(), block_frames_)) extra_frames += read;
  if (extra_frames > 0) refuse(name_, "frames", frames_, frames_ + extra_frames);
}

std::optional<double> Comparison::rel_l2() const {
  if (non_finite_mismatches_ > 0) return std::nullopt;
  if (error_energy_ == 0) return 0.0;
  if (expected_energy_ == 0) return std::nullopt;
  return static_cast<double>(std::sqrt(error_energy_ / expected_energy_));
}

std::optional<double> Comparison::max_abs() const {
  if (non_finite_mismatches_ > 0) return std::nullopt;
  return largest_error();
}

bool Comparison::passes(const Tolerances& tolerances) const {
  if (non_finite_mismatches_ > 0) return false;
  const std::optional<double> relative = rel_l2();
  return (relative && *relative <= tolerances.rel_l2) || largest_error() <= tolerances.abs;
}

std::optional<Mismatch> Comparison::first_mismatch(const Tolerances& tolerances) const {
  if (passes(tolerances)) return std::nullopt;
  std::optional<Error> first = first_non_finite_;
  const double limit = std::max(tolerances.abs, largest_error() / 100);
  // The first error above the limit is above all before it, so it is a peak (to 0.1 %).
  const auto peak =
      std::find_if(peaks_.begin(), peaks_.end(), [limit](const Error& error) { return error.size() > limit; });
  const std::optional<Error> finite = peak != peaks_.end() ? *peak : (first ? std::nullopt : largest_);
  if (finite && (!first || finite->sample < first->sample)) first = finite;
  if (!first) return std::nullopt;
  return Mismatch{first->sample / channels_ % streams_, first->sample % channels_,
                  first->sample / (channels_ * streams_), first->got, first->expected};
}

void Comparison::compare(const Error& error) {
  if (!std::isfinite(error.got) || !std::isfinite(error.expected)) {
    if (error.got == error.expected || (std::isnan(error.got) && std::isnan(error.expected))) return;
    if (non_finite_mismatches_++ == 0) first_non_finite_ = error;
    return;
  }
  const double size = error.size();
  error_energy_ += static_cast<long double>(size) * size;
  expected_energy_ += static_cast<long double>(error.expected) * error.expected;
  if (size > largest_error()) {
    largest_ = error;
    if (peaks_.empty() || size > kPeakGrowth * peaks_.back().size()) peaks_.push_back(error);
  }
}

}  // namespace halotap::apps
