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

void LatencyHistogram::record(std::chrono::nanoseconds duration) noexcept HALOTAP_NONBLOCKING {
  const auto nanoseconds = static_cast<std::uint64_t>(std::max<std::int64_t>(duration.count(), 0));
  ++counts_[bucket_of(nanoseconds)];
  ++count_;
  max_ = std::max(max_, duration);
}

void LatencyHistogram::add(const LatencyHistogram& other) noexcept {
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) counts_[bucket] += other.counts_[bucket];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

// How many of the durations, from the shortest on, a quantile takes in.
std::uint64_t LatencyHistogram::rank_of(double fraction) const noexcept {
  return static_cast<std::uint64_t>(std::ceil(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(count_)));
}

std::chrono::nanoseconds LatencyHistogram::quantile(double fraction) const noexcept {
  if (count_ == 0) return std::chrono::nanoseconds{0};
  const std::uint64_t wanted = rank_of(fraction);
  std::uint64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += counts_[bucket];
    if (seen > 0 && seen >= wanted) {
      return std::min(max_, std::chrono::nanoseconds{static_cast<std::int64_t>(upper_bound_of(bucket))});
    }
  }
  return max_;
}

LatencyFigures LatencyHistogram::figures() const noexcept HALOTAP_NONBLOCKING {
  LatencyFigures figures;
  figures.chunks = count_;
  figures.max_ns = max_.count();
  const std::array<std::uint64_t, 3> wanted{rank_of(0.5), rank_of(0.99), rank_of(0.999)};
  const std::array<std::int64_t*, 3> values{&figures.p50_ns, &figures.p99_ns, &figures.p999_ns};
  std::uint64_t seen = 0;
  std::size_t next = 0;
  for (std::size_t bucket = 0; bucket < kBuckets && seen < count_; ++bucket) {
    seen += counts_[bucket];
    for (; next < wanted.size() && seen > 0 && seen >= wanted[next]; ++next) {
      *values[next] = std::min(figures.max_ns, static_cast<std::int64_t>(upper_bound_of(bucket)));
    }
  }
  return figures;
}

}  // namespace halotap::pipeline
