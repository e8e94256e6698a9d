// What happens above a device that stops computing: passes on the host, which end when a test says so.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "halotap/io/endpoint.hpp"
#include "halotap/io/session.hpp"
#include "halotap/pipeline/calibration.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "pipeline/host_card.hpp"
#include "pipeline/test_model.hpp"

namespace halotap::pipeline {
namespace {

TEST(CardOfAPipeline, IsAskedAsItsSpecSays) {
  const Model model = test::lookahead_model(1);
  const auto asked = [&](const CudaSpec& cuda) {
    const Pipeline pipeline(model, {.backend = Backend::kCuda, .cuda = cuda});
    return test::card_spec;
  };
  const kernels::ExecutorSpec kept = asked({CudaInvocation::kResident, Wait::kYield, 3});
  EXPECT_EQ(kept.cuda_invocation, CudaInvocation::kResident);
  EXPECT_EQ(kept.resident_clusters, 3);
  EXPECT_NE(kept.pause, nullptr);
  const kernels::ExecutorSpec layers = asked({CudaInvocation::kLayers, Wait::kSpin, 1});
  EXPECT_EQ(layers.cuda_invocation, CudaInvocation::kLayers);
  EXPECT_EQ(layers.pause, nullptr);
  EXPECT_NE(asked({.wait = Wait::kBlock}).pause, kept.pause);
  EXPECT_THROW(asked({.resident_clusters = 0}), ConfigError);
  EXPECT_THROW(asked({.resident_clusters = kMaxResidentClusters + 1}), ConfigError);
}

struct DeviceFailure : testing::Test {
  DeviceFailure() {
    engine.prepare(model,
                   {.backend = Backend::kCuda, .max_streams = 2, .max_chunk_frames = 10, .fallback = Fallback::kNone});
    for (int s = 0; s < 2; ++s) {
      EXPECT_EQ(engine.open(chunks[s].stream), Status::kOk);
      chunks[s].input = kernels::planar<const float>(input.data(), 3, 10);
      chunks[s].output = kernels::planar(output.data(), 2, 10);
    }
  }

