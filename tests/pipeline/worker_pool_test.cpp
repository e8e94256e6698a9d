#include "worker_pool.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "halotap/pipeline/engine.hpp"
#include "pipeline/test_model.hpp"

namespace halotap::pipeline {
namespace {

struct Tally {
  std::vector<std::atomic<int>> times;    // by item
  std::vector<std::atomic<bool>> in_use;  // by worker
  std::atomic<int> shared_numbers{0};     // two items at once on one worker's number

  Tally(std::size_t items, std::size_t workers) : times(items), in_use(workers) {}

  static void count(void* self, std::size_t item, std::int64_t worker) noexcept {
    Tally& tally = *static_cast<Tally*>(self);
    auto& mine = tally.in_use[static_cast<std::size_t>(worker)];
    if (mine.exchange(true)) ++tally.shared_numbers;
    ++tally.times[item];
    mine = false;
  }
};

TEST(WorkerPool, RunsEveryItemOfEveryCallOnce) {
  constexpr std::size_t kItems = 37;
  WorkerPool pool(3, {});
  Tally tally(kItems, 4);
  std::vector<int> expected(kItems);
  test::Random random(1);
  for (int call = 0; call < 3000; ++call) {
    const auto items = static_cast<std::size_t>(test::draw(random, 0, kItems));
    pool.run(items, &Tally::count, &tally);
    for (std::size_t i = 0; i < items; ++i) ++expected[i];
    for (std::size_t i = 0; i < kItems; ++i) ASSERT_EQ(tally.times[i], expected[i]) << "call " << call;
  }
  EXPECT_EQ(tally.shared_numbers, 0);
}

TEST(WorkerPool, WakesThreadsThatHaveGoneToSleep) {
  WorkerPool pool(2, {});
  Tally tally(5, 3);
  for (int call = 1; call <= 5; ++call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.run(5, &Tally::count, &tally);
    for (const auto& times : tally.times) ASSERT_EQ(times, call);
  }
}

TEST(WorkerPool, StartsAndEndsWithoutEverBeingUsed) {
  for (int i = 0; i < 50; ++i) WorkerPool pool(4, {});
}

TEST(WorkerPool, PutsItsThreadsOnTheProcessorsItIsGiven) {
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &allowed)) ++cpu;
  WorkerPool pool(1, {cpu});
  std::atomic<int> ran_on{-1};
  // The caller takes items too: repeated until the thread has had one, however long it waits for its processor.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (ran_on < 0 && std::chrono::steady_clock::now() < limit) {
    pool.run(
        64,
        [](void* context, std::size_t, std::int64_t worker) noexcept {
          if (worker == 1) static_cast<std::atomic<int>*>(context)->store(sched_getcpu());
        },
        &ran_on);
  }
  EXPECT_EQ(ran_on, cpu);
  EXPECT_THROW(WorkerPool(1, {-1}), ConfigError);
  EXPECT_THROW(WorkerPool(2, {cpu, 100000}), ConfigError);
}

TEST(Engine, GivesTheSameBitsWithAnyNumberOfWorkerThreads) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    test::Random random(seed);
    const Model model = test::draw_model(random);
    constexpr std::int64_t kStreams = 9;
    const std::int64_t in = model.stack->in_channels();
    const std::int64_t out = model.stack->out_channels();
    const std::vector<float> input = test::draw_signal(random, kStreams * 40 * in);
    std::vector<float> expected;
    for (const std::int64_t threads : {0, 1, 2, 5}) {
      Engine engine;
      engine.prepare(model, {.max_streams = kStreams, .max_chunk_frames = 8, .worker_threads = threads});
      std::vector<StreamChunk> chunks(kStreams);
      for (StreamChunk& chunk : chunks) ASSERT_EQ(engine.open(chunk.stream), Status::kOk);
      ASSERT_EQ(engine.reset(chunks[3].stream, {FillKind::kHoldFirst, nullptr}), Status::kOk);
      std::vector<float> output;
      std::vector<float> piece(static_cast<std::size_t>(kStreams * 8 * out));
      for (std::int64_t t = 0; t < 40; t += 8) {
        for (std::int64_t s = 0; s < kStreams; ++s) {
          StreamChunk& chunk = chunks[static_cast<std::size_t>(s)];
          chunk.input = kernels::interleaved(input.data() + (s * 40 + t) * in, in, std::int64_t{8});
          chunk.output = kernels::interleaved(piece.data() + s * 8 * out, out, std::int64_t{8});
        }
        ASSERT_EQ(engine.process(chunks), Status::kOk);
        for (std::int64_t s = 0; s < kStreams; ++s) {
          const float* first = piece.data() + s * 8 * out;
          output.insert(output.end(), first, first + chunks[static_cast<std::size_t>(s)].frames_emitted * out);
        }
      }
      if (threads == 0) expected = output;
      ASSERT_EQ(output.size(), expected.size());
      ASSERT_EQ(std::memcmp(output.data(), expected.data(), output.size() * sizeof(float)), 0)
          << "seed " << seed << ", " << threads << " threads";
    }
  }
}

TEST(Engine, WakesItsWorkersInsideProcess) {
  const Model model = test::lookahead_model(1);
  Engine engine;
  engine.prepare(model, {.max_streams = 4, .max_chunk_frames = 8, .worker_threads = 2});
  const std::vector<float> input(3 * 8, 0.5f);
  std::vector<float> output(4 * 2 * 8);
  std::vector<StreamChunk> chunks(4);
  for (std::size_t s = 0; s < chunks.size(); ++s) {
    ASSERT_EQ(engine.open(chunks[s].stream), Status::kOk);
    chunks[s].input = kernels::planar(input.data(), 3, std::int64_t{8});
    chunks[s].output = kernels::planar(output.data() + s * 16, 2, std::int64_t{8});
  }
  for (int call = 0; call < 3; ++call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they sleep by now
    ASSERT_EQ(engine.process(chunks), Status::kOk);
  }
}

TEST(Engine, RefusesWorkersThatItCannotHave) {
  Engine engine;
  const Model model = test::lookahead_model(1);
  EXPECT_THROW(engine.prepare(model, {.worker_threads = -1}), ConfigError);
  EXPECT_THROW(engine.prepare(model, {.worker_threads = 257}), ConfigError);
  EXPECT_THROW(engine.prepare(model, {.worker_threads = 2, .worker_cpus = {0}}), ConfigError);
}

}  // namespace
}  // namespace halotap::pipeline
