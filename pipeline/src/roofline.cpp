#include "halotap/pipeline/roofline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/roofline.hpp"
#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {
namespace {

// Tens of microseconds a run: long beside the clock's own 50 ns, short beside the time between two interruptions.
constexpr std::int64_t kRounds = 10000;
constexpr std::int64_t kPasses = 8;
constexpr std::size_t kFloats = std::size_t{512} * 1024 / sizeof(float);
constexpr std::size_t kLineBytes = 64;  // a load that crosses a cache line counts as two
constexpr int kLeastRuns = 5;

// Most of what `work` counts that it did in a nanosecond.
template <typename Work>
double best_rate(std::chrono::nanoseconds duration, Work work) {
  using Clock = std::chrono::steady_clock;
  double best = 0;
  const Clock::time_point end = Clock::now() + duration;
  for (int run = 0; run < kLeastRuns || Clock::now() < end; ++run) {
    const Clock::time_point start = Clock::now();
    const auto done = static_cast<double>(work());
    const std::chrono::duration<double, std::nano> took = Clock::now() - start;
    best = std::max(best, done / std::max(took.count(), 1.0));
  }
  return best;
}

}  // namespace

Roofline measure_roofline(std::chrono::nanoseconds duration) {
  try {
    std::vector<float> room(kFloats + kLineBytes / sizeof(float), 1.0f);
    void* start = room.data();
    std::size_t room_bytes = room.size() * sizeof(float);
    std::align(kLineBytes, kFloats * sizeof(float), start, room_bytes);
    const std::span<const float> data(static_cast<const float*>(start), kFloats);
    Roofline roofline;
    roofline.gflops = best_rate(duration / 2, [] { return kernels::multiply_add_loop(kRounds); });
    roofline.l2_gbytes_per_s = best_rate(duration / 2, [&data] { return kernels::read_loop(data, kPasses); });
    return roofline;
  } catch (const std::invalid_argument& error) {
    throw ConfigError(error.what());
  } catch (const kernels::BackendUnavailable& error) {
    throw DeviceError(error.what());
  }
}

}  // namespace halotap::pipeline
