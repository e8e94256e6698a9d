#include "halotap/pipeline/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "pipeline/test_model.hpp"

namespace halotap::pipeline {
namespace {

using test::draw;
using test::draw_signal;
using test::lookahead_model;
using test::Random;

constexpr std::int64_t kIn = 3;
constexpr std::int64_t kOut = 2;
constexpr std::int64_t kLookahead = 3;

// An engine over lookahead_model with memory for one stream's chunks.
class EngineTest : public testing::Test {
 protected:
  EngineTest() { engine_.prepare(lookahead_model(1), {.max_streams = 2, .max_chunk_frames = 10}); }

  StreamId opened() {
    StreamId stream;
    EXPECT_EQ(engine_.open(stream), Status::kOk);
    return stream;
  }

  StreamChunk chunk(StreamId stream, std::int64_t frames) {
    return {stream, kernels::planar<const float>(input_.data(), kIn, frames),
            kernels::planar(output_.data(), kOut, std::int64_t{20}), 0, Status::kOk};
  }

  Status process(StreamId stream, std::int64_t frames, std::int64_t* emitted = nullptr) {
    StreamChunk one = chunk(stream, frames);
    const Status status = engine_.process({&one, 1});
    EXPECT_EQ(status, one.status);
    if (emitted != nullptr) *emitted = one.frames_emitted;
    return status;
  }

