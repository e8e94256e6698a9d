#include "halotap/pipeline/async_engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/test_model.hpp"
#include "wound_clock.hpp"

namespace halotap::pipeline {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::int64_t kIn = 3;
constexpr std::int64_t kOut = 2;
constexpr std::int64_t kLookahead = 3;
constexpr Instant kNow{};  // long ago: look once

// An engine over lookahead_model that this thread steps, with two places a stream.
struct AsyncEngineTest : testing::Test {
  static AsyncSpec spec(const Clock& clock) {
    return {.engine = {.backend = Backend::kCpu, .max_streams = 2, .max_chunk_frames = 10},
            .own_thread = false,
            .clock = &clock};
  }

  StreamId opened() {
    StreamId stream;
    EXPECT_EQ(engine.open(stream), Status::kOk);
    return stream;
  }

  // Submits frames of one value.
  Status submit(StreamId stream, std::int64_t frames, float value = 0.5f, Instant deadline = Instant::max()) {
    FrameView view;
    if (const Status status = engine.begin_chunk(stream, frames, view); status != Status::kOk) return status;
    for (std::int64_t c = 0; c < view.channels; ++c) {
      for (std::int64_t t = 0; t < frames; ++t) view(c, t) = value;
    }
    return engine.submit(stream, deadline);
  }

  Status collect(StreamId stream) { return engine.try_collect(stream, kNow, result); }

