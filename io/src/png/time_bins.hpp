// A recording of any length kept in a picture's width.
#pragma once

#include <cstdint>
#include <vector>

namespace halotap::io {

// Keeps, for each of `rows` rows, at most max_bins bins of equally many frames each. A bin is its value of greatest
// magnitude, with its sign, so that the shortest event stays visible however long the recording is; NaN when any of
// its values is not finite. When all bins are full, neighbours are joined and every bin covers twice the frames.
class TimeBins {
 public:
  // `max_bins` is even.
  TimeBins(std::int64_t rows, std::int64_t max_bins);

  // Appends one frame of `rows` samples.
  void add(const float* samples);

  std::int64_t rows() const { return rows_; }
  std::int64_t frames() const { return frames_; }
  std::int64_t bins() const { return static_cast<std::int64_t>(values_.size()) / rows_; }
  std::int64_t frames_per_bin() const { return frames_per_bin_; }
  float value(std::int64_t bin, std::int64_t row) const { return values_[bin * rows_ + row]; }

  // The value of greatest magnitude (NaN when any is not finite) in a rectangle of frames and rows, both ranges not
  // empty. Bins that the range of frames only touches count in full.
  float extreme(std::int64_t first_frame, std::int64_t end_frame, std::int64_t first_row, std::int64_t end_row) const;

  // About all samples that ever came.
  std::int64_t not_finite() const { return not_finite_; }
  bool any_negative() const { return any_negative_; }
  float largest_magnitude() const { return largest_magnitude_; }  // of the finite ones; 0 for none

 private:
  void join_neighbours();

  std::int64_t rows_;
  std::int64_t max_bins_;
  std::int64_t frames_ = 0;
  std::int64_t frames_per_bin_ = 1;
  std::int64_t not_finite_ = 0;
  bool any_negative_ = false;
  float largest_magnitude_ = 0;
  std::vector<float> values_;  // [bins, rows]
};

}  // namespace halotap::io
