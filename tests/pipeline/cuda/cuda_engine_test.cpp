// The engine on a card. What every executor must keep is in tests/kernels/executor_test.cpp.
#include <gtest/gtest.h>

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "apps/array_file.hpp"
#include "compare.hpp"
#include "halotap/pipeline/engine.hpp"
#include "pipeline/test_model.hpp"

namespace halotap::pipeline {
namespace {

using test::draw;
using test::Random;

// Why no engine can be made on this machine's card; empty when one can.
std::string missing() {
  try {
    Engine engine;
    engine.prepare(test::lookahead_model(1), {.backend = Backend::kCuda, .fallback = Fallback::kNone});
    return "";
  } catch (const DeviceError& why) {
    return why.what();
  }
}

class CudaEngine : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string kMissing = missing();
    if (!kMissing.empty()) GTEST_SKIP() << kMissing;
  }
};

std::filesystem::path golden(const std::string& name, const std::string& file) {
  return std::filesystem::path(HALOTAP_TEST_DATA) / "golden" / name / file;
}

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(golden("", ""))) {
    names.push_back(folder.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A case's recordings [streams, channels, frames], all its streams in every call, in chunks of these lengths.
std::vector<float> run(const Model& model, const std::vector<float>& input, std::int64_t streams, std::int64_t frames,
                       const std::vector<std::int64_t>& lengths, Precision precision, EngineSpec spec = {}) {
  spec.backend = Backend::kCuda;
  spec.precision = precision;
  spec.max_streams = streams;
  spec.max_chunk_frames = *std::max_element(lengths.begin(), lengths.end());
  spec.fallback = Fallback::kNone;
  Engine engine;
  engine.prepare(model, spec);
  const std::int64_t inputs = engine.in_channels();
  const std::int64_t outputs = engine.out_channels();
  std::vector<float> result(static_cast<std::size_t>(streams * outputs * frames), -7.0f);
  std::vector<StreamChunk> chunks(static_cast<std::size_t>(streams));
  std::vector<std::int64_t> given(chunks.size());
  for (StreamChunk& chunk : chunks) EXPECT_EQ(engine.open(chunk.stream), Status::kOk);
  const auto rest = [&](std::size_t s) {
    const FrameView all =
        kernels::planar(result.data() + static_cast<std::int64_t>(s) * outputs * frames, outputs, frames);
    return all.slice(given[s], frames - given[s]);
  };
  std::int64_t taken = 0;
  for (const std::int64_t length : lengths) {
    for (std::size_t s = 0; s < chunks.size(); ++s) {
      const float* recording = input.data() + static_cast<std::int64_t>(s) * inputs * frames;
      chunks[s].input = kernels::planar(recording, inputs, frames).slice(taken, length);
      chunks[s].output = rest(s);
    }
    EXPECT_EQ(engine.process(chunks), Status::kOk);
    for (std::size_t s = 0; s < chunks.size(); ++s) given[s] += chunks[s].frames_emitted;
    taken += length;
  }
  EXPECT_EQ(taken, frames);
  for (std::size_t s = 0; s < chunks.size(); ++s) {
    std::int64_t flushed = 0;
    EXPECT_EQ(engine.flush(chunks[s].stream, rest(s), flushed), Status::kOk);
    EXPECT_EQ(given[s] + flushed, frames);
  }
  return result;
}

std::vector<std::int64_t> chunks_of(std::int64_t frames, std::int64_t length) {
  std::vector<std::int64_t> lengths;
  for (; frames > 0; frames -= lengths.back()) lengths.push_back(std::min(frames, length));
  return lengths;
}

std::vector<std::int64_t> random_chunks(std::int64_t frames, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::int64_t> lengths;
  for (; frames > 0; frames -= lengths.back()) lengths.push_back(std::min(frames, draw(random, 1, 64)));
  return lengths;
}

struct Distance {
  double rel_l2;
  double max_abs;
};

Distance distance(const std::vector<float>& got, const std::vector<double>& expected) {
  double difference = 0;
  double norm = 0;
  double most = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = static_cast<double>(got[i]) - expected[i];
    difference += error * error;
    norm += expected[i] * expected[i];
    most = std::max(most, std::abs(error));
  }
  return {difference == 0 ? 0 : std::sqrt(difference / norm), most};
}

class CudaGolden : public CudaEngine, public testing::WithParamInterface<std::string> {};

TEST_P(CudaGolden, CaseVerifiesHoweverItIsCut) {
  const std::string& name = GetParam();
  const Model model = load_model(golden(name, "model.yaml"));
  const apps::ArrayFile x = apps::read_array(golden(name, "x.npy"));
  const apps::ArrayFile y = apps::read_array(golden(name, "y.npy"));
  const YAML::Node facts = YAML::LoadFile(golden(name, "case.json").string());
  const double tolerance = 4 * facts["torch_fp32_rel_l2"].as<double>() + 1e-7;
  const std::int64_t streams = facts["streams"].as<std::int64_t>();
  const std::int64_t frames = facts["frames"].as<std::int64_t>();
  const std::vector<float> input(x.values.begin(), x.values.end());

  const std::vector<float> offline = run(model, input, streams, frames, {frames}, Precision::kFp32);
  ASSERT_EQ(offline.size(), y.values.size());
  const Distance far = distance(offline, y.values);
  EXPECT_TRUE(far.rel_l2 <= tolerance || far.max_abs <= 1e-30) << far.rel_l2 << " of " << tolerance;
  std::vector<std::vector<std::int64_t>> cuts{chunks_of(frames, 1), chunks_of(frames, 7), chunks_of(frames, 64)};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) cuts.push_back(random_chunks(frames, seed));
  for (const auto& lengths : cuts) {
    const std::vector<float> streamed = run(model, input, streams, frames, lengths, Precision::kFp32);
    EXPECT_EQ(std::memcmp(streamed.data(), offline.data(), offline.size() * sizeof(float)), 0)
        << "first chunk " << lengths.front();
  }
}

