// A set of slots that many threads add to and one takes from.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "halotap/kernels/annotations.hpp"

namespace halotap::pipeline {

// A bit a slot and, above, a bit for every 64 of these, so that looking for members among 2^20 slots reads 2 KB when
// there are none. Adding is wait-free: one locked instruction, a second for the first of 64. Fixed size.
class SlotSet {
 public:
  // [control]
  explicit SlotSet(std::size_t slots) : words_((slots + 63) / 64), summary_((words_.size() + 63) / 64) {}

  // What the thread did before, whoever takes the slot sees. [any thread]
  void add(std::uint32_t slot) noexcept HALOTAP_NONBLOCKING {
    const std::uint32_t word = slot / 64;
    const std::uint64_t bit = std::uint64_t{1} << (word % 64);
    // seq_cst, with take_all's exchanges: if the summary still shows the bit here, that exchange of it is yet to come,
    // and the one of the word after it.
    words_[word].fetch_or(std::uint64_t{1} << (slot % 64), std::memory_order_seq_cst);
    std::atomic<std::uint64_t>& summary = summary_[word / 64];
    if ((summary.load(std::memory_order_seq_cst) & bit) == 0) summary.fetch_or(bit, std::memory_order_seq_cst);
  }

  // Calls take(slot) for every member, in order, and leaves none. By one thread at a time. [worker]
  template <typename Take>
  void take_all(const Take& take) noexcept {
    for (std::size_t s = 0; s < summary_.size(); ++s) {
      if (summary_[s].load(std::memory_order_relaxed) == 0) continue;  // an addition unseen now is seen next time
      std::uint64_t words = summary_[s].exchange(0, std::memory_order_seq_cst);
      for (; words != 0; words &= words - 1) {
        const std::size_t word = s * 64 + static_cast<std::size_t>(std::countr_zero(words));
        std::uint64_t slots = words_[word].exchange(0, std::memory_order_seq_cst);
        for (; slots != 0; slots &= slots - 1) {
          take(static_cast<std::uint32_t>(word * 64 + static_cast<std::size_t>(std::countr_zero(slots))));
        }
      }
    }
  }

 private:
  std::vector<std::atomic<std::uint64_t>> words_;
  std::vector<std::atomic<std::uint64_t>> summary_;
};

}  // namespace halotap::pipeline
