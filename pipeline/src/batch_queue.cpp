#include "batch_queue.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace halotap::pipeline {

BatchQueue::BatchQueue(std::size_t slots, const Rule& rule) : rule_(rule), awaited_since_(slots) {
  chunks_.reserve(slots);
  taken_.reserve(slots);
}

void BatchQueue::add(Chunk chunk) noexcept HALOTAP_NONBLOCKING {
  pass(chunk.slot);
  chunks_.push_back(chunk);
  note(chunk);
}

void BatchQueue::note(const Chunk& chunk) noexcept {
  earliest_deadline_ = std::min(earliest_deadline_, chunk.deadline);
  earliest_wait_ = std::min(earliest_wait_, chunk.waits_until);
}

void BatchQueue::pass(std::uint32_t slot) noexcept HALOTAP_NONBLOCKING {
  if (awaited_since_[slot] != call_) return;
  awaited_since_[slot] = 0;
  --awaited_;
}

Instant BatchQueue::due(Instant now) const noexcept HALOTAP_NONBLOCKING {
  if (chunks_.empty()) return Instant::max();
  if (awaited_ == 0) return now;
  return std::min(earliest_wait_,
                  earliest_deadline_ - times_.estimate(chunks_.size()) - rule_.least_margin - lateness_);
}

std::size_t BatchQueue::count_at(Instant now) const noexcept {
  std::size_t most = chunks_.size();
  if (rule_.max_call.count() > 0) {
    const std::size_t short_enough = times_.fitting(rule_.max_call, most);
    if (short_enough > 0) most = short_enough;  // else no call is
  }
  const std::chrono::nanoseconds left = earliest_deadline_ - now;
  if (times_.estimate(most) <= left) return most;
  const std::size_t in_time = times_.fitting(left, most);
  return in_time == 0 ? most : in_time;
}

// Among the first `count` chunks, which are about to be taken.
void BatchQueue::admit_longest_waiting(std::size_t count, Instant now) noexcept {
  const auto end = chunks_.begin() + static_cast<std::ptrdiff_t>(count);
  const auto waiting = std::min_element(end, chunks_.end(), [](const Chunk& a, const Chunk& b) {
    return std::pair(a.deadline != Instant::max(), a.waits_until) <
           std::pair(b.deadline != Instant::max(), b.waits_until);
  });
  if (waiting->deadline != Instant::max() || waiting->waits_until > now) return;
  const auto latest =
      std::max_element(chunks_.begin(), end, [](const Chunk& a, const Chunk& b) { return a.deadline < b.deadline; });
  if (latest->deadline == Instant::max()) return;  // all that have one are taken
  // Alone in a call it would delay the other by one, which must have the time or have lost it.
  const auto time = times_.estimate(1);
  const bool bears_it = now + 2 * time <= latest->deadline || now + time > latest->deadline;
  if (count > 1 || bears_it) std::swap(*latest, *waiting);
}

const std::vector<BatchQueue::Chunk>& BatchQueue::take(Instant now) noexcept HALOTAP_NONBLOCKING {
  taken_.clear();
  if (chunks_.empty()) return taken_;
  const std::size_t count = count_at(now);
  earliest_deadline_ = Instant::max();
  earliest_wait_ = Instant::max();
  if (count == chunks_.size()) {
    std::swap(chunks_, taken_);
  } else {
    const auto end = chunks_.begin() + static_cast<std::ptrdiff_t>(count);
    // Of equal deadlines those that wait longest, or some streams would be left behind for ever.
    std::nth_element(chunks_.begin(), end, chunks_.end(), [](const Chunk& a, const Chunk& b) {
      return std::tie(a.deadline, a.waits_until, a.slot) < std::tie(b.deadline, b.waits_until, b.slot);
    });
    admit_longest_waiting(count, now);
    times_.doubt(chunks_.size());
    taken_.assign(chunks_.begin(), end);  // within what was reserved
    chunks_.erase(chunks_.begin(), end);
    for (const Chunk& chunk : chunks_) note(chunk);
  }
  ++call_;
  for (const Chunk& chunk : taken_) awaited_since_[chunk.slot] = call_;
  awaited_ = taken_.size();
  return taken_;
}

}  // namespace halotap::pipeline