TEST_P(CudaGolden, CaseIsNearInEveryPrecision) {
  const std::string& name = GetParam();
  const Model model = load_model(golden(name, "model.yaml"));
  const apps::ArrayFile x = apps::read_array(golden(name, "x.npy"));
  const apps::ArrayFile y = apps::read_array(golden(name, "y.npy"));
  const std::int64_t streams = x.shape.at(0);
  const std::int64_t frames = x.shape.at(2);
  const std::vector<float> input(x.values.begin(), x.values.end());
  // Half a unit of the last bit kept of each operand, for a stack of a few layers.
  const std::pair<Precision, double> bounds[] = {
      {Precision::kTf32, 0x1p-9}, {Precision::kFp16, 0x1p-9}, {Precision::kBf16, 0x1p-6}};
  for (const auto& [precision, bound] : bounds) {
    const Distance far = distance(run(model, input, streams, frames, chunks_of(frames, 64), precision), y.values);
    EXPECT_TRUE(far.rel_l2 <= bound || far.max_abs <= 1e-30) << to_string(precision) << " " << far.rel_l2;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, CudaGolden, testing::ValuesIn(case_names()),
                         [](const testing::TestParamInfo<std::string>& golden_case) { return golden_case.param; });

TEST_F(CudaEngine, GivesTheSameBitsForEveryInvocationAndWait) {
  const Model model = test::lookahead_model(3);
  const std::int64_t frames = 100;
  std::vector<float> input(static_cast<std::size_t>(2 * model.stack->in_channels() * frames));
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = std::sin(0.1f * static_cast<float>(i));
  const auto run_so = [&](const EngineSpec& spec) {
    return run(model, input, 2, frames, chunks_of(frames, 9), Precision::kFp32, spec);
  };
  EngineSpec launched;
  launched.cuda.invocation = CudaInvocation::kLaunch;
  const std::vector<float> expected = run_so(launched);
  for (const Wait wait : {Wait::kSpin, Wait::kYield, Wait::kBlock}) {
    EngineSpec spec = launched;
    spec.cuda.wait = wait;
    EXPECT_EQ(run_so(spec), expected);
    Engine engine;
    spec.backend = Backend::kCuda;
    engine.prepare(model, spec);
    // A card or a build without clusters of blocks launches a kernel a layer.
    if (engine.device().find("one kernel a stack") == std::string::npos) continue;
    spec.cuda.invocation = CudaInvocation::kResident;
    EXPECT_EQ(run_so(spec), expected);
  }
}

TEST_F(CudaEngine, IsWhatAutoTakesForManyStreamsOrAPrecisionThatTheCpuLacks) {
  const Model model = test::lookahead_model(1);
  const std::int64_t many = 10'000'000 / model.stack->macs_per_frame() + 1;
  for (const EngineSpec& spec :
       {EngineSpec{.max_streams = many, .max_chunk_frames = 1}, EngineSpec{.precision = Precision::kBf16}}) {
    Engine engine;
    engine.prepare(model, spec);
    EXPECT_TRUE(engine.device().starts_with("cuda (")) << engine.device();
    EXPECT_EQ(engine.failure(), "");
  }
}

TEST_F(CudaEngine, IsNotWhatAutoTakesForOneStreamWhereThereIsTheCpu) {
  const Model model = test::lookahead_model(1);
  bool has_cpu = true;
  Engine engine;
  try {
    engine.prepare(model, {.backend = Backend::kCpu});
  } catch (const DeviceError&) {
    has_cpu = false;
  }
  engine.prepare(model, {});
  EXPECT_TRUE(engine.device().starts_with(has_cpu ? "cpu (" : "cuda (")) << engine.device();
}

TEST_F(CudaEngine, IsTimedBesideTheCpuForAuto) {
  const Model model = test::lookahead_model(1);
  Engine cpu;
  try {
    cpu.prepare(model, {.backend = Backend::kCpu});
  } catch (const DeviceError& why) {
    GTEST_SKIP() << why.what();
  }
  Engine engine;
  engine.prepare(model, {.max_streams = 64, .max_chunk_frames = 64});
  const BackendChoice& choice = engine.choice();
  ASSERT_TRUE(choice.figures) << choice.reason;
  EXPECT_GT(choice.figures->cpu_p999.count(), 0);
  EXPECT_GT(choice.figures->cuda_p999.count(), 0);
  EXPECT_EQ(engine.backend(), choice.figures->cuda_p999 < choice.figures->cpu_p999 ? Backend::kCuda : Backend::kCpu);
  Engine again;
  again.prepare(model, {.max_streams = 64, .max_chunk_frames = 64});
  EXPECT_EQ(again.backend(), engine.backend());
  EXPECT_TRUE(again.choice().figures.value().is_remembered);
}

// One stream of the lookahead model in chunks of 10 frames, and its end.
std::vector<float> lookahead_run(Engine& engine, const EngineSpec& spec, const std::vector<float>& input) {
  const auto frames = std::ssize(input) / 3;
  engine.prepare(test::lookahead_model(1), spec);
  std::vector<float> result(static_cast<std::size_t>(2 * frames));
  const FrameView to = kernels::interleaved(result.data(), std::int64_t{2}, frames);
  StreamChunk chunk;
  EXPECT_EQ(engine.open(chunk.stream), Status::kOk);
  std::int64_t given = 0;
  for (std::int64_t taken = 0; taken < frames; taken += 10) {
    chunk.input = kernels::interleaved(input.data(), std::int64_t{3}, frames).slice(taken, 10);
    chunk.output = to.slice(given, frames - given);
    EXPECT_EQ(engine.process({&chunk, 1}), Status::kOk);
    given += chunk.frames_emitted;
  }
  std::int64_t flushed = 0;
  EXPECT_EQ(engine.flush(chunk.stream, to.slice(given, frames - given), flushed), Status::kOk);
  EXPECT_EQ(given + flushed, frames);
  return result;
}

TEST_F(CudaEngine, IsFollowedByTheCpuWhenTheCardFailsOrHangs) {
  Random random(3);
  const std::vector<float> input = test::draw_signal(random, 3 * 200);
  Engine cpu;
  std::vector<float> expected;
  try {
    expected = lookahead_run(cpu, {.backend = Backend::kCpu}, input);
  } catch (const DeviceError& why) {
    GTEST_SKIP() << why.what();
  }
  for (const char* failure : {"error:7", "hang:12"}) {
    setenv("HALOTAP_INJECT_DEVICE_FAILURE", failure, 1);
    Engine engine;
    const std::vector<float> result = lookahead_run(engine, {.backend = Backend::kCuda}, input);
    unsetenv("HALOTAP_INJECT_DEVICE_FAILURE");
    ASSERT_NE(engine.failover(), nullptr) << failure;
    EXPECT_EQ(engine.failover()->streams, 1);
    EXPECT_EQ(engine.device(), cpu.device());
    EXPECT_LT(test::relative_l2(result, std::vector<double>(expected.begin(), expected.end())), 1e-6) << failure;
    EXPECT_EQ(std::memcmp(&result[300], &expected[300], 100 * sizeof(float)), 0) << "the CPU's own bits";
  }
}

TEST_F(CudaEngine, RefusesWorkerThreads) {
  Engine engine;
  EXPECT_THROW(engine.prepare(test::lookahead_model(1), {.backend = Backend::kCuda, .worker_threads = 1}), ConfigError);
}

TEST_F(CudaEngine, SaysThatAStateDoesNotFit) {
  // 2^20 streams of 1000 channels with a halo of 2^16 frames: 256 TB.
  Random random(1);
  kernels::LayerSpec spec;
  spec.name = "conv";
  spec.in_channels = 1000;
  spec.out_channels = 1;
  spec.kernel_size = 2;
  spec.dilation = 1 << 16;
  Model model;
  model.name = "wide";
  model.frame_rate_hz = 1;
  model.stack = std::make_shared<const kernels::Stack>(std::vector{test::draw_layer(random, spec)});
  Engine engine;
  EXPECT_THROW(engine.prepare(model, {.backend = Backend::kCuda, .max_streams = 1 << 20}), ConfigError);
  // And the card is as usable as before.
  engine.prepare(test::lookahead_model(1), {.backend = Backend::kCuda});
}

}  // namespace
}  // namespace halotap::pipeline