  test::WoundClock clock;
  AsyncEngine engine{test::lookahead_model(1), spec(clock)};
  AsyncResult result;
};

TEST_F(AsyncEngineTest, GivesWhatTheEngineAloneGives) {
  Engine alone;
  alone.prepare(test::lookahead_model(1), {.backend = Backend::kCpu, .max_chunk_frames = 10});
  StreamId alone_stream;
  ASSERT_EQ(alone.open(alone_stream), Status::kOk);
  test::Random random(3);
  const std::vector<float> input = test::draw_signal(random, kIn * 10);
  std::vector<float> expected(kOut * 10);
  StreamChunk chunk{alone_stream, kernels::interleaved(input.data(), kIn, 10),
                    kernels::planar(expected.data(), kOut, 10), 0, Status::kOk};
  ASSERT_EQ(alone.process({&chunk, 1}), Status::kOk);

  const StreamId stream = opened();
  ASSERT_EQ(engine.submit(stream, chunk.input), Status::kOk);
  EXPECT_EQ(engine.step().entries, 1u);
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_TRUE(result.fresh);
  EXPECT_EQ(result.sequence, 0u);
  ASSERT_EQ(result.output.channels, kOut);
  ASSERT_EQ(result.output.frames, 10 - kLookahead);
  EXPECT_EQ(result.output.frame_stride, 1);
  for (std::int64_t c = 0; c < kOut; ++c) {
    EXPECT_EQ(std::memcmp(&result.output(c, 0), &chunk.output(c, 0), 7 * sizeof(float)), 0);
  }
}

TEST_F(AsyncEngineTest, HandsOutPlanarPlacesOfTheRing) {
  const StreamId stream = opened();
  FrameView first;
  FrameView second;
  ASSERT_EQ(engine.begin_chunk(stream, 4, first), Status::kOk);
  EXPECT_EQ(first.channels, kIn);
  EXPECT_EQ(first.frames, 4);
  EXPECT_EQ(first.channel_stride, 12) << "10 frames, in rows of whole 16 bytes";
  EXPECT_EQ(first.frame_stride, 1);
  ASSERT_EQ(engine.begin_chunk(stream, 10, second), Status::kOk);
  EXPECT_EQ(second.data, first.data) << "begun anew";
  ASSERT_EQ(engine.submit(stream), Status::kOk);
  ASSERT_EQ(engine.begin_chunk(stream, 10, second), Status::kOk);
  EXPECT_NE(second.data, first.data);
}

TEST_F(AsyncEngineTest, AnswersEveryEntryOnceInOrder) {
  const StreamId stream = opened();
  ASSERT_EQ(submit(stream, 5), Status::kOk);
  ASSERT_EQ(engine.reset(stream), Status::kOk);
  EXPECT_EQ(engine.step().entries, 2u);
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(result.kind, EntryKind::kChunk);
  EXPECT_EQ(result.output.frames, 2);
  ASSERT_EQ(engine.skip(stream), Status::kOk);
  engine.step();
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(result.kind, EntryKind::kReset);
  EXPECT_EQ(result.sequence, 1u);
  EXPECT_FALSE(result.fresh);
  EXPECT_EQ(result.output.frames, 2) << "what came before the reset";
  EXPECT_EQ(result.output_sequence, 0u);
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(result.kind, EntryKind::kSkip);
  EXPECT_EQ(result.sequence, 2u);
  ASSERT_EQ(submit(stream, 5), Status::kOk);
  ASSERT_EQ(engine.flush(stream), Status::kOk);
  EXPECT_EQ(engine.step().entries, 2u);
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(result.output.frames, 2) << "the reset took effect in front of it";
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(result.kind, EntryKind::kFlush);
  EXPECT_EQ(result.output.frames, kLookahead);
  EXPECT_EQ(collect(stream), Status::kNotYet);
  EXPECT_EQ(result.sequence, 5u) << "the next one's";
}

TEST_F(AsyncEngineTest, GivesTheLastGoodResultWithItsAgeWhenTheDeadlineComes) {
  const StreamId stream = opened();
  EXPECT_EQ(collect(stream), Status::kNotYet);
  EXPECT_EQ(result.output.frames, 0) << "there never was one";
  ASSERT_EQ(submit(stream, 10), Status::kOk);
  engine.step();
  ASSERT_EQ(collect(stream), Status::kOk);
  const float* held = result.output.data;
  const float value = *held;
  EXPECT_EQ(result.age.count(), 0);
  clock.wind(milliseconds(7));
  ASSERT_EQ(submit(stream, 10, 2.0f), Status::kOk);
  ASSERT_EQ(submit(stream, 10, 3.0f), Status::kOk);
  EXPECT_EQ(collect(stream), Status::kNotYet);
  EXPECT_FALSE(result.fresh);
  EXPECT_EQ(result.age, milliseconds(7));
  EXPECT_EQ(result.output_sequence, 0u);
  engine.step();
  engine.step();
  EXPECT_EQ(result.output.data, held);
  EXPECT_EQ(*held, value) << "two more results, and the one that is held still stands";
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_NE(result.output.data, held);
}

TEST_F(AsyncEngineTest, WaitsUntilTheDeadlineAndNotLonger) {
  const test::WoundClock ticking(microseconds(1));
  AsyncEngine patient(test::lookahead_model(1), spec(ticking));
  StreamId stream;
  ASSERT_EQ(patient.open(stream), Status::kOk);
  const Instant begun = ticking.now();
  EXPECT_EQ(patient.try_collect(stream, begun + milliseconds(5), result), Status::kNotYet);
  const auto waited = ticking.now() - begun;
  EXPECT_GE(waited, milliseconds(5));
  EXPECT_LE(waited, milliseconds(5) + microseconds(3)) << "looks at the clock alone";
}

TEST_F(AsyncEngineTest, RefusesAnEntryMoreThanThereIsRoomForAndCountsIt) {
  const StreamId stream = opened();
  ASSERT_EQ(submit(stream, 10), Status::kOk);
  ASSERT_EQ(engine.reset(stream), Status::kOk);
  FrameView view;
  EXPECT_EQ(engine.begin_chunk(stream, 1, view), Status::kStreamFull);
  EXPECT_EQ(engine.skip(stream), Status::kStreamFull);
  engine.step();
  EXPECT_EQ(engine.close(stream), Status::kStreamFull) << "answered, and not collected";
  EXPECT_EQ(engine.refused_full(), 3u);
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(engine.skip(stream), Status::kOk);
  EXPECT_EQ(engine.skip(stream), Status::kStreamFull);
  ASSERT_EQ(collect(stream), Status::kOk);
  engine.step();
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(result.sequence, 2u) << "the refused ones have no number";
}

TEST_F(AsyncEngineTest, LetsALateCollectorFindEverythingInOrder) {
  const StreamId late = opened();
  const StreamId prompt = opened();
  for (int i = 0; i < 2; ++i) ASSERT_EQ(submit(late, 10, static_cast<float>(i)), Status::kOk);
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(submit(prompt, 10), Status::kOk);
    EXPECT_EQ(submit(late, 10), Status::kStreamFull);
    engine.step();
    clock.wind(milliseconds(10));  // as long as anybody is waited for
    engine.step();
    ASSERT_EQ(collect(prompt), Status::kOk) << "it goes on";
    EXPECT_EQ(result.sequence, i);
  }
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_EQ(collect(late), Status::kOk);
    EXPECT_EQ(result.sequence, i);
  }
}

