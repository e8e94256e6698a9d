// When the asynchronous engine calls, with what, and what becomes of everybody when its device fails. The factory of
// CUDA executors is this program's own: what it makes winds the test's clock for as long as a call is to take.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "halotap/pipeline/async_engine.hpp"
#include "pipeline/test_model.hpp"
#include "wound_clock.hpp"

namespace halotap::kernels {
namespace {

// Takes no part in arithmetic: gives every frame back as many times as there are outputs.
class ToldExecutor final : public Executor {
 public:
  explicit ToldExecutor(std::shared_ptr<const Stack> stack) : stack_(std::move(stack)) { calls.reserve(1'000); }

  void reset(std::int64_t /*slot*/, const Fill& /*fill*/) noexcept override {}

  void process(std::span<SlotChunk> chunks, std::int64_t /*worker*/) noexcept override {
    calls.push_back(chunks.size());
    if (during_call) during_call(chunks.size());
    if (fails.load()) return;
    for (SlotChunk& chunk : chunks) {
      chunk.frames_emitted = chunk.input.frames;
      for (std::int64_t o = 0; o < chunk.output.channels; ++o) {
        for (std::int64_t t = 0; t < chunk.input.frames; ++t) chunk.output(o, t) = chunk.input(0, t);
      }
    }
  }

  std::int64_t flush(std::int64_t /*slot*/, FrameView /*output*/) noexcept override { return 0; }
  std::size_t state_bytes() const noexcept override { return 0; }
  std::string description() const override { return "told"; }
  const char* failure() const noexcept override { return fails.load() ? "the test ended it" : nullptr; }

  std::vector<std::size_t> calls;  // entries of each
  std::function<void(std::size_t)> during_call;
  std::atomic<bool> fails{false};

 private:
  std::shared_ptr<const Stack> stack_;
};

ToldExecutor* device = nullptr;  // of the engine made last

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack> stack, const ExecutorSpec& /*spec*/) {
  auto made = std::make_unique<ToldExecutor>(std::move(stack));
  device = made.get();
  return made;
}

}  // namespace halotap::kernels

namespace halotap::pipeline {
namespace {

using kernels::device;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::int64_t kStreams = 8;
constexpr Instant kNow{};

Model one_channel() {
  test::Random random(1);
  kernels::LayerSpec layer;
  layer.name = "mix";
  layer.type = kernels::LayerType::kPointwise;
  layer.in_channels = 1;
  layer.out_channels = 1;
  Model model;
  model.name = "one";
  model.frame_rate_hz = 1000;
  model.stack = std::make_shared<const kernels::Stack>(std::vector{test::draw_layer(random, layer)});
  return model;
}

AsyncSpec told(const Clock* clock) {
  return {.engine = {.backend = Backend::kCuda,
                     .max_streams = kStreams,
                     .max_chunk_frames = 4,
                     .fallback = Fallback::kNone},
          .max_wait = milliseconds(100),
          .margin = microseconds(50),
          .own_thread = clock == nullptr,
          .clock = clock};
}

Status submit(AsyncEngine& engine, StreamId stream, Instant deadline, std::int64_t frames = 1) {
  FrameView view;
  const Status status = engine.begin_chunk(stream, frames, view);
  return status == Status::kOk ? engine.submit(stream, deadline) : status;
}

// Eight streams of an engine that this thread steps; a call takes 100 us and 20 us a stream.
struct AsyncBatching : testing::Test {
  AsyncBatching() {
    for (StreamId& stream : streams) EXPECT_EQ(engine.open(stream), Status::kOk);
    device->calls.clear();  // the engine's warm-up
    device->during_call = [this](std::size_t entries) {
      clock.wind(microseconds(100 + 20 * static_cast<std::int64_t>(entries)));
    };
  }

  Instant in(std::int64_t us) const { return clock.now() + microseconds(us); }
  std::vector<std::size_t>& calls() { return device->calls; }

