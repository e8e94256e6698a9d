#include "batch_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace halotap::pipeline {
namespace {

using std::chrono::nanoseconds;

Instant at(std::int64_t nanosecond) { return Instant(nanoseconds(1'000'000 + nanosecond)); }

struct BatchQueueTest : testing::Test {
  void add(std::int64_t deadline, std::uint32_t slot, std::int64_t waits_until = 100'000) {
    queue.add({at(deadline), at(waits_until), slot});
  }

  // The slots of the call that begins now, in order.
  std::vector<std::uint32_t> take(std::int64_t now) {
    std::vector<std::uint32_t> slots;
    for (const BatchQueue::Chunk& chunk : queue.take(at(now))) slots.push_back(chunk.slot);
    std::sort(slots.begin(), slots.end());
    return slots;
  }

  // A call with these streams; they are waited for from then on.
  void call_with(const std::vector<std::uint32_t>& slots) {
    for (const std::uint32_t slot : slots) add(1'000'000, slot);
    ASSERT_EQ(take(0), slots);
  }

  BatchQueue queue{100, {nanoseconds(10), nanoseconds(0)}};
};

using Slots = std::vector<std::uint32_t>;

TEST_F(BatchQueueTest, BeginsNothingWhileNothingIsReady) {
  EXPECT_EQ(queue.due(at(0)), Instant::max());
  EXPECT_TRUE(take(0).empty());
  call_with({1, 2});
  EXPECT_EQ(queue.due(at(0)), Instant::max());
}

TEST_F(BatchQueueTest, WaitsForNobodyWhoWasInNoCall) {
  add(500, 7);
  EXPECT_EQ(queue.due(at(0)), at(0));
}

TEST_F(BatchQueueTest, BeginsAsSoonAsAllStreamsOfTheLastCallAreReady) {
  call_with({1, 2, 3});
  add(500, 1);
  add(500, 3);
  EXPECT_GT(queue.due(at(0)), at(0));
  add(500, 9);
  EXPECT_GT(queue.due(at(0)), at(0)) << "a new one is not who was waited for";
  add(500, 2);
  EXPECT_EQ(queue.due(at(0)), at(0));
  EXPECT_EQ(take(0), (Slots{1, 2, 3, 9}));
}

TEST_F(BatchQueueTest, WaitsForNoStreamThatPassedOrClosed) {
  call_with({1, 2, 3});
  add(500, 1);
  queue.pass(2);
  queue.pass(2);
  EXPECT_GT(queue.due(at(0)), at(0));
  queue.pass(50);  // was not waited for
  EXPECT_GT(queue.due(at(0)), at(0));
  queue.pass(3);
  EXPECT_EQ(queue.due(at(0)), at(0));
}

TEST_F(BatchQueueTest, BeginsAtTheLatestWhenTheEarliestDeadlineLeavesTheTimeOfTheCallAndTheMargin) {
  queue.record(1, nanoseconds(100));
  queue.record(2, nanoseconds(150));
  call_with({1, 2, 3});
  add(500, 1);
  EXPECT_EQ(queue.due(at(0)), at(500 - 100 - 10));
  add(700, 2);
  EXPECT_EQ(queue.due(at(0)), at(500 - 150 - 10)) << "of two streams";
  EXPECT_EQ(take(340), (Slots{1, 2}));
}

TEST_F(BatchQueueTest, CutsNothingWhereACallBeginsWithinItsMargin) {
  queue.record(2, nanoseconds(150));
  call_with({1, 2, 3});
  add(500, 1);
  add(600, 2);
  ASSERT_EQ(queue.due(at(0)), at(340));
  EXPECT_EQ(take(350), (Slots{1, 2}));
}

TEST_F(BatchQueueTest, BeginsEarlierWhereItsWorkerIsLate) {
  call_with({1, 2});
  add(500, 1);
  ASSERT_EQ(queue.due(at(0)), at(490));
  queue.late(nanoseconds(64));
  EXPECT_EQ(queue.due(at(0)), at(490 - 64));
  queue.late(nanoseconds(-1'000));
  EXPECT_EQ(queue.due(at(0)), at(490 - 63));
  EXPECT_EQ(take(490), (Slots{1}));
}

TEST_F(BatchQueueTest, BeginsWhenOneHasWaitedLongEnough) {
  call_with({1, 2, 3});
  add(5'000, 1, 700);
  add(6'000, 2, 800);
  EXPECT_EQ(queue.due(at(0)), at(700));
  EXPECT_EQ(take(700), (Slots{1, 2}));
  queue.add({Instant::max(), at(900), 4});
  EXPECT_EQ(queue.due(at(700)), at(900)) << "without any deadline";
}

TEST_F(BatchQueueTest, WaitsOnceForAStreamThatStops) {
  call_with({1, 2});
  add(500, 1);
  EXPECT_EQ(queue.due(at(0)), at(490));
  EXPECT_EQ(take(490), (Slots{1}));
  add(900, 1);
  EXPECT_EQ(queue.due(at(600)), at(600));
  EXPECT_EQ(take(600), (Slots{1}));
  add(1500, 2);
  EXPECT_EQ(queue.due(at(1000)), at(1490)) << "back again, it waits for the other";
}

TEST_F(BatchQueueTest, LeavesTheLaterDeadlinesBehindWhereAllTogetherWouldMissTheEarliest) {
  queue.record(2, nanoseconds(100));
  queue.record(3, nanoseconds(300));
  queue.record(4, nanoseconds(400));
  for (const auto& [deadline, slot] : {std::pair{300, 1u}, {200, 2u}, {900, 3u}, {250, 4u}}) {
    add(deadline, slot);
  }
  EXPECT_EQ(take(0), (Slots{2, 4})) << "200 ns are left: enough for two";
  EXPECT_EQ(queue.size(), 2u);
  queue.pass(2);
  queue.pass(4);
  EXPECT_EQ(queue.due(at(100)), at(100));
  EXPECT_EQ(take(100), (Slots{1, 3}));
  EXPECT_EQ(queue.size(), 0u);
}

TEST_F(BatchQueueTest, TakesTheMostWithinATimeThatJustIsEnough) {
  queue.record(1, nanoseconds(50));
  queue.record(3, nanoseconds(200));
  for (std::uint32_t slot = 1; slot <= 3; ++slot) add(200, slot);
  EXPECT_EQ(take(0).size(), 3u);
  for (std::uint32_t slot = 1; slot <= 3; ++slot) add(199, slot);
  EXPECT_EQ(take(0).size(), 2u);
}

TEST_F(BatchQueueTest, TakesAllWhenTheEarliestCannotBeSaved) {
  queue.record(1, nanoseconds(100));
  queue.record(3, nanoseconds(300));
  for (const auto& [deadline, slot] : {std::pair{50, 1u}, {200, 2u}, {2000, 3u}}) add(deadline, slot);
  EXPECT_EQ(take(0), (Slots{1, 2, 3}));
}

TEST_F(BatchQueueTest, MakesNoCallLongerThanItMayBeAndTakesTheEarliestDeadlines) {
  BatchQueue bounded{100, {nanoseconds(10), nanoseconds(250)}};
  for (std::size_t n = 1; n <= 4; ++n) bounded.record(n, nanoseconds(100 * static_cast<std::int64_t>(n)));
  for (std::uint32_t slot = 0; slot < 4; ++slot) bounded.add({at(9'000 - slot), at(100'000), slot});
  EXPECT_EQ(bounded.take(at(0)).size(), 2u) << "200 ns; of three 300";
  EXPECT_EQ(bounded.size(), 2u);
  Slots left;
  for (const BatchQueue::Chunk& chunk : bounded.take(at(8'990))) left.push_back(chunk.slot);
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (Slots{0, 1})) << "late, and still no more than may be";
}

TEST_F(BatchQueueTest, LeavesNobodyBehindForEverWhereDeadlinesAreEqual) {
  BatchQueue bounded{100, {nanoseconds(10), nanoseconds(250)}};
  for (std::size_t n = 1; n <= 5; ++n) bounded.record(n, nanoseconds(100 * static_cast<std::int64_t>(n)));
  std::vector<int> calls(5);
  for (std::uint32_t slot = 0; slot < 5; ++slot) bounded.add({Instant::max(), at(1'000), slot});
  for (std::int64_t round = 1; round <= 100; ++round) {
    const std::vector<BatchQueue::Chunk> taken = bounded.take(at(round));
    ASSERT_EQ(taken.size(), 2u);
    for (const BatchQueue::Chunk& chunk : taken) {
      ++calls[chunk.slot];
      bounded.add({Instant::max(), at(1'000 + round), chunk.slot});
    }
  }
  EXPECT_GE(*std::min_element(calls.begin(), calls.end()), 30) << "of 40 if they were alike";
}

// Calls of two, and always two with a deadline.
TEST_F(BatchQueueTest, TakesAChunkWithoutADeadlineOnceItHasWaitedForLongEnough) {
  BatchQueue bounded{100, {nanoseconds(10), nanoseconds(250)}};
  for (std::size_t n = 1; n <= 5; ++n) bounded.record(n, nanoseconds(100 * static_cast<std::int64_t>(n)));
  bounded.add({Instant::max(), at(1'000), 3});
  bounded.add({Instant::max(), at(900), 4});
  for (std::uint32_t slot = 1; slot <= 2; ++slot) bounded.add({at(5'000 + slot), at(100), slot});
  const auto take_at = [&](std::int64_t now) {
    Slots slots;
    for (const BatchQueue::Chunk& chunk : std::vector(bounded.take(at(now)))) {
      slots.push_back(chunk.slot);
      if (chunk.slot <= 2) bounded.add({at(5'000 + now + chunk.slot), at(now + 100), chunk.slot});
    }
    std::sort(slots.begin(), slots.end());
    return slots;
  };
  EXPECT_EQ(take_at(899), (Slots{1, 2}));
  EXPECT_EQ(take_at(900), (Slots{1, 4})) << "the later of the two deadlines waits";
  EXPECT_EQ(take_at(999), (Slots{1, 2}));
  EXPECT_EQ(take_at(1'000), (Slots{1, 3}));
}

TEST_F(BatchQueueTest, LeavesACallOfOneToADeadlineThatCannotWaitForAnother) {
  queue.record(1, nanoseconds(100));
  queue.record(2, nanoseconds(500));
  add(199, 1);
  queue.add({Instant::max(), at(0), 2});
  EXPECT_EQ(take(0), (Slots{1}));
  add(200, 1);
  EXPECT_EQ(take(0), (Slots{2}));
  EXPECT_EQ(take(100), (Slots{1}));
}

TEST_F(BatchQueueTest, GivesACallOfOneToAChunkWithoutADeadlineWhereTheOtherHasLostIts) {
  BatchQueue bounded{100, {nanoseconds(10), nanoseconds(150)}};
  bounded.record(1, nanoseconds(100));
  bounded.record(2, nanoseconds(200));
  bounded.add({at(50), at(100'000), 1});
  bounded.add({Instant::max(), at(0), 2});
  const auto first = bounded.take(at(0));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].slot, 2u);
}

TEST_F(BatchQueueTest, GoesBackToLargeCallsAfterOneThatWasHeldUp) {
  queue.record(1, nanoseconds(100));
  queue.record(4, nanoseconds(200));
  queue.record(4, nanoseconds(50'000));
  int cut = 0;
  for (std::int64_t round = 0; round < 1'000; ++round) {
    for (std::uint32_t slot = 0; slot < 4; ++slot) add(1'000'000 * round + 1'000, slot);
    for (bool first = true; queue.size() > 0; first = false) {
      const std::size_t streams = queue.take(at(1'000'000 * round)).size();
      queue.record(streams, nanoseconds(streams == 1 ? 100 : 200));
      if (first && streams < 4) cut = static_cast<int>(round);
    }
  }
  EXPECT_GT(cut, 0) << "it was not trusted at once";
  EXPECT_LT(cut, 500) << "nor doubted for good";
}

TEST_F(BatchQueueTest, IgnoresALongestCallThatNoCallKeeps) {
  BatchQueue bounded{100, {nanoseconds(10), nanoseconds(50)}};
  bounded.record(1, nanoseconds(100));
  for (std::uint32_t slot = 0; slot < 4; ++slot) bounded.add({at(9'000), at(100'000), slot});
  EXPECT_EQ(bounded.take(at(0)).size(), 4u);
}

TEST_F(BatchQueueTest, KeepsTheEarliestDeadlineOfThoseLeftBehind) {
  queue.record(1, nanoseconds(100));
  queue.record(2, nanoseconds(1'000));
  call_with({5});
  add(300, 1);
  add(5'000, 2);
  EXPECT_EQ(take(0), (Slots{1}));
  EXPECT_EQ(queue.due(at(0)), at(5'000 - 100 - 10)) << "the stream of the last call is waited for";
}

}  // namespace
}  // namespace halotap::pipeline
