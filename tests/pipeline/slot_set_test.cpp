#include "slot_set.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
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

// Every thread waits until its addition was taken before it makes the next: one that is lost is never made good by
// another of the same thread.
TEST(SlotSet, LosesNothingBetweenManyThreadsAndOne) {
  constexpr std::uint32_t kThreads = 3;
  constexpr std::uint64_t kRounds = 300;
  SlotSet set(64 * kThreads);  // a word each, and one summary
  std::atomic<std::uint64_t> taken[kThreads] = {};
  std::uint64_t written[kThreads] = {};  // before add, read when taken
  std::atomic<std::uint32_t> running{kThreads};
  std::atomic<bool> gives_up{false};
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        written[thread] = round;
        set.add(thread * 64 + static_cast<std::uint32_t>(round % 64));
        while (taken[thread].load(std::memory_order_acquire) != round && !gives_up) std::this_thread::yield();
      }
      running.fetch_sub(1);
    });
  }
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (running > 0 && !gives_up) {
    set.take_all([&](std::uint32_t slot) {
      taken[slot / 64].store(written[slot / 64], std::memory_order_release);  // pairs with the thread's look
    });
    gives_up = std::chrono::steady_clock::now() > limit;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(gives_up) << "an addition was lost";
}

}  // namespace
}  // namespace halotap::pipeline
