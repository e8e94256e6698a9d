#include "call_times.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

namespace halotap::pipeline {

// 0 to 3 streams have a step each; from there on the two bits behind the leading one tell the step in its power of two.
std::size_t CallTimes::step_of(std::size_t streams) noexcept {
  if (streams < std::size_t{1} << kStepBits) return streams;
  const int shift = std::bit_width(streams) - 1 - kStepBits;
  return std::min((static_cast<std::size_t>(shift) << kStepBits) + (streams >> shift), kSteps - 1);
}

std::size_t CallTimes::least_of(std::size_t step) noexcept {
  if (step < std::size_t{1} << kStepBits) return step;
  const std::size_t shift = (step >> kStepBits) - 1;
  return (step - (shift << kStepBits)) << shift;
}

void CallTimes::record(std::size_t streams, std::chrono::nanoseconds time) noexcept HALOTAP_NONBLOCKING {
  std::chrono::nanoseconds& figure = figures_[step_of(streams)];
  follow(figure, time);
  figure = std::max(figure, std::chrono::nanoseconds{1});
}

void CallTimes::doubt(std::size_t streams) noexcept HALOTAP_NONBLOCKING {
  const std::chrono::nanoseconds most = scaled(streams);
  std::chrono::nanoseconds& figure = figures_[step_of(streams)];
  if (most.count() != 0 && figure > most) follow(figure, most);
}

std::chrono::nanoseconds CallTimes::scaled(std::size_t streams) const noexcept {
  std::chrono::nanoseconds least{0};
  for (std::size_t s = 1; s < step_of(streams); ++s) {
    if (figures_[s].count() == 0) continue;
    const double times = static_cast<double>(streams) / static_cast<double>(least_of(s));
    const std::chrono::nanoseconds time{static_cast<std::int64_t>(static_cast<double>(figures_[s].count()) * times)};
    if (least.count() == 0 || time < least) least = time;
  }
  return least;
}

std::chrono::nanoseconds CallTimes::estimate(std::size_t streams) const noexcept HALOTAP_NONBLOCKING {
  const std::size_t step = step_of(streams);
  if (figures_[step].count() != 0) return figures_[step];
  std::chrono::nanoseconds larger{0};
  for (std::size_t s = step; s < kSteps && larger.count() == 0; ++s) larger = figures_[s];
  const std::chrono::nanoseconds smaller = scaled(streams);
  if (larger.count() == 0 || smaller.count() == 0) return std::max(larger, smaller);
  return std::min(larger, smaller);
}

std::size_t CallTimes::fitting(std::chrono::nanoseconds time, std::size_t most) const noexcept HALOTAP_NONBLOCKING {
  std::size_t streams = most;
  while (streams > 0 && estimate(streams) > time) {
    const std::size_t step = step_of(streams);
    // Down within a step only scaling can help; below its least lies another step.
    streams = least_of(step) < streams ? least_of(step) : streams - 1;
  }
  return streams;
}

}  // namespace halotap::pipeline
