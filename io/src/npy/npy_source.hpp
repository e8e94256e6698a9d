// Reads .npy arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "address.hpp"
#include "file.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/io/source.hpp"
#include "npy/npy_header.hpp"

namespace halotap::io {

// Frames of an array [frames], [frames, channels] or [streams, channels, frames], in C or Fortran order. Holds a window
// of frames, however large the file.
class NpySource : public Source {
 public:
  NpySource(File file, NpyHeader header, double rate_hz);

  const SourceInfo& info() const override { return info_; }
  std::int64_t read(float* samples, std::int64_t frames) override;
  std::int64_t read(double* samples, std::int64_t frames) override;

 private:
  template <class Real>
  std::int64_t read_as(Real* samples, std::int64_t frames);
  template <class Real>
  void decode(Real* samples, std::int64_t frames) const;
  template <class Value, class Real>
  void decode_values(Real* samples, std::int64_t frames) const;
  void fill_window();

  File file_;
  NpyHeader header_;
  SourceInfo info_;
  bool time_is_outermost_;         // in the file: the values of one frame lie together
  std::int64_t next_frame_ = 0;    // the next to give
  std::vector<std::byte> window_;  // as in the file: [window frames, values] or [values, window frames]
  std::int64_t window_begin_ = 0;  // the window holds frames [begin, end)
  std::int64_t window_end_ = 0;
};

// Options: rate. [control]
std::unique_ptr<Source> open_npy_source(Address& address, const SourceRequest& request);

}  // namespace halotap::io
