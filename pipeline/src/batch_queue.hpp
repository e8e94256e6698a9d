// Which chunks go into the engine's next call, and when.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "call_times.hpp"
#include "halotap/kernels/annotations.hpp"
#include "halotap/pipeline/clock.hpp"

namespace halotap::pipeline {

// The chunks that are ready, at most one a stream. With n of them ready, the earliest deadline D among them, and
// T(n) = CallTimes::estimate(n):
//
//     when        as soon as every stream of the last call is ready again, was skipped or is closed; at
//                 D - T(n) - margin at the latest, and when one of them has waited for long enough
//     which       all n, if now + T(n) <= D;
//                 else the k earliest by deadline, of equal ones those that have waited longest, k the largest with
//                 now + T(k) <= D; and where a chunk without a deadline (the end of time) would be left behind that
//                 has waited for long enough, it has the place of the latest of these deadlines (the only one's if
//                 that can wait for another such call)
//                 else all n: the earliest cannot be saved, and the largest call clears a backlog soonest
//
// where with a longest call n is at most the largest m with T(m) <= that, if there is one, and again the earliest by
// deadline are taken.
//
// The margin is the least that was asked for and how late the worker was for such calls, a figure as those of
// CallTimes. It lies between when and which, so that who comes to a call a little late does not have to cut it.
//
// A stream is thus waited for until a call goes without it, and again once it takes part in one: one that stops costs
// the others one wait, to the edge of a deadline and not over it. Nothing here reads a clock. Of one thread. [worker]
class BatchQueue {
 public:
  struct Chunk {
    Instant deadline;     // not before the clock's zero
    Instant waits_until;  // for others to join it
    std::uint32_t slot;
  };

  struct Rule {
    std::chrono::nanoseconds least_margin{0};
    std::chrono::nanoseconds max_call{0};  // 0: as long as they are
  };

  // Room for `slots` chunks. [control]
  BatchQueue(std::size_t slots, const Rule& rule);

  // A stream whose slot has no chunk here is ready.
  void add(Chunk chunk) noexcept HALOTAP_NONBLOCKING;
  // A stream that may be waited for has none this time, or never again.
  void pass(std::uint32_t slot) noexcept HALOTAP_NONBLOCKING;

  std::size_t size() const noexcept HALOTAP_NONBLOCKING { return chunks_.size(); }
  // Nobody is waited for.
  bool all_ready() const noexcept HALOTAP_NONBLOCKING { return awaited_ == 0; }

  // When the next call is to begin: `now` or earlier: at once. The end of time while nothing is ready.
  Instant due(Instant now) const noexcept HALOTAP_NONBLOCKING;
  // Takes the chunks of a call that begins now; valid until the next take. Not empty unless nothing is ready. Their
  // streams are those waited for from now on.
  const std::vector<Chunk>& take(Instant now) noexcept HALOTAP_NONBLOCKING;
  // How much later than due a call begins whose time had come before all were ready.
  void late(std::chrono::nanoseconds by) noexcept HALOTAP_NONBLOCKING {
    follow(lateness_, std::max(by, std::chrono::nanoseconds{0}));
  }
  // How long the call with so many streams took.
  void record(std::size_t streams, std::chrono::nanoseconds time) noexcept HALOTAP_NONBLOCKING {
    times_.record(streams, time);
  }

 private:
  void note(const Chunk& chunk) noexcept;
  void admit_longest_waiting(std::size_t count, Instant now) noexcept;
  // How many a call that begins now takes.
  std::size_t count_at(Instant now) const noexcept;

  const Rule rule_;
  std::chrono::nanoseconds lateness_{0};
  CallTimes times_;
  std::vector<Chunk> chunks_;  // ready, in no order; both reserved for all slots
  std::vector<Chunk> taken_;
  Instant earliest_deadline_ = Instant::max();  // among chunks_, as is the next
  Instant earliest_wait_ = Instant::max();
  // The number of the last call; by slot, that of the call since which nothing was heard of its stream.
  std::uint64_t call_ = 1;
  std::vector<std::uint64_t> awaited_since_;
  std::size_t awaited_ = 0;  // streams of the last call that nothing was heard of
};

}  // namespace halotap::pipeline
