#include "slot_set.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace halotap::pipeline {
namespace {

std::vector<std::uint32_t> members(SlotSet& set) {
  std::vector<std::uint32_t> found;
  set.take_all([&](std::uint32_t slot) { found.push_back(slot); });
  return found;
}

TEST(SlotSet, GivesEveryMemberOnceAndInOrder) {
  SlotSet set(std::size_t{1} << 20);
  for (const std::uint32_t slot : {70u, 3u, 1'048'575u, 4'096u, 3u, 0u, 63u, 64u}) set.add(slot);
  EXPECT_EQ(members(set), (std::vector<std::uint32_t>{0, 3, 63, 64, 70, 4'096, 1'048'575}));
  EXPECT_TRUE(members(set).empty());
}

TEST(SlotSet, TakesWhatIsAddedWhileItIsTakenNowOrNextTime) {
  SlotSet set(100);
  set.add(5);
  std::vector<std::uint32_t> found;
  const auto take = [&](std::uint32_t slot) {
    found.push_back(slot);
    if (slot == 5) set.add(5);
    if (slot == 5 && found.size() < 3) set.add(90);
  };
  set.take_all(take);
  set.take_all(take);
  EXPECT_GE(std::count(found.begin(), found.end(), 90u), 1);
  EXPECT_EQ(std::count(found.begin(), found.end(), 5u), 2);
}

TEST(SlotSet, LosesNothingBetweenManyThreadsAndOne) {
  constexpr std::uint32_t kThreads = 3;
  constexpr std::uint32_t kSlots = 130;  // three words, shared by all threads
  constexpr std::uint64_t kRounds = 20'000;
  SlotSet set(kSlots);
  // A slot's number of additions, by its thread, and how many of them the taker has seen.
  std::vector<std::atomic<std::uint64_t>> added(kSlots);
  std::vector<std::uint64_t> seen(kSlots);
  std::vector<std::thread> threads;
  std::atomic<std::uint32_t> running{kThreads};
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        const auto slot = static_cast<std::uint32_t>((round * 7 + thread) % (kSlots / kThreads) * kThreads + thread);
        added[slot].fetch_add(1, std::memory_order_relaxed);  // published by add
        set.add(slot);
      }
      running.fetch_sub(1, std::memory_order_release);
    });
  }
  const auto take = [&](std::uint32_t slot) { seen[slot] = added[slot].load(std::memory_order_relaxed); };
  while (running.load(std::memory_order_acquire) > 0) set.take_all(take);
  for (std::thread& thread : threads) thread.join();
  set.take_all(take);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) EXPECT_EQ(seen[slot], added[slot].load()) << slot;
}

}  // namespace
}  // namespace halotap::pipeline