TEST_F(AsyncEngineTest, RefusesWhatIsNoChunk) {
  const StreamId stream = opened();
  FrameView view;
  EXPECT_EQ(engine.submit(stream), Status::kNoChunkBegun);
  EXPECT_EQ(engine.begin_chunk(stream, 11, view), Status::kChunkTooLong);
  EXPECT_EQ(engine.begin_chunk(stream, -1, view), Status::kInvalidView);
  EXPECT_EQ(engine.submit(stream, {nullptr, kIn, 1, 1, 1}), Status::kInvalidView);
  float samples[4] = {};
  EXPECT_EQ(engine.submit(stream, kernels::planar<const float>(samples, 2, 2)), Status::kChannelMismatch);
  EXPECT_EQ(engine.submit(stream), Status::kNoChunkBegun) << "what was refused is not begun";
  ASSERT_EQ(engine.begin_chunk(stream, 3, view), Status::kOk);
  EXPECT_EQ(engine.begin_chunk(stream, 11, view), Status::kChunkTooLong);
  EXPECT_EQ(engine.submit(stream), Status::kNoChunkBegun) << "begun again, and refused";
  ASSERT_EQ(engine.begin_chunk(stream, 3, view), Status::kOk);
  ASSERT_EQ(engine.skip(stream), Status::kOk);
  EXPECT_EQ(engine.submit(stream), Status::kNoChunkBegun) << "given up by the skip";
  EXPECT_EQ(engine.submit(stream, ConstFrameView{nullptr, kIn, 0, 0, 0}), Status::kOk) << "no frames are fine";
}

TEST_F(AsyncEngineTest, AnswersABadFillWithItsStatusAndGoesOn) {
  const StreamId stream = opened();
  EXPECT_EQ(engine.reset(stream, {FillKind::kFrame, nullptr}), Status::kInvalidFill);
  const float frame[kIn] = {1, std::numeric_limits<float>::infinity(), 0};
  ASSERT_EQ(engine.reset(stream, {FillKind::kFrame, frame}), Status::kOk);
  ASSERT_EQ(submit(stream, 10), Status::kOk);
  engine.step();
  EXPECT_EQ(collect(stream), Status::kInvalidFill);
  EXPECT_EQ(result.kind, EntryKind::kReset);
  EXPECT_EQ(result.sequence, 0u);
  EXPECT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(result.sequence, 1u);
  EXPECT_EQ(engine.counters().entries_failed, 1u);
}

TEST_F(AsyncEngineTest, RefusesAStreamThatWasNeverOpenedOrIsClosed) {
  FrameView view;
  for (const StreamId stranger : {StreamId{0, 0}, StreamId{0, 1}, StreamId{7, 1}}) {
    EXPECT_EQ(engine.begin_chunk(stranger, 1, view), Status::kUnknownStream);
    EXPECT_EQ(engine.reset(stranger), Status::kUnknownStream);
    EXPECT_EQ(collect(stranger), Status::kUnknownStream);
  }
  const StreamId stream = opened();
  ASSERT_EQ(engine.close(stream), Status::kOk);
  EXPECT_EQ(engine.begin_chunk(stream, 1, view), Status::kUnknownStream);
  EXPECT_EQ(engine.close(stream), Status::kUnknownStream);
  engine.step();
  ASSERT_EQ(collect(stream), Status::kOk);
  EXPECT_EQ(result.kind, EntryKind::kClose);
  EXPECT_EQ(collect(stream), Status::kUnknownStream);
}

