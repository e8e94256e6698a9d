#include "halotap/pipeline/latency.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

namespace halotap::pipeline {

// Below 2^kStepBits every nanosecond has its own bucket; from there on the kStepBits bits behind the leading one pick
// the step inside the power of two.
std::size_t LatencyHistogram::bucket_of(std::uint64_t nanoseconds) noexcept {
  constexpr std::uint64_t kMost = (std::uint64_t{1} << kRangeBits) - 1;
  nanoseconds = std::min(nanoseconds, kMost);
  const int leading = std::bit_width(nanoseconds | 1) - 1;
  const int shift = std::max(leading - kStepBits, 0);
  return (static_cast<std::size_t>(shift) << kStepBits) + static_cast<std::size_t>(nanoseconds >> shift);
}

std::uint64_t LatencyHistogram::upper_bound_of(std::size_t bucket) noexcept {
  const std::size_t steps = std::size_t{1} << kStepBits;
  if (bucket < 2 * steps) return bucket;
  const std::size_t shift = (bucket >> kStepBits) - 1;
  return ((std::uint64_t{bucket} - (shift << kStepBits) + 1) << shift) - 1;
}

void LatencyHistogram::record(std::chrono::nanoseconds duration) noexcept {
  const auto nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
  ++counts_[bucket_of(nanoseconds)];
  ++count_;
  max_ = std::max(max_, duration);
}

std::chrono::nanoseconds LatencyHistogram::quantile(double fraction) const noexcept {
  if (count_ == 0) return std::chrono::nanoseconds{0};
  const auto wanted =
      static_cast<std::uint64_t>(std::ceil(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(count_)));
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += counts_[bucket];
    if (seen > 0 && seen >= wanted) {
      return std::min(max_, std::chrono::nanoseconds{static_cast<std::int64_t>(upper_bound_of(bucket))});
    }
  }
  return max_;
}

}  // namespace halotap::pipeline