  Engine engine_;
  std::vector<float> input_ = std::vector<float>(kIn * 20, 0.5f);
  std::vector<float> output_ = std::vector<float>(kOut * 20);
};

TEST_F(EngineTest, StatesItsConstants) {
  EXPECT_EQ(engine_.latency_frames(), kLookahead);
  EXPECT_EQ(engine_.lookahead_frames(), kLookahead);
  EXPECT_EQ(engine_.receptive_field(), 7);
  EXPECT_EQ(engine_.in_channels(), kIn);
  EXPECT_EQ(engine_.out_channels(), kOut);
  EXPECT_GT(engine_.state_bytes(), 0u);
  EXPECT_EQ(engine_.device().substr(0, 5), "cpu (");
}

TEST_F(EngineTest, EmitsWhatWasReceivedLessTheLookahead) {
  const StreamId stream = opened();
  std::int64_t emitted = -1;
  EXPECT_EQ(process(stream, 2, &emitted), Status::kOk);
  EXPECT_EQ(emitted, 0);
  EXPECT_EQ(process(stream, 0, &emitted), Status::kOk);
  EXPECT_EQ(emitted, 0);
  EXPECT_EQ(process(stream, 4, &emitted), Status::kOk);
  EXPECT_EQ(emitted, 3);
  EXPECT_EQ(engine_.flush(stream, kernels::planar(output_.data(), kOut, std::int64_t{3}), emitted), Status::kOk);
  EXPECT_EQ(emitted, 3);
  EXPECT_EQ(engine_.flush(stream, kernels::planar(output_.data(), kOut, std::int64_t{3}), emitted), Status::kOk);
  EXPECT_EQ(emitted, 0) << "flush leaves the stream as reset";
}

TEST_F(EngineTest, HandsOutZeroedMemoryToReadAndWriteIn) {
  float* const input = engine_.allocate_samples(kIn * 10);
  float* const output = engine_.allocate_samples(kOut * 10);
  for (std::int64_t i = 0; i < kIn * 10; ++i) EXPECT_EQ(input[i], 0.0f);
  for (std::int64_t i = 0; i < kOut * 10; ++i) EXPECT_EQ(output[i], 0.0f);
  std::copy_n(input_.data(), kIn * 10, input);
  StreamChunk there{opened(), kernels::planar<const float>(input, kIn, std::int64_t{10}),
                    kernels::planar(output, kOut, std::int64_t{10}), 0, Status::kOk};
  StreamChunk elsewhere = chunk(opened(), 10);
  ASSERT_EQ(engine_.process({&there, 1}), Status::kOk);
  ASSERT_EQ(engine_.process({&elsewhere, 1}), Status::kOk);
  for (std::int64_t c = 0; c < kOut; ++c) {
    EXPECT_EQ(std::memcmp(&there.output(c, 0), &elsewhere.output(c, 0), (10 - kLookahead) * sizeof(float)), 0);
  }
  EXPECT_THROW(engine_.allocate_samples(0), ConfigError);
  EXPECT_THROW(engine_.allocate_samples(kernels::Executor::kMostSamples), ConfigError) << "4 TiB";
}

TEST_F(EngineTest, RefusesEverythingBeforePrepare) {
  Engine fresh;
  StreamId stream;
  std::int64_t emitted = 0;
  EXPECT_EQ(fresh.open(stream), Status::kNotPrepared);
  EXPECT_EQ(fresh.close(stream), Status::kNotPrepared);
  EXPECT_EQ(fresh.reset(stream), Status::kNotPrepared);
  EXPECT_EQ(fresh.process({}), Status::kNotPrepared);
  EXPECT_EQ(fresh.flush(stream, {}, emitted), Status::kNotPrepared);
}

TEST_F(EngineTest, RefusesAStreamThatWasNeverOpenedOrIsClosed) {
  EXPECT_EQ(process({0, 0}, 1), Status::kUnknownStream);
  EXPECT_EQ(process({7, 1}, 1), Status::kUnknownStream);
  const StreamId stream = opened();
  EXPECT_EQ(engine_.close(stream), Status::kOk);
  EXPECT_EQ(engine_.close(stream), Status::kUnknownStream);
  EXPECT_EQ(process(stream, 1), Status::kUnknownStream);
  const StreamId next = opened();
  EXPECT_EQ(next.slot, stream.slot);
  EXPECT_EQ(process(stream, 1), Status::kUnknownStream) << "the slot's new stream is not the old one";
  EXPECT_EQ(process(next, 1), Status::kOk);
}

TEST_F(EngineTest, RefusesAStreamMoreThanItWasPreparedFor) {
  opened();
  opened();
  StreamId third;
  EXPECT_EQ(engine_.open(third), Status::kNoFreeStream);
}

TEST_F(EngineTest, RefusesOneBadEntryAndRunsTheOthers) {
  const StreamId good = opened();
  const StreamId bad = opened();
  std::vector<StreamChunk> chunks{chunk(bad, 11), chunk(good, 4)};
  EXPECT_EQ(engine_.process(chunks), Status::kChunkTooLong);
  EXPECT_EQ(chunks[0].status, Status::kChunkTooLong);
  EXPECT_EQ(chunks[1].status, Status::kOk);
  EXPECT_EQ(chunks[1].frames_emitted, 1);
}

TEST_F(EngineTest, RefusesMalformedEntriesWithoutAdvancingTheirStream) {
  const StreamId stream = opened();
  const auto refused = [&](auto change) {
    StreamChunk one = chunk(stream, 5);
    change(one);
    return engine_.process({&one, 1});
  };
  EXPECT_EQ(refused([](StreamChunk& c) { c.input.channels = 2; }), Status::kChannelMismatch);
  EXPECT_EQ(refused([](StreamChunk& c) { c.output.channels = 3; }), Status::kChannelMismatch);
  EXPECT_EQ(refused([](StreamChunk& c) { c.output.frames = 1; }), Status::kOutputTooShort);
  EXPECT_EQ(refused([](StreamChunk& c) { c.input.frames = -1; }), Status::kInvalidView);
  EXPECT_EQ(refused([](StreamChunk& c) { c.input.data = nullptr; }), Status::kInvalidView);
  EXPECT_EQ(refused([](StreamChunk& c) { c.output.data = nullptr; }), Status::kInvalidView);
  std::vector<StreamChunk> twice{chunk(stream, 1), chunk(stream, 1)};
  EXPECT_EQ(engine_.process(twice), Status::kRepeatedStream);
  EXPECT_EQ(twice[0].status, Status::kOk);
  EXPECT_EQ(twice[1].status, Status::kRepeatedStream);
  EXPECT_EQ(engine_.counters().frames_in, 1u) << "the first of the two alone";
  EXPECT_EQ(engine_.counters().calls_refused, 7u);
}

TEST_F(EngineTest, RefusesAFillThatIsMissingOrNotFinite) {
  const StreamId stream = opened();
  const float frame[] = {1, std::nanf(""), 2};
  EXPECT_EQ(engine_.reset(stream, {FillKind::kFrame, nullptr}), Status::kInvalidFill);
  EXPECT_EQ(engine_.reset(stream, {FillKind::kFrame, frame}), Status::kInvalidFill);
  EXPECT_EQ(engine_.reset(stream, {static_cast<FillKind>(7), nullptr}), Status::kInvalidFill);
  EXPECT_EQ(engine_.reset(stream, {FillKind::kHoldFirst, nullptr}), Status::kOk);
}

TEST_F(EngineTest, KnowsNoStreamOfAnEarlierPrepare) {
  const StreamId before = opened();
  engine_.prepare(lookahead_model(1), {.max_streams = 2, .max_chunk_frames = 10});
  EXPECT_EQ(process(before, 1), Status::kUnknownStream);
  const StreamId after = opened();
  EXPECT_EQ(after.slot, before.slot);
  EXPECT_EQ(process(before, 1), Status::kUnknownStream);
  EXPECT_EQ(process(after, 1), Status::kOk);
}

TEST_F(EngineTest, RefusesSpecsThatItCannotKeep) {
  Engine other;
  EXPECT_THROW(other.prepare(Model(), {}), ConfigError);
  EXPECT_THROW(other.prepare(lookahead_model(1), {.max_streams = 0}), ConfigError);
  EXPECT_THROW(other.prepare(lookahead_model(1), {.max_chunk_frames = 0}), ConfigError);
  EXPECT_THROW(other.prepare(lookahead_model(1), {.backend = Backend::kCpu, .precision = Precision::kBf16}),
               ConfigError);
  EXPECT_THROW(other.prepare(lookahead_model(1), {.backend = Backend::kCuda, .worker_threads = 1}), ConfigError);
  EXPECT_THROW(other.prepare(lookahead_model(1), {.backend = Backend::kAuto, .cuda_devices = {0, 1}}), ConfigError)
      << "one kernel a stack is for one card";
}

TEST_F(EngineTest, TakesTheBackendAskedForOrSaysWhyNot) {
  Engine other;
  other.prepare(lookahead_model(1), {.backend = Backend::kCpu});
  EXPECT_EQ(other.backend(), Backend::kCpu);
  other.prepare(lookahead_model(1), {.worker_threads = 1});
  EXPECT_EQ(other.backend(), Backend::kCpu) << "only the cpu has worker threads";
  try {
    other.prepare(lookahead_model(1), {.backend = Backend::kCuda});
    EXPECT_EQ(other.backend(), Backend::kCuda);
  } catch (const DeviceError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("backend cuda: ")) << error.what();
    EXPECT_EQ(other.backend(), Backend::kCpu) << "what was prepared before is as it was";
  }
  other.prepare(lookahead_model(1), {});
  EXPECT_EQ(other.backend(), Backend::kCpu) << "too little work for a card";
}

TEST_F(EngineTest, AccountsForEveryFrame) {
  const auto balanced = [&] {
    const EngineCounters c = engine_.counters();
    return c.frames_in == c.frames_out + c.frames_discarded + c.frames_in_flight;
  };
  Random random(2);
  std::map<int, StreamId> open{{0, opened()}, {1, opened()}};
  for (int i = 0; i < 500; ++i) {
    const int which = static_cast<int>(draw(random, 0, 1));
    std::int64_t emitted = 0;
    switch (draw(random, 0, 9)) {
      case 0:
        ASSERT_EQ(engine_.reset(open[which]), Status::kOk);
        break;
      case 1:
        ASSERT_EQ(engine_.close(open[which]), Status::kOk);
        open[which] = opened();
        break;
      case 2:
        ASSERT_EQ(engine_.flush(open[which], kernels::planar(output_.data(), kOut, std::int64_t{20}), emitted),
                  Status::kOk);
        break;
      default:
        ASSERT_EQ(process(open[which], draw(random, 0, 10)), Status::kOk);
    }
    ASSERT_TRUE(balanced()) << "after call " << i;
  }
  const EngineCounters counters = engine_.counters();
  EXPECT_GT(counters.frames_discarded, 0u);
  EXPECT_EQ(counters.streams_open, 2u);
  for (auto& [which, stream] : open) ASSERT_EQ(engine_.close(stream), Status::kOk);
  EXPECT_EQ(engine_.counters().frames_in_flight, 0u);
}

TEST_F(EngineTest, ShowsBalancedCountersToAThreadThatReadsWhileItWorks) {
  const StreamId stream = opened();
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> unbalanced{0};
  std::thread reader([&] {
    while (!done) {
      const EngineCounters c = engine_.counters();
      if (c.frames_in != c.frames_out + c.frames_discarded + c.frames_in_flight) ++unbalanced;
    }
  });
  for (int i = 0; i < 20000; ++i) ASSERT_EQ(process(stream, 1 + i % 7), Status::kOk);
  done = true;
  reader.join();
  EXPECT_EQ(unbalanced, 0u);
}

// Opening, closing, resetting and poisoning streams at random; each output is compared with the stream's own run alone.
TEST(Engine, NeverLetsOneStreamsCallsTouchAnothersBits) {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Random random(seed);
    const Model model = test::draw_model(random);
    const std::int64_t in = model.stack->in_channels();
    const std::int64_t out = model.stack->out_channels();
    constexpr std::int64_t kChunk = 16;
    Engine crowd;
    crowd.prepare(model, {.max_streams = 5, .max_chunk_frames = kChunk});

    struct Twin {
      StreamId stream;
      Engine alone;
      StreamId alone_stream;
    };
    std::vector<Twin> twins;
    for (int i = 0; i < 400; ++i) {
      if (twins.size() < 5 && draw(random, 0, 3) == 0) {
        Twin twin;
        twin.alone.prepare(model, {.max_chunk_frames = kChunk});
        ASSERT_EQ(twin.alone.open(twin.alone_stream), Status::kOk);
        ASSERT_EQ(crowd.open(twin.stream), Status::kOk);
        twins.push_back(std::move(twin));
      }
      if (twins.empty()) continue;
      const auto which = static_cast<std::size_t>(draw(random, 0, static_cast<std::int64_t>(twins.size()) - 1));
      Twin& twin = twins[which];
      const std::int64_t frames = draw(random, 0, kChunk);
      const std::int64_t action = draw(random, 0, 11);
      if (action == 0) {
        ASSERT_EQ(crowd.close(twin.stream), Status::kOk);
        twins.erase(twins.begin() + static_cast<std::ptrdiff_t>(which));
        continue;
      }
      if (action == 1) {
        const std::vector<float> frame = draw_signal(random, in);
        const Fill fill{static_cast<FillKind>(draw(random, 0, 2)), frame.data()};
        ASSERT_EQ(crowd.reset(twin.stream, fill), Status::kOk);
        ASSERT_EQ(twin.alone.reset(twin.alone_stream, fill), Status::kOk);
        continue;
      }
      std::vector<float> input = draw_signal(random, in * kChunk);
      if (action == 2) input[0] = std::nanf("");
      const std::int64_t room = kChunk + model.stack->lookahead_frames();
      std::vector<float> together(static_cast<std::size_t>(out * room));
      std::vector<float> apart(together.size());
      std::int64_t emitted = 0;
      if (action == 3) {
        std::int64_t emitted_apart = 0;
        ASSERT_EQ(crowd.flush(twin.stream, kernels::planar(together.data(), out, room), emitted), Status::kOk);
        ASSERT_EQ(twin.alone.flush(twin.alone_stream, kernels::planar(apart.data(), out, room), emitted_apart),
                  Status::kOk);
        ASSERT_EQ(emitted, emitted_apart);
      } else {
        const ConstFrameView view = kernels::interleaved<const float>(input.data(), in, frames);
        StreamChunk one{twin.stream, view, kernels::planar(together.data(), out, room), 0, Status::kOk};
        StreamChunk same{twin.alone_stream, view, kernels::planar(apart.data(), out, room), 0, Status::kOk};
        ASSERT_EQ(crowd.process({&one, 1}), Status::kOk);
        ASSERT_EQ(twin.alone.process({&same, 1}), Status::kOk);
        ASSERT_EQ(one.frames_emitted, same.frames_emitted);
      }
      ASSERT_EQ(std::memcmp(together.data(), apart.data(), apart.size() * sizeof(float)), 0)
          << "seed " << seed << " step " << i;
    }
  }
}

}  // namespace
}  // namespace halotap::pipeline
