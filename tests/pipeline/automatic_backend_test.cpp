// What kAuto takes where there is a card.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <string>

#include "backend_contest.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "pipeline/host_card.hpp"
#include "pipeline/test_model.hpp"
#include "scratch_folder.hpp"

namespace halotap::pipeline {
namespace {

using std::chrono::microseconds;

// Under 100 multiply-accumulates a frame: too few in short chunks, enough in this one.
constexpr std::int64_t kChunk = 4096;

struct AutomaticBackend : testing::Test {
  AutomaticBackend() { setenv("XDG_CACHE_HOME", folder.path().c_str(), 1); }
  ~AutomaticBackend() override { unsetenv("XDG_CACHE_HOME"); }

  // Has figures found already, as if an earlier process had timed this.
  void remember(const Model& model, const Contest& contest, microseconds cpu, microseconds cuda) {
    const std::string on_cpu = kernels::make_cpu_executor(model.stack, {})->description();
    const std::string key = contest_key(*model.stack, on_cpu, "host", contest);
    store_figures(figures_file(key).value(), key, {cpu, cuda, 100});
  }

  Engine prepared(const Model& model, const EngineSpec& spec) {
    Engine engine;
    engine.prepare(model, spec);
    return engine;
  }

  test::ScratchFolder folder;
};

TEST_F(AutomaticBackend, IsTheOneWhoseRareLongCallsAreShorter) {
  const Model model = test::lookahead_model(101);
  remember(model, {1, kChunk}, microseconds(200), microseconds(100));
  remember(model, {2, kChunk}, microseconds(200), microseconds(300));
  const Engine alone = prepared(model, {.max_chunk_frames = kChunk});
  EXPECT_EQ(alone.backend(), Backend::kCuda);
  EXPECT_EQ(alone.choice().reason,
            "p99.9 of 4096 frames of 1 stream: cpu 200 us, cuda 100 us, timed earlier over 100 calls");
  ASSERT_TRUE(alone.choice().figures);
  EXPECT_EQ(alone.choice().figures->cuda_p999, microseconds(100));
  const Engine both = prepared(model, {.max_streams = 2, .max_chunk_frames = kChunk});
  EXPECT_EQ(both.backend(), Backend::kCpu);
  EXPECT_EQ(both.choice().reason,
            "p99.9 of 4096 frames of 2 streams: cpu 200 us, cuda 300 us, timed earlier over 100 calls");
}

TEST_F(AutomaticBackend, DoesNotDependOnHowARecordingIsCut) {
  const Model model = test::lookahead_model(102);
  remember(model, {1, kChunk}, microseconds(200), microseconds(100));
  for (const std::int64_t chunk : {1, 64, 4096, 100000}) {
    remember(model, {1, chunk}, microseconds(1), microseconds(2));
    const Engine engine = prepared(model, {.max_chunk_frames = chunk, .auto_chunk_frames = kChunk});
    EXPECT_EQ(engine.backend(), Backend::kCuda) << chunk;
    const Pipeline pipeline(model, {.chunks = {.max_frames = chunk}, .auto_chunk_frames = kChunk});
    EXPECT_EQ(pipeline.engine().backend(), Backend::kCuda) << chunk;
  }
}

// Whichever is faster. What is timed is made for the chunk that is asked about.
TEST_F(AutomaticBackend, IsTimedWhereNobodyKnowsAndThenRemembered) {
  for (const std::int64_t chunk : {std::int64_t{16}, kChunk}) {
    const Model model = test::lookahead_model(static_cast<std::uint64_t>(chunk));
    const std::ptrdiff_t files = std::distance(std::filesystem::recursive_directory_iterator(folder.path()), {});
    test::card_chunks.clear();
    const Engine engine = prepared(model, {.max_chunk_frames = chunk, .auto_chunk_frames = kChunk});
    // The one that is timed, between others: where the card wins, the engine's own follows.
    EXPECT_NE(std::find(test::card_chunks.begin(), test::card_chunks.end(), kChunk), test::card_chunks.end());
    ASSERT_TRUE(engine.choice().figures);
    EXPECT_EQ(engine.backend(),
              engine.choice().figures->cuda_p999 < engine.choice().figures->cpu_p999 ? Backend::kCuda : Backend::kCpu);
    EXPECT_FALSE(engine.choice().figures->is_remembered);
    const bool is_kept = std::distance(std::filesystem::recursive_directory_iterator(folder.path()), {}) > files;
    EXPECT_EQ(is_kept, !engine.choice().figures->is_disturbed);
    EXPECT_EQ(engine.choice().reason.ends_with(" on a busy machine, so not for the next time"),
              engine.choice().figures->is_disturbed);
    const Engine again = prepared(model, {.max_chunk_frames = chunk, .auto_chunk_frames = kChunk});
    EXPECT_TRUE(again.choice().figures.value().is_remembered);
    EXPECT_EQ(again.choice().figures->cpu_p999, engine.choice().figures->cpu_p999);
    EXPECT_EQ(again.backend(), engine.backend());
  }
}

// A stream must not see what was timed.
TEST_F(AutomaticBackend, LeavesNoTraceOfTheTiming) {
  const Model model = test::lookahead_model(103);
  Engine timed = prepared(model, {.max_chunk_frames = kChunk});
  ASSERT_FALSE(timed.choice().figures.value().is_remembered);
  Engine plain = prepared(model, {.backend = timed.backend(), .max_chunk_frames = kChunk});
  std::vector<float> input(3 * 50, 0.25F);
  std::vector<float> outputs[2];
  Engine* engines[] = {&timed, &plain};
  for (int which = 0; which < 2; ++which) {
    outputs[which].resize(2 * 50);
    StreamChunk chunk;
    ASSERT_EQ(engines[which]->open(chunk.stream), Status::kOk);
    chunk.input = kernels::planar<const float>(input.data(), 3, 50);
    chunk.output = kernels::planar(outputs[which].data(), std::int64_t{2}, std::int64_t{50});
    ASSERT_EQ(engines[which]->process({&chunk, 1}), Status::kOk);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_F(AutomaticBackend, TimesNothingWhereThereIsNoChoice) {
  const Model model = test::lookahead_model(104);
  const auto reason = [&](const EngineSpec& spec, Backend backend) {
    const Engine engine = prepared(model, spec);
    EXPECT_EQ(engine.backend(), backend);
    EXPECT_FALSE(engine.choice().figures);
    EXPECT_FALSE(engine.choice().is_without_card);
    return engine.choice().reason;
  };
  EXPECT_EQ(reason({.backend = Backend::kCpu, .max_chunk_frames = kChunk}, Backend::kCpu), "asked for");
  EXPECT_EQ(reason({.backend = Backend::kCuda, .max_chunk_frames = kChunk}, Backend::kCuda), "asked for");
  EXPECT_EQ(reason({.max_chunk_frames = kChunk, .worker_threads = 1}, Backend::kCpu),
            "only the cpu has worker threads");
  EXPECT_EQ(reason({.precision = Precision::kBf16, .max_chunk_frames = kChunk}, Backend::kCuda), "the cpu has no bf16");
  EXPECT_EQ(reason({.max_chunk_frames = 16}, Backend::kCpu),
            "fewer than 100000 multiply-accumulates a call are no work for a card");
  EXPECT_EQ(folder.entries(), 0U);
  EXPECT_THROW(prepared(model, {.auto_chunk_frames = -1}), ConfigError);
  EXPECT_THROW(prepared(model, {.auto_chunk_frames = (1 << 20) + 1}), ConfigError);
  setenv("HALOTAP_BACKEND_CACHE", "maybe", 1);
  EXPECT_THROW(prepared(model, {.max_chunk_frames = kChunk}), ConfigError);
  unsetenv("HALOTAP_BACKEND_CACHE");
}

TEST_F(AutomaticBackend, TellsThatACardIsThereButTakesNotTheModel) {
  test::card_refusal = "layer 0: too long for the card";
  const Engine engine = prepared(test::lookahead_model(105), {.max_chunk_frames = kChunk});
  try {
    prepared(test::lookahead_model(105), {.precision = Precision::kTf32, .max_chunk_frames = kChunk});
    ADD_FAILURE() << "the CPU has no tf32";
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              "precision: expected fp32 where the card is of no use, got tf32: layer 0: too long for the card");
  }
  test::card_refusal = nullptr;
  EXPECT_EQ(engine.backend(), Backend::kCpu);
  EXPECT_TRUE(engine.choice().is_without_card);
  EXPECT_EQ(engine.choice().reason, "layer 0: too long for the card");
}

}  // namespace
}  // namespace halotap::pipeline
