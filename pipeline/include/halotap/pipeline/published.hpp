// A small record of counters that one thread writes and any thread reads whole.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "halotap/kernels/annotations.hpp"

namespace halotap::pipeline {

// A sequence lock: `store` is wait-free, `load` retries while a store is under way. `Record` is plain 64-bit counters.
template <typename Record>
class Published {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) % sizeof(std::uint64_t) == 0);
  using Words = std::array<std::uint64_t, sizeof(Record) / sizeof(std::uint64_t)>;

 public:
  // Of one thread alone, be it the producer, the worker or the consumer. [producer] [worker] [consumer]
  void store(const Record& record) noexcept HALOTAP_NONBLOCKING {
    const auto words = std::bit_cast<Words>(record);
    // relaxed: this thread alone writes it. The words' release stores keep it in front of them for load's last read.
    const std::uint64_t sequence = sequence_.load(std::memory_order_relaxed);
    sequence_.store(sequence + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < words.size(); ++i) {
      words_[i].store(words[i], std::memory_order_release);  // pairs with load's acquire reads of the words
    }
    sequence_.store(sequence + 2, std::memory_order_release);  // pairs with load's first read
  }

  // [any thread]
  Record load() const noexcept {
    Words words{};
    std::uint64_t before = 0;
    do {
      before = sequence_.load(std::memory_order_acquire);  // pairs with store's last write: the words behind it are new
      for (std::size_t i = 0; i < words.size(); ++i) {
        // acquire, with store's release: seeing a word of a later store means seeing its odd sequence below
        words[i] = words_[i].load(std::memory_order_acquire);
      }
    } while (before % 2 != 0 || sequence_.load(std::memory_order_relaxed) != before);
    return std::bit_cast<Record>(words);
  }

 private:
  std::atomic<std::uint64_t> sequence_{0};
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<Words>> words_{};
};

}  // namespace halotap::pipeline
