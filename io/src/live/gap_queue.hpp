// Places where frames are missing, or where the time of capture is told, on their way from the producer to the
// consumer.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "halotap/io/source.hpp"
#include "halotap/pipeline/annotations.hpp"

namespace halotap::io {

// A gap in front of frame `at_frame` of those that went into a ring, counted from 0, and when that frame was meant to
// be captured, in nanoseconds of the monotonic clock. Without a gap it tells that time alone.
struct PlacedGap {
  std::int64_t at_frame = 0;
  Gap gap;
  std::int64_t captured_ns = 0;
};

// A fixed-size single-producer single-consumer queue of gaps.
class GapQueue {
 public:
  // False when it is full. [producer]
  bool push(const PlacedGap& gap) noexcept HALOTAP_NONBLOCKING {
    const std::size_t written = written_.load(std::memory_order_relaxed);               // this thread alone writes it
    if (written - read_.load(std::memory_order_acquire) == gaps_.size()) return false;  // pairs with pop's release
    gaps_[written % gaps_.size()] = gap;
    written_.store(written + 1, std::memory_order_release);  // pairs with front's acquire: the gap is written
    return true;
  }
  // Whether more than half of it is free. [producer]
  bool has_room() const noexcept HALOTAP_NONBLOCKING {
    // Relaxed: this thread alone writes the one, and an older value of the other only makes it look fuller.
    return written_.load(std::memory_order_relaxed) - read_.load(std::memory_order_relaxed) < gaps_.size() / 2;
  }
  // The oldest gap, or null. Valid until pop. [consumer]
  const PlacedGap* front() const noexcept HALOTAP_NONBLOCKING {
    const std::size_t read = read_.load(std::memory_order_relaxed);        // this thread alone writes it
    if (read == written_.load(std::memory_order_acquire)) return nullptr;  // pairs with push's release
    return &gaps_[read % gaps_.size()];
  }
  // [consumer]
  void pop() noexcept HALOTAP_NONBLOCKING {
    // release, with push's acquire: the place has been read before it is written again
    read_.store(read_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

 private:
  std::array<PlacedGap, 64> gaps_;
  std::atomic<std::size_t> written_{0};
  std::atomic<std::size_t> read_{0};
};

}  // namespace halotap::io