  // A chunk of each of the first `count` streams, due in so long, and the call with them.
  void all_in_a_call(std::size_t count, std::int64_t us = 100'000) {
    for (std::size_t s = 0; s < count; ++s) ASSERT_EQ(submit(engine, streams[s], in(us)), Status::kOk);
    static_cast<void>(engine.step());
    collect(count);
    calls().clear();
  }

  // Answers of the first `count` streams that are there.
  std::size_t collect(std::size_t count = kStreams) {
    std::size_t found = 0;
    AsyncResult result;
    for (std::size_t s = 0; s < count; ++s) {
      while (engine.try_collect(streams[s], kNow, result) == Status::kOk) ++found;
    }
    return found;
  }

  test::WoundClock clock;
  AsyncEngine engine{one_channel(), told(&clock)};
  StreamId streams[kStreams];
};

using Calls = std::vector<std::size_t>;

TEST_F(AsyncBatching, PutsWhatIsReadyTogetherIntoOneCall) {
  for (const StreamId& stream : streams) ASSERT_EQ(submit(engine, stream, in(10'000)), Status::kOk);
  EXPECT_EQ(engine.step().entries, 8u);
  EXPECT_EQ(calls(), (Calls{8}));
  EXPECT_EQ(collect(), 8u);
}

TEST_F(AsyncBatching, WaitsForTheStreamsOfTheLastCallAndForNobodyElse) {
  all_in_a_call(3);
  ASSERT_EQ(submit(engine, streams[0], in(10'000)), Status::kOk);
  ASSERT_EQ(submit(engine, streams[7], in(10'000)), Status::kOk);
  EXPECT_EQ(engine.step().entries, 0u);
  ASSERT_EQ(submit(engine, streams[1], in(10'000)), Status::kOk);
  EXPECT_EQ(engine.step().entries, 0u);
  ASSERT_EQ(submit(engine, streams[2], in(10'000)), Status::kOk);
  EXPECT_EQ(engine.step().entries, 4u);
  EXPECT_EQ(calls(), (Calls{4}));
  EXPECT_EQ(engine.counters().calls_pressed, 0u);
}

TEST_F(AsyncBatching, BeginsInTimeForTheEarliestDeadlineWhenAProducerStops) {
  all_in_a_call(3);
  const Instant deadline = in(2'000);
  ASSERT_EQ(submit(engine, streams[0], in(9'000)), Status::kOk);
  ASSERT_EQ(submit(engine, streams[1], deadline), Status::kOk);
  const Instant next = engine.step().next;
  // Two streams were never measured: three took 160 us.
  EXPECT_EQ(next, deadline - microseconds(160) - microseconds(50));
  clock.wind(next - clock.now() - microseconds(1));
  EXPECT_EQ(engine.step().entries, 0u);
  clock.wind(microseconds(1));
  EXPECT_EQ(engine.step().entries, 2u);
  AsyncResult result;
  ASSERT_EQ(engine.try_collect(streams[1], kNow, result), Status::kOk);
  EXPECT_LE(result.computed, deadline);
  EXPECT_EQ(engine.counters().chunks_late, 0u);
  EXPECT_EQ(engine.counters().calls_pressed, 1u);
  collect();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(submit(engine, streams[i], in(2'000)), Status::kOk);
  EXPECT_EQ(engine.step().entries, 2u) << "the one that stopped is waited for no more";
}

TEST_F(AsyncBatching, BeginsEarlierOnceItCameLate) {
  all_in_a_call(2);
  const auto one_waits = [&] {
    EXPECT_EQ(submit(engine, streams[0], in(9'000)), Status::kOk);
    return engine.step().next - clock.now();
  };
  const auto wait = one_waits();
  clock.wind(wait + microseconds(640));
  EXPECT_EQ(engine.step().entries, 1u);
  all_in_a_call(2);
  EXPECT_EQ(one_waits(), wait - microseconds(640 - 20)) << "a call of one, measured by now, takes 20 us less";
}

TEST_F(AsyncBatching, WaitsNoLongerThanMaxWaitWhateverTheDeadline) {
  all_in_a_call(2);
  const Instant seen = clock.now();
  ASSERT_EQ(submit(engine, streams[0], Instant::max()), Status::kOk);
  EXPECT_EQ(engine.step().next, seen + milliseconds(100));
}

TEST_F(AsyncBatching, DoesNotWaitForAStreamThatSkipsOrCloses) {
  all_in_a_call(3);
  ASSERT_EQ(submit(engine, streams[0], in(10'000)), Status::kOk);
  ASSERT_EQ(engine.skip(streams[1]), Status::kOk);
  EXPECT_EQ(engine.step().entries, 1u) << "the skip alone";
  ASSERT_EQ(engine.close(streams[2]), Status::kOk);
  EXPECT_EQ(engine.step().entries, 2u);
  EXPECT_EQ(calls(), (Calls{1}));
}

TEST_F(AsyncBatching, TakesOfManyThoseThatAreInTimeTogether) {
  all_in_a_call(2);
  all_in_a_call(4);
  all_in_a_call(8);
  for (std::size_t s = 0; s < kStreams; ++s) {
    ASSERT_EQ(submit(engine, streams[s], in(s % 2 == 0 ? 200 : 5'000)), Status::kOk);
  }
  EXPECT_EQ(engine.step().entries, 4u) << "200 us are left: a call of 8 takes 260, of 5 perhaps 225, of 4 180";
  EXPECT_EQ(engine.step().entries, 0u) << "those that were in the call are waited for";
  clock.wind(milliseconds(5));
  EXPECT_EQ(engine.step().entries, 4u);
  EXPECT_EQ(calls(), (Calls{4, 4}));
  EXPECT_EQ(engine.counters().calls_cut, 1u);
}

TEST(AsyncMaxCall, KeepsCallsShortForWhoeverComesDuringOne) {
  const test::WoundClock clock;
  AsyncSpec spec = told(&clock);
  spec.max_call = microseconds(200);
  AsyncEngine engine(one_channel(), spec);
  device->calls.clear();
  device->during_call = [&](std::size_t entries) { clock.wind(microseconds(50 * static_cast<std::int64_t>(entries))); };
  StreamId streams[kStreams];
  for (StreamId& stream : streams) ASSERT_EQ(engine.open(stream), Status::kOk);
  ASSERT_EQ(submit(engine, streams[0], {}), Status::kOk);
  EXPECT_EQ(engine.step().entries, 1u) << "50 us: four fit";
  for (const StreamId& stream : streams) ASSERT_EQ(submit(engine, stream, clock.now() + milliseconds(9)), Status::kOk);
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(engine.step());
    clock.wind(milliseconds(9));
  }
  EXPECT_EQ(device->calls, (std::vector<std::size_t>{1, 4, 4}));
}

TEST_F(AsyncBatching, CountsWhatIsLateAndLosesNothing) {
  for (const StreamId& stream : streams) ASSERT_EQ(submit(engine, stream, in(10)), Status::kOk);
  EXPECT_EQ(engine.step().entries, 8u);
  EXPECT_EQ(engine.counters().chunks_late, 8u);
  EXPECT_EQ(collect(), 8u);
}

TEST_F(AsyncBatching, TakesChunksOfDifferentLengthsInOneCall) {
  AsyncResult result;
  for (std::size_t s = 0; s < kStreams; ++s) {
    ASSERT_EQ(submit(engine, streams[s], in(10'000), static_cast<std::int64_t>(s % 5)), Status::kOk);
  }
  EXPECT_EQ(engine.step().entries, 8u);
  EXPECT_EQ(calls(), (Calls{8}));
  for (std::size_t s = 0; s < kStreams; ++s) {
    ASSERT_EQ(engine.try_collect(streams[s], kNow, result), Status::kOk);
    EXPECT_EQ(result.output.frames, static_cast<std::int64_t>(s % 5));
  }
}

TEST_F(AsyncBatching, GivesAStreamsNextChunkToTheNextCall) {
  ASSERT_EQ(submit(engine, streams[0], in(10'000)), Status::kOk);
  ASSERT_EQ(submit(engine, streams[0], in(10'000)), Status::kOk);
  EXPECT_EQ(engine.step().entries, 1u);
  EXPECT_EQ(engine.step().entries, 1u);
  EXPECT_EQ(calls(), (Calls{1, 1}));
}

TEST_F(AsyncBatching, LearnsWhatCallsTake) {
  all_in_a_call(8);  // 260 us
  ASSERT_EQ(submit(engine, streams[0], in(10'000)), Status::kOk);
  EXPECT_EQ(engine.step().next, in(10'000) - microseconds(260) - microseconds(50));
  for (std::size_t s = 1; s < kStreams; ++s) ASSERT_EQ(submit(engine, streams[s], in(10'000)), Status::kOk);
  device->during_call = [this](std::size_t) { clock.wind(milliseconds(3)); };
  EXPECT_EQ(engine.step().entries, 8u);
  collect();
  ASSERT_EQ(submit(engine, streams[0], in(10'000)), Status::kOk);
  EXPECT_EQ(engine.step().next, in(10'000) - milliseconds(3) - microseconds(50)) << "a call was longer than ever";
}

TEST_F(AsyncBatching, AnswersEverythingWhenTheDeviceFails) {
  all_in_a_call(4);
  for (std::size_t s = 0; s < 3; ++s) ASSERT_EQ(submit(engine, streams[s], in(10'000)), Status::kOk);
  ASSERT_EQ(engine.reset(streams[0]), Status::kOk);
  ASSERT_EQ(engine.close(streams[1]), Status::kOk);
  device->fails = true;
  clock.wind(milliseconds(10));
  static_cast<void>(engine.step());
  AsyncResult result;
  EXPECT_EQ(engine.try_collect(streams[0], kNow, result), Status::kDeviceFailed);
  EXPECT_EQ(result.sequence, 1u);
  EXPECT_EQ(result.output.frames, 1) << "the last good one";
  EXPECT_EQ(engine.try_collect(streams[0], kNow, result), Status::kDeviceFailed);
  EXPECT_EQ(result.kind, EntryKind::kReset);
  EXPECT_TRUE(result.answered);
  EXPECT_EQ(engine.try_collect(streams[0], kNow, result), Status::kDeviceFailed);
  EXPECT_FALSE(result.answered);
  EXPECT_EQ(result.sequence, 3u);
  EXPECT_EQ(engine.try_collect(streams[1], kNow, result), Status::kDeviceFailed);
  EXPECT_EQ(engine.try_collect(streams[1], kNow, result), Status::kOk) << "a stream can still be closed";
  EXPECT_EQ(engine.try_collect(streams[5], kNow, result), Status::kDeviceFailed) << "nothing was asked";
  EXPECT_EQ(submit(engine, streams[5], in(10)), Status::kDeviceFailed);
  EXPECT_EQ(engine.skip(streams[5]), Status::kDeviceFailed);
  StreamId another;
  EXPECT_EQ(engine.open(another), Status::kDeviceFailed);
  EXPECT_EQ(engine.close(streams[5]), Status::kOk);
  static_cast<void>(engine.step());
  EXPECT_EQ(engine.try_collect(streams[5], kNow, result), Status::kOk);
  const AsyncCounters counters = engine.counters();
  EXPECT_EQ(counters.entries_in, counters.entries_out);
  EXPECT_EQ(counters.entries_failed, 4u) << "three chunks and a reset";
  EXPECT_NE(engine.engine().failure().find(" failed: the test ended it"), std::string::npos);
  engine.stop();
  EXPECT_EQ(engine.try_collect(streams[0], kNow, result), Status::kStopped) << "nothing more is to come";
}

TEST_F(AsyncBatching, LeavesNoChunkBehindTheFailure) {
  all_in_a_call(2);
  all_in_a_call(8);
  for (std::size_t s = 0; s < kStreams; ++s) {
    ASSERT_EQ(submit(engine, streams[s], in(s < 2 ? 200 : 90'000)), Status::kOk);
  }
  device->fails = true;
  EXPECT_EQ(engine.step().entries, 2u) << "the call that fails";
  EXPECT_EQ(engine.step().entries, 6u) << "at once, not at its deadline";
}

// A wait that only a defect makes end by itself.
Instant long_enough() { return monotonic_clock().now() + std::chrono::seconds(20); }

TEST(AsyncFailure, ReachesEveryCollectorThatWaits) {
  AsyncEngine engine(one_channel(), told(nullptr));
  StreamId streams[kStreams];
  for (StreamId& stream : streams) ASSERT_EQ(engine.open(stream), Status::kOk);
  std::atomic<int> waiting{0};
  std::vector<std::thread> collectors;
  for (const StreamId& stream : streams) {
    collectors.emplace_back([&] {
      AsyncResult result;
      waiting.fetch_add(1);
      EXPECT_EQ(engine.try_collect(stream, long_enough(), result), Status::kDeviceFailed);
    });
  }
  while (waiting.load() < kStreams) std::this_thread::yield();
  device->fails = true;
  EXPECT_EQ(submit(engine, streams[3], monotonic_clock().now()), Status::kOk);
  for (std::thread& collector : collectors) collector.join();
}

// A call that does not end while the test runs.
struct Stuck {
  Stuck() {
    device->during_call = [this](std::size_t) {
      inside = true;
      while (!let_go) {  // as a device that does not answer, without a call of the system
      }
    };
  }
  std::atomic<bool> inside{false};
  std::atomic<bool> let_go{false};
};

TEST(AsyncStuck, KeepsNoCollectorPastItsDeadlineAndNoProducerAtAll) {
  AsyncEngine engine(one_channel(), told(nullptr));
  StreamId streams[2];
  for (StreamId& stream : streams) ASSERT_EQ(engine.open(stream), Status::kOk);
  Stuck stuck;
  ASSERT_EQ(submit(engine, streams[0], {}), Status::kOk);
  while (!stuck.inside) std::this_thread::yield();
  AsyncResult result;
  const Instant deadline = monotonic_clock().now() + milliseconds(2);
  EXPECT_EQ(engine.try_collect(streams[0], deadline, result), Status::kNotYet);
  EXPECT_GE(monotonic_clock().now(), deadline);
  EXPECT_EQ(submit(engine, streams[0], {}), Status::kOk);
  EXPECT_EQ(submit(engine, streams[0], {}), Status::kStreamFull);
  EXPECT_EQ(submit(engine, streams[1], {}), Status::kOk);
  StreamId another;
  EXPECT_EQ(engine.open(another), Status::kOk);
  stuck.let_go = true;
  EXPECT_EQ(engine.try_collect(streams[1], long_enough(), result), Status::kOk);
}

TEST(AsyncStuck, TellsCollectorsOfAStopBeforeItsCallEnds) {
  AsyncEngine engine(one_channel(), told(nullptr));
  StreamId stream;
  ASSERT_EQ(engine.open(stream), Status::kOk);
  Stuck stuck;
  ASSERT_EQ(submit(engine, stream, {}), Status::kOk);
  while (!stuck.inside) std::this_thread::yield();
  std::thread stopping([&] { engine.stop(); });
  AsyncResult result;
  EXPECT_EQ(engine.try_collect(stream, long_enough(), result), Status::kStopped);
  stuck.let_go = true;
  stopping.join();
  EXPECT_EQ(engine.try_collect(stream, kNow, result), Status::kOk) << "the call that was under way came to its end";
}

}  // namespace
}  // namespace halotap::pipeline
