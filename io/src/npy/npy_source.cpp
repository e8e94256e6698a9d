#include "npy/npy_source.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "source_rate.hpp"

namespace halotap::io {

namespace {

constexpr std::int64_t kWindowBytes = 4 << 20;

static_assert(std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559,
              "the file's bits are taken as float's and double's; a double beyond float's range becomes Inf");

struct Half {
  std::uint16_t bits;

  operator float() const {  // exact: every half is a float
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    const float magnitude = exponent == 0   ? std::ldexp(static_cast<float>(fraction), -24)
                            : exponent < 31 ? std::ldexp(static_cast<float>(fraction | 1024), exponent - 25)
                            : fraction == 0 ? std::numeric_limits<float>::infinity()
                                            : std::numeric_limits<float>::quiet_NaN();
    return bits >> 15 ? -magnitude : magnitude;
  }
};

std::uint16_t swapped(std::uint16_t bits) { return __builtin_bswap16(bits); }
std::uint32_t swapped(std::uint32_t bits) { return __builtin_bswap32(bits); }
std::uint64_t swapped(std::uint64_t bits) { return __builtin_bswap64(bits); }

template <class Value>
Value load(const std::byte* bytes, bool swap) {
  using Bits = std::conditional_t<sizeof(Value) == 2, std::uint16_t,
                                  std::conditional_t<sizeof(Value) == 4, std::uint32_t, std::uint64_t>>;
  Bits bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return std::bit_cast<Value>(swap ? swapped(bits) : bits);
}

}  // namespace

NpySource::NpySource(File file, NpyHeader header, double rate_hz)
    : file_(std::move(file)),
      header_(std::move(header)),
      // 2-D has time first and 3-D last; Fortran order has the first axis innermost.
      time_is_outermost_((header_.shape.size() == 3) == header_.fortran_order) {
  const std::vector<std::int64_t>& shape = header_.shape;
  if (shape.size() == 3) {
    info_.arrangement = Arrangement::kStreamsChannelsFrames;
    info_.streams = shape[0];
    info_.channels = shape[1];
    info_.frames = shape[2];
  } else {
    info_.frames = shape[0];
    info_.channels = shape.size() == 2 ? shape[1] : 1;
  }
  info_.rate_hz = rate_hz;
}

std::int64_t NpySource::read(float* samples, std::int64_t frames) { return read_as(samples, frames); }
std::int64_t NpySource::read(double* samples, std::int64_t frames) { return read_as(samples, frames); }

template <class Real>
std::int64_t NpySource::read_as(Real* samples, std::int64_t frames) {
  frames = std::min(frames, info_.frames - next_frame_);
  for (std::int64_t left = frames; left > 0;) {
    if (next_frame_ == window_end_) fill_window();
    const std::int64_t count = std::min(left, window_end_ - next_frame_);
    decode(samples, count);
    samples += count * info_.streams * info_.channels;
    next_frame_ += count;
    left -= count;
  }
  return frames;
}

void NpySource::fill_window() {
  const std::int64_t value_bytes = size_bytes(header_.type);
  const std::int64_t rows = info_.streams * info_.channels;
  const std::int64_t frames =
      std::clamp<std::int64_t>(kWindowBytes / (rows * value_bytes), 1, info_.frames - next_frame_);
  window_.resize(static_cast<std::size_t>(frames * rows * value_bytes));
  if (time_is_outermost_) {
    file_.read_at(header_.data_offset_bytes + next_frame_ * rows * value_bytes, window_.data(), window_.size());
  } else {
    const std::int64_t row_bytes = frames * value_bytes;
    for (std::int64_t row = 0; row < rows; ++row) {
      file_.read_at(header_.data_offset_bytes + (row * info_.frames + next_frame_) * value_bytes,
                    window_.data() + row * row_bytes, static_cast<std::size_t>(row_bytes));
    }
  }
  window_begin_ = next_frame_;
  window_end_ = next_frame_ + frames;
}

template <class Real>
void NpySource::decode(Real* samples, std::int64_t frames) const {
  switch (header_.type) {
    case NpyType::kFloat16:
      return decode_values<Half>(samples, frames);
    case NpyType::kFloat32:
      return decode_values<float>(samples, frames);
    case NpyType::kFloat64:
      return decode_values<double>(samples, frames);
    case NpyType::kInt16:
      return decode_values<std::int16_t>(samples, frames);
    case NpyType::kInt32:
      return decode_values<std::int32_t>(samples, frames);
  }
}

template <class Value, class Real>
void NpySource::decode_values(Real* samples, std::int64_t frames) const {
  const bool swap = header_.big_endian != (std::endian::native == std::endian::big);
  // Steps through the window, in values.
  const std::int64_t frame_step = time_is_outermost_ ? info_.streams * info_.channels : 1;
  const std::int64_t row_step = time_is_outermost_ ? 1 : window_end_ - window_begin_;
  const std::int64_t stream_step = header_.fortran_order ? row_step : row_step * info_.channels;
  const std::int64_t channel_step = header_.fortran_order ? row_step * info_.streams : row_step;
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    for (std::int64_t stream = 0; stream < info_.streams; ++stream) {
      const std::byte* at =
          window_.data() + ((next_frame_ - window_begin_ + frame) * frame_step + stream * stream_step) *
                               static_cast<std::int64_t>(sizeof(Value));
      for (std::int64_t channel = 0; channel < info_.channels; ++channel) {
        *samples++ = static_cast<Real>(load<Value>(at, swap));
        at += channel_step * static_cast<std::int64_t>(sizeof(Value));
      }
    }
  }
}

std::unique_ptr<Source> open_npy_source(Address& address, const SourceRequest& request) {
  const double rate_hz = take_rate_hz(address, request);
  File file = File::open_regular(address.path());
  const std::int64_t size = file.size_bytes();
  std::vector<std::byte> start(static_cast<std::size_t>(std::min<std::int64_t>(size, kMaxNpyHeaderBytes)));
  file.read_at(0, start.data(), start.size());
  NpyHeader header = read_npy_header(start, size, address.path());
  return std::make_unique<NpySource>(std::move(file), std::move(header), rate_hz);
}

}  // namespace halotap::io
