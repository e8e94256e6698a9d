// The input history of one layer of one stream.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>

#include "cpu/layer_kernels.hpp"

namespace halotap::kernels::cpu {

// A ring of `capacity` rows and behind it a tail as long again, so that the halo and the new rows of any step are one
// contiguous run and nothing is ever shifted:
//
//     rows      0 ........ capacity | capacity ........ 2*capacity
//     window        [start, start + halo + frames)         start < capacity
//
// with capacity = halo + the longest step. Rows written into the tail are mirrored to where they will be read as halo
// once the window has gone round: row r + capacity to row r. Rows written in front of it are read where they are. The
// shape is shared by all streams of a layer; the rows and `start` are the stream's. [worker]
class HistoryRing {
 public:
  // Floats that a ring over rows of `stride` floats needs.
  static std::int64_t size(std::int64_t halo_frames, std::int64_t max_step_frames, std::int64_t stride) {
    return rows_floats(2 * (halo_frames + max_step_frames), stride);
  }

  HistoryRing(float* rows, std::int64_t& start, std::int64_t halo_frames, std::int64_t max_step_frames,
              std::int64_t stride)
      : rows_(rows), start_(start), halo_(halo_frames), capacity_(halo_frames + max_step_frames), stride_(stride) {}

  // The halo's rows and behind them room for a step. The step's rows are written from `window() + halo * stride` on.
  float* window() const { return rows_ + start_ * stride_; }

  // Takes over the `frames` rows written behind the halo: mirrors those in the tail and moves the window on.
  void advance(std::int64_t frames) {
    assert(frames <= capacity_ - halo_);
    const std::int64_t end = start_ + halo_ + frames;
    const std::int64_t first = std::max(start_ + halo_, capacity_);
    if (first < end) copy(rows_ + first * stride_, rows_ + (first - capacity_) * stride_, end - first);
    start_ += frames;
    if (start_ >= capacity_) start_ -= capacity_;
  }

  // Makes every row of the halo zero, and the ring as if new: what lies outside the halo is written before it is read.
  void clear() {
    start_ = 0;
    std::memset(rows_, 0, static_cast<std::size_t>(halo_ * stride_) * sizeof(float));
  }

  // Makes every row of the halo a copy of `row`.
  void fill(const float* row) {
    start_ = 0;
    for (std::int64_t r = 0; r < halo_; ++r) copy(row, rows_ + r * stride_, 1);
  }

 private:
  void copy(const float* from, float* to, std::int64_t count) {
    std::memcpy(to, from, static_cast<std::size_t>(count * stride_) * sizeof(float));
  }

  float* rows_;
  std::int64_t& start_;
  std::int64_t halo_;
  std::int64_t capacity_;
  std::int64_t stride_;
};

}  // namespace halotap::kernels::cpu