  Model model = test::lookahead_model(1);
  Engine engine;
  std::vector<float> input = std::vector<float>(30, 0.5f);
  std::vector<float> output = std::vector<float>(20);
  StreamChunk chunks[2];
};

TEST_F(DeviceFailure, IsAStatusOfEveryEntryAndAdvancesNoStream) {
  ASSERT_EQ(engine.backend(), Backend::kCuda);
  EXPECT_EQ(engine.process(chunks), Status::kOk);
  EXPECT_EQ(engine.failure(), "");
  const EngineCounters before = engine.counters();
  test::card->fail_after(0);
  EXPECT_EQ(engine.process(chunks), Status::kDeviceFailed);
  for (const StreamChunk& chunk : chunks) {
    EXPECT_EQ(chunk.status, Status::kDeviceFailed);
    EXPECT_EQ(chunk.frames_emitted, 0);
  }
  EXPECT_EQ(engine.failure(), "host failed: the test ended it");
  std::int64_t flushed = -1;
  EXPECT_EQ(engine.flush(chunks[0].stream, chunks[0].output, flushed), Status::kDeviceFailed);
  EXPECT_EQ(flushed, 0);
  const EngineCounters after = engine.counters();
  EXPECT_EQ(after.frames_in, before.frames_in);
  EXPECT_EQ(after.frames_out, before.frames_out);
  EXPECT_EQ(after.frames_in_flight, before.frames_in_flight);
  EXPECT_EQ(after.calls_refused, before.calls_refused + 3);
}

TEST_F(DeviceFailure, IsOverWithTheNextPrepare) {
  test::card->fail_after(0);
  EXPECT_EQ(engine.process(chunks), Status::kDeviceFailed);
  engine.prepare(model,
                 {.backend = Backend::kCuda, .max_streams = 2, .max_chunk_frames = 10, .fallback = Fallback::kNone});
  for (StreamChunk& chunk : chunks) EXPECT_EQ(engine.open(chunk.stream), Status::kOk);
  EXPECT_EQ(engine.process(chunks), Status::kOk);
}

struct DeviceFailureWithAFallback : DeviceFailure {
  DeviceFailureWithAFallback() {
    engine.prepare(model, {.backend = Backend::kCuda, .max_streams = 2, .max_chunk_frames = 10});
    for (StreamChunk& chunk : chunks) EXPECT_EQ(engine.open(chunk.stream), Status::kOk);
  }
};

TEST_F(DeviceFailureWithAFallback, IsNoticedInTheCountersAloneAndTheCallGoesOn) {
  EXPECT_EQ(engine.process(chunks), Status::kOk);
  EXPECT_EQ(engine.failover(), nullptr);
  EXPECT_EQ(engine.device(), "host");
  EXPECT_EQ(engine.counters().failovers, 0U);
  const std::size_t state_bytes = engine.state_bytes();
  test::card->fail_after(0);
  EXPECT_EQ(engine.process(chunks), Status::kOk);
  for (const StreamChunk& chunk : chunks) {
    EXPECT_EQ(chunk.status, Status::kOk);
    EXPECT_EQ(chunk.frames_emitted, 10);
  }
  EXPECT_EQ(engine.backend(), Backend::kCpu);
  EXPECT_EQ(engine.device().substr(0, 5), "cpu (");
  EXPECT_EQ(engine.failure(), "");
  EXPECT_EQ(engine.state_bytes(), state_bytes);
  ASSERT_NE(engine.failover(), nullptr);
  EXPECT_EQ(engine.failover()->streams, 2);
  const EngineCounters counters = engine.counters();
  EXPECT_EQ(counters.failovers, 1U);
  EXPECT_EQ(counters.calls_refused, 0U);
  EXPECT_EQ(counters.frames_in, 40U);
  EXPECT_EQ(counters.frames_in, counters.frames_out + counters.frames_in_flight);

  std::int64_t flushed = 0;
  EXPECT_EQ(engine.flush(chunks[0].stream, chunks[0].output, flushed), Status::kOk);
  EXPECT_EQ(flushed, 3);
  EXPECT_EQ(engine.close(chunks[0].stream), Status::kOk);
  EXPECT_EQ(engine.open(chunks[0].stream), Status::kOk);
  EXPECT_EQ(engine.reset(chunks[1].stream), Status::kOk);
  EXPECT_EQ(engine.process(chunks), Status::kOk);
  EXPECT_EQ(engine.counters().failovers, 1U);

  engine.prepare(model, {.backend = Backend::kCuda});
  EXPECT_EQ(engine.failover(), nullptr);
  EXPECT_EQ(engine.device(), "host");
}

TEST_F(DeviceFailureWithAFallback, InAFlushIsNoticedThere) {
  EXPECT_EQ(engine.process(chunks), Status::kOk);
  test::card->fail_after(0);
  std::int64_t flushed = 0;
  EXPECT_EQ(engine.flush(chunks[1].stream, chunks[1].output, flushed), Status::kOk);
  EXPECT_EQ(flushed, 3);
  EXPECT_EQ(engine.counters().failovers, 1U);
}

TEST(DeviceFailureOfACalibration, EndsItWithADeviceError) {
  Pipeline pipeline(test::lookahead_model(1),
                    {.backend = Backend::kCuda, .chunks = {.max_frames = 10}, .fallback = Fallback::kNone});
  test::card->fail_after(0);
  try {
    calibrate(pipeline, std::chrono::hours(1));
    FAIL() << "it went on";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("the test ended it"), std::string::npos) << error.what();
  }
}

// The message of a session whose device ends after so many passes.
std::string end_of_session(const std::string& source_address, std::int64_t passes) {
  const auto source = io::open_source(source_address, {});
  Pipeline pipeline(test::lookahead_model(1),
                    {.backend = Backend::kCuda, .chunks = {.max_frames = 16}, .fallback = Fallback::kNone});
  test::card->fail_after(passes);
  try {
    io::run_session(*source, pipeline, {}, {});
    return "";
  } catch (const DeviceError& error) {
    return error.what();
  }
}

TEST(DeviceFailureOfASession, EndsItWithADeviceError) {
  const std::string address = "synth://noise?rate=1000&channels=3&frames=100";
  EXPECT_EQ(end_of_session(address, 1000), "");
  for (const std::int64_t passes : {0, 3, 6, 7}) {  // 6 full chunks, one of 4 frames, then the flush
    EXPECT_EQ(end_of_session(address, passes), "host failed: the test ended it") << passes;
  }
}

TEST(DeviceFailureOfASession, WithAFallbackIsOneNoteAndInTheReport) {
  const auto source = io::open_source("synth://noise?rate=1000&channels=3&frames=100", {});
  Pipeline pipeline(test::lookahead_model(1), {.backend = Backend::kCuda, .chunks = {.max_frames = 16}});
  test::card->fail_after(3);
  std::vector<std::string> notes;
  io::PublishedTelemetry telemetry;
  io::SessionSpec spec;
  spec.telemetry = &telemetry;
  spec.on_note = [&notes](const std::string& note) { notes.push_back(note); };
  const io::SessionReport report = io::run_session(*source, pipeline, {}, spec);
  EXPECT_EQ(report.frames_in, 100);
  EXPECT_EQ(report.frames_out, 100);
  ASSERT_TRUE(report.failover);
  EXPECT_EQ(report.failover->at_frame, 32) << "the device has failed as soon as its last pass is over";
  EXPECT_EQ(report.failover->how.reason, "the test ended it");
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes[0].find(describe(*pipeline.engine().failover()) + "; from frame 32 on, "), 0U) << notes[0];
  EXPECT_TRUE(notes[0].ends_with(" after the start")) << notes[0];
  EXPECT_EQ(telemetry.load().failovers, 1);
}

}  // namespace
}  // namespace halotap::pipeline
