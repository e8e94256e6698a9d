#include "batch_queue.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace halotap::pipeline {
namespace {

using std::chrono::nanoseconds;

Instant at(std::int64_t nanosecond) { return Instant(nanoseconds(1'000'000 + nanosecond)); }

struct BatchQueueTest : testing::Test {
  // The slots of the call that begins now, in order.
  std::vector<std::uint32_t> take(std::int64_t now) {
    std::vector<std::uint32_t> slots;
    for (const BatchQueue::Chunk& chunk : queue.take(at(now))) slots.push_back(chunk.slot);
    std::sort(slots.begin(), slots.end());
    return slots;
  }

  // A call with these streams; they are waited for from then on.
  void call_with(const std::vector<std::uint32_t>& slots) {
    for (const std::uint32_t slot : slots) queue.add({at(1'000'000), slot});
    ASSERT_EQ(take(0), slots);
  }

  BatchQueue queue{100, nanoseconds(10)};
};

using Slots = std::vector<std::uint32_t>;

TEST_F(BatchQueueTest, BeginsNothingWhileNothingIsReady) {
  EXPECT_EQ(queue.due(at(0)), Instant::max());
  EXPECT_TRUE(take(0).empty());
  call_with({1, 2});
  EXPECT_EQ(queue.due(at(0)), Instant::max());
}

TEST_F(BatchQueueTest, WaitsForNobodyWhoWasInNoCall) {
  queue.add({at(500), 7});
  EXPECT_EQ(queue.due(at(0)), at(0));
}

TEST_F(BatchQueueTest, BeginsAsSoonAsAllStreamsOfTheLastCallAreReady) {
  call_with({1, 2, 3});
  queue.add({at(500), 1});
  queue.add({at(500), 3});
  EXPECT_GT(queue.due(at(0)), at(0));
  queue.add({at(500), 9});
  EXPECT_GT(queue.due(at(0)), at(0)) << "a new one is not who was waited for";
  queue.add({at(500), 2});
  EXPECT_EQ(queue.due(at(0)), at(0));
  EXPECT_EQ(take(0), (Slots{1, 2, 3, 9}));
}

TEST_F(BatchQueueTest, WaitsForNoStreamThatPassedOrClosed) {
  call_with({1, 2, 3});
  queue.add({at(500), 1});
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
  queue.add({at(500), 1});
  EXPECT_EQ(queue.due(at(0)), at(500 - 100 - 10));
  queue.add({at(700), 2});
  EXPECT_EQ(queue.due(at(0)), at(500 - 150 - 10)) << "of two streams";
  EXPECT_EQ(take(340), (Slots{1, 2}));
}

TEST_F(BatchQueueTest, WaitsOnceForAStreamThatStops) {
  call_with({1, 2});
  queue.add({at(500), 1});
  EXPECT_EQ(queue.due(at(0)), at(490));
  EXPECT_EQ(take(490), (Slots{1}));
  queue.add({at(900), 1});
  EXPECT_EQ(queue.due(at(600)), at(600));
  EXPECT_EQ(take(600), (Slots{1}));
  queue.add({at(1500), 2});
  EXPECT_EQ(queue.due(at(1000)), at(1490)) << "back again, it waits for the other";
}

TEST_F(BatchQueueTest, LeavesTheLaterDeadlinesBehindWhereAllTogetherWouldMissTheEarliest) {
  queue.record(2, nanoseconds(100));
  queue.record(3, nanoseconds(300));
  queue.record(4, nanoseconds(400));
  for (const auto& [deadline, slot] : {std::pair{300, 1u}, {200, 2u}, {900, 3u}, {250, 4u}}) {
    queue.add({at(deadline), slot});
  }
  EXPECT_EQ(take(0), (Slots{2, 4})) << "190 ns are left: enough for two";
  EXPECT_EQ(queue.size(), 2u);
  queue.pass(2);
  queue.pass(4);
  EXPECT_EQ(queue.due(at(100)), at(100));
  EXPECT_EQ(take(100), (Slots{1, 3}));
  EXPECT_EQ(queue.size(), 0u);
}

TEST_F(BatchQueueTest, TakesTheMostWithinATimeThatJustIsEnough) {
  queue.record(3, nanoseconds(190));
  for (std::uint32_t slot = 1; slot <= 3; ++slot) queue.add({at(200), slot});
  EXPECT_EQ(take(0).size(), 3u);
  for (std::uint32_t slot = 1; slot <= 3; ++slot) queue.add({at(199), slot});
  EXPECT_LT(take(0).size(), 4u);
}

TEST_F(BatchQueueTest, TakesAllWhenTheEarliestCannotBeSaved) {
  queue.record(1, nanoseconds(100));
  queue.record(3, nanoseconds(300));
  for (const auto& [deadline, slot] : {std::pair{50, 1u}, {200, 2u}, {2000, 3u}}) queue.add({at(deadline), slot});
  EXPECT_EQ(take(0), (Slots{1, 2, 3}));
}

TEST_F(BatchQueueTest, KeepsTheEarliestDeadlineOfThoseLeftBehind) {
  queue.record(1, nanoseconds(100));
  queue.record(2, nanoseconds(1'000));
  call_with({5});
  queue.add({at(300), 1});
  queue.add({at(5'000), 2});
  EXPECT_EQ(take(0), (Slots{1}));
  EXPECT_EQ(queue.due(at(0)), at(5'000 - 100 - 10)) << "the stream of the last call is waited for";
}

}  // namespace
}  // namespace halotap::pipeline