TEST_F(AsyncEngineTest, GivesASlotAwayOnlyWhenItsStreamWasCollectedToTheEnd) {
  const StreamId first = opened();
  const StreamId second = opened();
  StreamId third;
  EXPECT_EQ(engine.open(third), Status::kNoFreeStream);
  ASSERT_EQ(submit(first, 10), Status::kOk);
  ASSERT_EQ(engine.close(first), Status::kOk);
  while (engine.step().entries > 0) {
  }
  EXPECT_EQ(engine.open(third), Status::kNoFreeStream);
  ASSERT_EQ(collect(first), Status::kOk);
  EXPECT_EQ(result.output.frames, 7) << "computed in front of the close";
  EXPECT_EQ(engine.open(third), Status::kNoFreeStream) << "its output is still held";
  ASSERT_EQ(collect(first), Status::kOk);
  EXPECT_EQ(result.output.frames, 0);
  ASSERT_EQ(engine.open(third), Status::kOk);
  EXPECT_EQ(third.slot, first.slot);
  EXPECT_EQ(submit(first, 1), Status::kUnknownStream);
  EXPECT_EQ(collect(first), Status::kUnknownStream);
  EXPECT_EQ(collect(third), Status::kNotYet);
  EXPECT_EQ(result.output.frames, 0) << "nothing of the last tenant's";
  EXPECT_EQ(result.sequence, 0u);
  ASSERT_EQ(submit(third, 5), Status::kOk);
  engine.step();
  ASSERT_EQ(collect(third), Status::kOk);
  EXPECT_EQ(result.sequence, 0u);
  EXPECT_EQ(result.output.frames, 2) << "it waits for its own lookahead";
  EXPECT_EQ(submit(second, 1), Status::kOk);
}

TEST_F(AsyncEngineTest, StopsAndLetsWhatWasAnsweredBeCollected) {
  const StreamId stream = opened();
  ASSERT_EQ(submit(stream, 10), Status::kOk);
  engine.step();
  ASSERT_EQ(submit(stream, 10), Status::kOk);
  engine.stop();
  FrameView view;
  StreamId other;
  EXPECT_EQ(engine.open(other), Status::kStopped);
  EXPECT_EQ(engine.begin_chunk(stream, 1, view), Status::kStopped);
  EXPECT_EQ(engine.close(stream), Status::kStopped);
  EXPECT_EQ(engine.try_collect(stream, kNow, result), Status::kOk);
  EXPECT_EQ(engine.try_collect(stream, kNow, result), Status::kStopped);
  EXPECT_EQ(result.output.frames, 7) << "the last good one";
}

TEST_F(AsyncEngineTest, CountsWhatItDoes) {
  const StreamId stream = opened();
  ASSERT_EQ(submit(stream, 10, 0, clock.now() + milliseconds(1)), Status::kOk);
  ASSERT_EQ(engine.skip(stream), Status::kOk);
  engine.step();
  ASSERT_EQ(collect(stream), Status::kOk);
  ASSERT_EQ(submit(stream, 10, 0, clock.now() - milliseconds(1)), Status::kOk);
  engine.step();
  const AsyncCounters counters = engine.counters();
  EXPECT_EQ(counters.entries_in, 3u);
  EXPECT_EQ(counters.entries_out, 3u);
  EXPECT_EQ(counters.entries_in_flight, 0u);
  EXPECT_EQ(counters.chunks, 2u);
  EXPECT_EQ(counters.chunks_late, 1u);
  EXPECT_EQ(counters.calls, 2u);
  EXPECT_EQ(counters.largest_call, 1u);
  EXPECT_EQ(engine.engine().counters().frames_in, 20u);
  // Two places of input and three of output, 2 streams, of 30 and 20 samples in whole cache lines.
  EXPECT_GT(engine.ring_bytes(), 2u * (2 * 32 + 3 * 32) * sizeof(float));
}

TEST_F(AsyncEngineTest, RefusesASpecOutOfRange) {
  const auto refused = [&](auto change, const std::string& expected) {
    AsyncSpec bad = spec(clock);
    change(bad);
    try {
      const AsyncEngine made(test::lookahead_model(1), bad);
      ADD_FAILURE() << "not refused: " << expected;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).substr(0, expected.size()), expected);
    }
  };
  refused([](AsyncSpec& s) { s.in_flight = 0; }, "in_flight: expected 1 to 1024, got 0");
  refused([](AsyncSpec& s) { s.engine.max_streams = 0; }, "max_streams: expected 1 to 1048576, got 0");
  refused([](AsyncSpec& s) { s.engine.max_chunk_frames = std::int64_t{1} << 40; }, "max_chunk_frames: expected 1 to");
  refused([](AsyncSpec& s) { s.max_wait = -milliseconds(1); }, "max_wait, in nanoseconds: expected 0 to");
  refused([](AsyncSpec& s) { s.margin = -milliseconds(1); }, "margin, in nanoseconds: expected 0 to");
  refused([](AsyncSpec& s) { s.max_call = hours(2); }, "max_call, in nanoseconds: expected 0 to");
  refused([](AsyncSpec& s) { s.poll = hours(2); }, "poll, in nanoseconds: expected 0 to");
  refused([](AsyncSpec& s) { s.realtime.priority = 5; }, "realtime: expected nothing");
  refused([](AsyncSpec& s) { s.engine.max_streams = 1 << 20, s.engine.max_chunk_frames = 1 << 20; },
          "in_flight, max_chunk_frames and max_streams: expected rings of at most this machine's");
}

