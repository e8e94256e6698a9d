#include "png/time_bins.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

namespace halotap::io {

namespace {

constexpr float kNotFinite = std::numeric_limits<float>::quiet_NaN();

float more_extreme(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return kNotFinite;
  return std::abs(b) > std::abs(a) ? b : a;
}

}  // namespace

TimeBins::TimeBins(std::int64_t rows, std::int64_t max_bins) : rows_(rows), max_bins_(max_bins) {
  assert(rows > 0 && max_bins > 0 && max_bins % 2 == 0);
}

void TimeBins::add(const float* samples) {
  if (frames_ == max_bins_ * frames_per_bin_) join_neighbours();
  const std::int64_t bin = frames_ / frames_per_bin_;
  if (bin == bins()) values_.resize(values_.size() + rows_, 0.0F);
  float* values = values_.data() + bin * rows_;
  for (std::int64_t row = 0; row < rows_; ++row) {
    const float sample = samples[row];
    if (std::isfinite(sample)) {
      any_negative_ = any_negative_ || sample < 0;
      largest_magnitude_ = std::max(largest_magnitude_, std::abs(sample));
      values[row] = more_extreme(values[row], sample);
    } else {
      ++not_finite_;
      values[row] = kNotFinite;
    }
  }
  ++frames_;
}

float TimeBins::extreme(std::int64_t first_frame, std::int64_t end_frame, std::int64_t first_row,
                        std::int64_t end_row) const {
  float result = 0;
  for (std::int64_t bin = first_frame / frames_per_bin_; bin * frames_per_bin_ < end_frame; ++bin) {
    for (std::int64_t row = first_row; row < end_row; ++row) result = more_extreme(result, value(bin, row));
  }
  return result;
}

void TimeBins::join_neighbours() {
  const std::int64_t joined = bins() / 2;
  for (std::int64_t bin = 0; bin < joined; ++bin) {
    for (std::int64_t row = 0; row < rows_; ++row) {
      values_[bin * rows_ + row] = more_extreme(value(2 * bin, row), value(2 * bin + 1, row));
    }
  }
  values_.resize(joined * rows_);
  frames_per_bin_ *= 2;
}

}  // namespace halotap::io
