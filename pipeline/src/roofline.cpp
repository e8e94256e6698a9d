#include "halotap/pipeline/roofline.hpp"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>

#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/roofline.hpp"
#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {
namespace {

// A hundred and some tens of microseconds: long beside the clock's own 50 ns and beside what a core's multipliers take
// to come up to speed, short beside the time between two interruptions and beside what a core takes to change its
// clock.
constexpr std::int64_t kRounds = 10000;
constexpr std::int64_t kPasses = 8;
constexpr std::size_t kFloats = std::size_t{512} * 1024 / sizeof(float);
constexpr std::size_t kLineBytes = 64;  // a load that crosses a cache line counts as two

// What `work` counts that it did, in a nanosecond.
template <typename Work>
double rate(Work work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto done = static_cast<double>(work());
  const std::chrono::duration<double, std::nano> took = Clock::now() - start;
  return done / std::max(took.count(), 1.0);
}

double ninth_decile(std::vector<double> samples) {
  assert(!samples.empty());
  const auto place = samples.begin() + static_cast<std::ptrdiff_t>((samples.size() - 1) * 9 / 10);
  std::nth_element(samples.begin(), place, samples.end());
  return *place;
}

}  // namespace

Roofline::Roofline() : data_(kFloats + kLineBytes / sizeof(float), 1.0f) {}

void Roofline::sample() {
  try {
    void* start = data_.data();
    std::size_t room_bytes = data_.size() * sizeof(float);
    std::align(kLineBytes, kFloats * sizeof(float), start, room_bytes);
    const std::span<const float> data(static_cast<const float*>(start), kFloats);
    gflops_.push_back(rate([] { return kernels::multiply_add_loop(kRounds); }));
    kernels::read_loop(data, 1);  // fetches what others have displaced
    l2_gbytes_per_s_.push_back(rate([&data] { return kernels::read_loop(data, kPasses); }));
  } catch (const std::invalid_argument& error) {
    throw ConfigError(error.what());
  } catch (const kernels::BackendUnavailable& error) {
    throw DeviceError(error.what());
  }
}

double Roofline::gflops() const { return ninth_decile(gflops_); }

double Roofline::l2_gbytes_per_s() const { return ninth_decile(l2_gbytes_per_s_); }

}  // namespace halotap::pipeline
