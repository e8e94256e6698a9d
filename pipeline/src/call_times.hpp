// How long a call of the engine takes for so many streams.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "halotap/kernels/annotations.hpp"

namespace halotap::pipeline {

// A running figure on the side of caution: follows a longer time at once and a shorter one slowly,
//
//     figure = max(time, figure - (figure - time) / 64)        an outlier is halved after 44 times
//
inline void follow(std::chrono::nanoseconds& figure, std::chrono::nanoseconds time) noexcept HALOTAP_NONBLOCKING {
  figure = std::max(time, figure - (figure - time) / 64);
}

// Such a figure by the number of streams in a call; calls of about as many (four steps in every power of two) share
// one. For a number of streams that was never measured it is the least of what t(n) = a + b n, a and b at least 0,
// allows:
//
//     t(n) <= t(m)            for m >= n: the figure of the next larger step that has one
//     t(n) <= t(m) * n / m    for m <= n: every smaller step that has one
//
// Fixed size. Of one thread. [worker]
class CallTimes {
 public:
  void record(std::size_t streams, std::chrono::nanoseconds time) noexcept HALOTAP_NONBLOCKING;

  // A call of so many streams was not made, for its time: its figure comes nearer to what smaller ones allow, or one
  // call that was held up would keep it too long for good. [worker]
  void doubt(std::size_t streams) noexcept HALOTAP_NONBLOCKING;

  // Of a call of so many streams, at least 1; zero while nothing was recorded.
  std::chrono::nanoseconds estimate(std::size_t streams) const noexcept HALOTAP_NONBLOCKING;
  // A number of streams up to `most` for which the estimate is at most `time`, as large as the steps tell; 0: none.
  std::size_t fitting(std::chrono::nanoseconds time, std::size_t most) const noexcept HALOTAP_NONBLOCKING;

 private:
  static constexpr int kStepBits = 2;
  static constexpr std::size_t kSteps = (20 - kStepBits + 2) << kStepBits;  // up to 2^20 streams and a step
  static std::size_t step_of(std::size_t streams) noexcept;
  static std::size_t least_of(std::size_t step) noexcept;
  // t(m) * n / m of the smaller steps that were measured, the least; 0: none was.
  std::chrono::nanoseconds scaled(std::size_t streams) const noexcept;

  std::array<std::chrono::nanoseconds, kSteps> figures_{};  // 0: none
};

}  // namespace halotap::pipeline