// Whether this program has a thread of that name, as the system has it.
bool has_thread(const std::string& wanted) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(entry.path() / "comm"), name);
    if (name == wanted) return true;
  }
  return false;
}

TEST(AsyncEngineThread, HasANameAndTheSchedulingThatWasAskedFor) {
  AsyncSpec spec{.engine = {.backend = Backend::kCpu, .max_chunk_frames = 10}};
  {
    const AsyncEngine engine(test::lookahead_model(1), spec);
    EXPECT_TRUE(has_thread("halotap-async"));
    EXPECT_TRUE(engine.realtime_grant().refusals.empty());
  }
  EXPECT_FALSE(has_thread("halotap-async"));
  spec.realtime.cpus = {1'000'000};
  const AsyncEngine engine(test::lookahead_model(1), spec);
  ASSERT_EQ(engine.realtime_grant().refusals.size(), 1u) << "a processor that is not there";
  EXPECT_EQ(engine.realtime_grant().refusals[0].substr(0, 21), "realtime.cpus: 100000");
}

// With a thread of its own and nobody at its other end.
TEST(AsyncEngineThread, NeverTakesAnOldIdForTheSlotsNextStream) {
  const Model model = test::lookahead_model(1);
  AsyncEngine engine(model, {.engine = {.backend = Backend::kCpu, .max_chunk_frames = 10}, .own_thread = false});
  std::atomic<std::uint32_t> closed{0};  // the generation of the slot's last stream that was closed
  std::int64_t taken = 0;
  std::jthread late([&](const std::stop_token& over) {
    while (!over.stop_requested()) taken += engine.skip({0, closed}) == Status::kUnknownStream ? 0 : 1;
  });
  for (int i = 0; i < 100'000; ++i) {
    StreamId stream;
    ASSERT_EQ(engine.open(stream), Status::kOk);
    ASSERT_EQ(engine.close(stream), Status::kOk);
    closed = stream.generation;
    engine.step();
    AsyncResult result;
    ASSERT_EQ(engine.try_collect(stream, kNow, result), Status::kOk);
    ASSERT_EQ(result.kind, EntryKind::kClose);
  }
  late.request_stop();
  late.join();
  EXPECT_EQ(taken, 0);
}

TEST(AsyncEngineThread, MayBeStoppedByTwoThreadsAtOnce) {
  const Model model = test::lookahead_model(1);
  for (int i = 0; i < 50; ++i) {
    AsyncEngine engine(model, {.engine = {.backend = Backend::kCpu, .max_chunk_frames = 10}});
    std::thread other([&] { engine.stop(); });
    engine.stop();
    other.join();
  }
}

TEST(AsyncEngineThread, EndsWithChunksInFlightAndCollectorsWaiting) {
  for (int round = 0; round < 20; ++round) {
    AsyncEngine engine(test::lookahead_model(1),
                       {.engine = {.backend = Backend::kCpu, .max_streams = 4, .max_chunk_frames = 10}});
    StreamId streams[4];
    for (StreamId& stream : streams) ASSERT_EQ(engine.open(stream), Status::kOk);
    std::thread collector([&] {
      AsyncResult result;
      Status status = Status::kOk;
      const Instant limit = monotonic_clock().now() + std::chrono::seconds(20);
      while (status == Status::kOk) status = engine.try_collect(streams[0], limit, result);
      EXPECT_EQ(status, Status::kStopped);
    });
    for (int i = 0; i < 8; ++i) {
      FrameView view;
      if (engine.begin_chunk(streams[i % 4], 10, view) != Status::kOk) continue;
      EXPECT_EQ(engine.submit(streams[i % 4]), Status::kOk);
    }
    engine.stop();
    collector.join();
  }
}

}  // namespace
}  // namespace halotap::pipeline
