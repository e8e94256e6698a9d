#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "halotap/pipeline/async_engine.hpp"
#include "pipeline/allocation_counter.hpp"
#include "pipeline/backends.hpp"
#include "pipeline/lock_counter.hpp"
#include "pipeline/test_model.hpp"
#include "wound_clock.hpp"

namespace halotap::pipeline {
namespace {

using test::allocator_calls;

// Both sides and the worker on this thread, so that its counters see all three: open, every kind of entry, refusals, a
// full stream, waiting, close and the next tenant.
void expect_no_allocation_or_lock_of_an_async_engine(Backend backend, std::uint64_t seed) {
  test::Random random(seed);
  const Model model = test::draw_model(random);
  const test::WoundClock clock(std::chrono::microseconds(1));
  AsyncEngine engine(
      model,
      {.engine = {.backend = backend, .max_streams = 3, .max_chunk_frames = 20}, .own_thread = false, .clock = &clock});
  const std::int64_t in = model.stack->in_channels();
  const std::vector<float> input = test::draw_signal(random, in * 20);

  const std::uint64_t allocations = allocator_calls();
  const std::uint64_t locks = test::lock_calls();
  std::uint64_t answers = 0;
  std::uint64_t refusals = 0;
  const auto note = [&](Status status) { refusals += status != Status::kOk; };
  for (int tenant = 0; tenant < 5; ++tenant) {
    StreamId streams[3];
    for (StreamId& stream : streams) note(engine.open(stream));
    StreamId fourth;
    note(engine.open(fourth));
    for (int round = 0; round < 8; ++round) {
      for (const StreamId& stream : streams) {
        FrameView view;
        note(engine.begin_chunk(stream, round + 1, view));
        note(engine.submit(stream, clock.now() + std::chrono::microseconds(100)));
        note(engine.submit(stream, kernels::planar<const float>(input.data(), in, 20), clock.now()));
        note(engine.skip(stream));
        note(round == 2 ? engine.reset(stream, {FillKind::kFrame, input.data()}) : Status::kOk);
        note(round == 4 ? engine.flush(stream) : Status::kOk);
        note(round == 7 ? engine.close(stream) : Status::kOk);
      }
      AsyncResult result;
      for (int i = 0; i < 6; ++i) {
        static_cast<void>(engine.step());
        for (const StreamId& stream : streams) {
          answers += engine.try_collect(stream, clock.now() + std::chrono::milliseconds(1), result) == Status::kOk;
        }
      }
    }
    AsyncResult result;
    for (const StreamId& stream : streams) {
      note(engine.close(stream));
      for (int i = 0; i < 3; ++i) {
        static_cast<void>(engine.step());
        answers += engine.try_collect(stream, {}, result) == Status::kOk;
      }
    }
  }
  const AsyncCounters counters = engine.counters();
  engine.stop();
  EXPECT_EQ(allocator_calls() - allocations, 0u) << to_string(backend) << ", seed " << seed;
  if (backend == Backend::kCpu) {  // a card's driver has locks of its own
    EXPECT_EQ(test::lock_calls() - locks, 0u) << "seed " << seed;
  }
  EXPECT_EQ(answers, counters.entries_out);
  EXPECT_GT(refusals, 0u);
  EXPECT_GT(counters.chunks, 100u);
}

TEST(AsyncEngine, NeitherAllocatesNorLocksOnceMade) {
  if (test::backends().empty()) GTEST_SKIP() << "no backend on this machine";
  for (const Backend backend : test::backends()) {
    for (std::uint64_t seed = 0; seed < 5; ++seed) expect_no_allocation_or_lock_of_an_async_engine(backend, seed);
  }
}

}  // namespace
}  // namespace halotap::pipeline
