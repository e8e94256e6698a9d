// What happens above a device that stops computing. The factory of CUDA executors is this program's own: it makes one
// over passes on the host, which end when a test says so.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "cuda/host_pass_device.hpp"
#include "cuda/pass_executor.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/io/session.hpp"
#include "halotap/pipeline/calibration.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "pipeline/test_model.hpp"

namespace {
halotap::kernels::cuda::HostPassDevice* device = nullptr;  // of the executor made last
}

namespace halotap::kernels {

std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack> stack, const ExecutorSpec& spec) {
  const cuda::PassShape shape = cuda::make_pass_shape(*stack, spec);
  auto made = std::make_unique<cuda::HostPassDevice>(stack, shape);
  device = made.get();
  return cuda::make_pass_executor(shape, std::move(made));
}

}  // namespace halotap::kernels

namespace halotap::pipeline {
namespace {

struct DeviceFailure : testing::Test {
  DeviceFailure() {
    engine.prepare(model, {.backend = Backend::kCuda, .max_streams = 2, .max_chunk_frames = 10});
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
  device->fail_after(0);
  EXPECT_EQ(engine.process(chunks), Status::kDeviceFailed);
  for (const StreamChunk& chunk : chunks) {
    EXPECT_EQ(chunk.status, Status::kDeviceFailed);
    EXPECT_EQ(chunk.frames_emitted, 0);
  }
  EXPECT_EQ(engine.failure(), "the test ended it");
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
  device->fail_after(0);
  EXPECT_EQ(engine.process(chunks), Status::kDeviceFailed);
  engine.prepare(model, {.backend = Backend::kCuda, .max_streams = 2, .max_chunk_frames = 10});
  for (StreamChunk& chunk : chunks) EXPECT_EQ(engine.open(chunk.stream), Status::kOk);
  EXPECT_EQ(engine.process(chunks), Status::kOk);
}

TEST(DeviceFailureOfACalibration, EndsItWithADeviceError) {
  Pipeline pipeline(test::lookahead_model(1), {.backend = Backend::kCuda, .chunks = {.max_frames = 10}});
  device->fail_after(0);
  try {
    calibrate(pipeline, std::chrono::hours(1));
    FAIL() << "it went on";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("the test ended it"), std::string::npos) << error.what();
  }
}

// The message of a session that ran for `frames` frames, with a device that ends after so many passes.
std::string end_of_session(const std::string& source_address, std::int64_t passes) {
  const auto source = io::open_source(source_address, {});
  Pipeline pipeline(test::lookahead_model(1), {.backend = Backend::kCuda, .chunks = {.max_frames = 16}});
  device->fail_after(passes);
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
    EXPECT_EQ(end_of_session(address, passes), "the device stopped computing: the test ended it") << passes;
  }
}

}  // namespace
}  // namespace halotap::pipeline
