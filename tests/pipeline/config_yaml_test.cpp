#include <gtest/gtest.h>

#include "halotap/pipeline/config.hpp"
#include "pipeline/refusal.hpp"

namespace halotap::pipeline {
namespace {

using test::refusal;
using test::ScratchFolder;

constexpr const char* kWhole =
    "format: halotap-pipeline/1\n"
    "source: {uri: \"wav://in.wav?resample=true\"}\n"
    "model: {file: ../models/m.yaml, backend: cpu, precision: bf16, fallback: none, "
    "cuda: {invocation: resident, wait: block, resident_clusters: 3}}\n"
    "chunk_frames: 16\n"
    "ring: {capacity_ms: 20.5, on_full: drop_newest}\n"
    "latency: {budget_ms: 20, on_miss: hold_last, miss_after: 2, recover_after: 5,\n"
    "          budgets_ms: {source: 12, engine: 5.5, stages: 1, sinks: 2}}\n"
    "sinks: [{uri: \"jsonl://-\"}, {uri: out.npy}]\n"
    "record: {file: out/in.wav, output: out/out.wav}\n"
    "input: {on_gap: fill, on_invalid: hold}\n"
    "realtime: {priority: 80, cpus: [1, 3], lock_memory: true}\n";

constexpr const char* kShort =
    "format: halotap-pipeline/1\n"
    "source: {uri: in.wav}\n"
    "model: {file: m.yaml}\n"
    "sinks: [{uri: out.npy}]\n";

std::string refused(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const ScratchFolder folder;
  const auto file = folder.write("p.yaml", text);
  return refusal<ConfigError>(folder, [&] { load_pipeline_config(file, overrides); });
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(PipelineConfig, ReadsEveryKey) {
  const ScratchFolder folder;
  const PipelineConfig config = load_pipeline_config(folder.write("p.yaml", kWhole));
  EXPECT_EQ(config.source_uri, "wav://in.wav?resample=true");
  EXPECT_EQ(config.model_file, folder.path() / "../models/m.yaml");
  EXPECT_EQ(config.backend, Backend::kCpu);
  EXPECT_EQ(config.precision, Precision::kBf16);
  EXPECT_EQ(config.fallback, Fallback::kNone);
  EXPECT_EQ(config.cuda, (CudaSpec{CudaInvocation::kResident, Wait::kBlock, 3}));
  EXPECT_EQ(config.chunk_frames, 16);
  EXPECT_EQ(config.ring_capacity_ms, 20.5);
  EXPECT_EQ(config.on_full, OnFull::kDropNewest);
  EXPECT_EQ(config.latency.budget_ms, 20);
  EXPECT_EQ(config.latency.on_miss, OnMiss::kHoldLast);
  EXPECT_EQ(config.latency.miss_after, 2);
  EXPECT_EQ(config.latency.recover_after, 5);
  EXPECT_EQ(config.latency.budgets.source_ms, 12);
  EXPECT_EQ(config.latency.budgets.engine_ms, 5.5);
  EXPECT_EQ(config.latency.budgets.stages_ms, 1);
  EXPECT_EQ(config.latency.budgets.sinks_ms, 2);
  EXPECT_EQ(config.sink_uris, (std::vector<std::string>{"jsonl://-", "out.npy"}));
  EXPECT_EQ(config.record_file, "out/in.wav");
  EXPECT_EQ(config.record_output_file, "out/out.wav");
  EXPECT_EQ(config.input.on_gap, OnGap::kFill);
  EXPECT_EQ(config.input.on_invalid, OnInvalid::kHold);
  EXPECT_EQ(config.realtime.priority, 80);
  EXPECT_EQ(config.realtime.cpus, (std::vector<int>{1, 3}));
  EXPECT_TRUE(config.realtime.lock_memory);
}

TEST(PipelineConfig, HasDefaults) {
  const ScratchFolder folder;
  const PipelineConfig config = load_pipeline_config(folder.write("p.yaml", kShort));
  EXPECT_EQ(config.backend, Backend::kAuto);
  EXPECT_EQ(config.fallback, Fallback::kCpu);
  EXPECT_EQ(config.cuda, EngineSpec{}.cuda);
  EXPECT_EQ(config.precision, Precision::kFp32);
  EXPECT_EQ(config.chunk_frames, 64);
  EXPECT_EQ(config.ring_capacity_ms, 500);
  EXPECT_FALSE(config.latency.budget_ms);
  EXPECT_EQ(config.latency.on_miss, OnMiss::kCount);
  EXPECT_EQ(config.latency.miss_after, 3);
  EXPECT_EQ(config.latency.recover_after, 8);
  EXPECT_FALSE(config.latency.budgets.source_ms || config.latency.budgets.engine_ms ||
               config.latency.budgets.stages_ms || config.latency.budgets.sinks_ms);
  EXPECT_EQ(config.record_file, "");
  EXPECT_EQ(config.record_output_file, "");
  EXPECT_EQ(config.input.on_gap, OnGap::kReset);
  EXPECT_EQ(config.input.on_invalid, OnInvalid::kPass);
  EXPECT_FALSE(config.realtime.asks());
}

TEST(PipelineConfig, KeepsTheInputOrTheOutputOfARun) {
  const ScratchFolder folder;
  const std::string file = folder.write("p.yaml", kShort);
  EXPECT_EQ(load_pipeline_config(file, {"record.output=o.wav"}).record_output_file, "o.wav");
  EXPECT_EQ(load_pipeline_config(file, {"record.output=o.wav"}).record_file, "");
  EXPECT_EQ(load_pipeline_config(file, {"record.file=i.wav"}).record_file, "i.wav");
  EXPECT_NE(refused(std::string(kShort) + "record: {}\n").find("record"), std::string::npos);
  EXPECT_NE(refused(std::string(kShort) + "record: {}\n").find("file"), std::string::npos);
}

TEST(PipelineConfig, LeavesAbsoluteModelPathsAlone) {
  const ScratchFolder folder;
  const auto file = folder.write("p.yaml", replaced(kShort, "m.yaml", "/models/m.yaml"));
  EXPECT_EQ(load_pipeline_config(file).model_file, "/models/m.yaml");
}

TEST(PipelineConfig, AppliesOverrides) {
  const ScratchFolder folder;
  const PipelineConfig config = load_pipeline_config(
      folder.write("p.yaml", kShort),
      {"model.backend=cuda", "chunk_frames=8", "ring.capacity_ms=7", "sinks.0.uri=csv://-", "source.uri=x.npy"});
  EXPECT_EQ(config.backend, Backend::kCuda);
  EXPECT_EQ(config.chunk_frames, 8);
  EXPECT_EQ(config.ring_capacity_ms, 7);
  EXPECT_EQ(config.sink_uris, std::vector<std::string>{"csv://-"});
  EXPECT_EQ(config.source_uri, "x.npy");
}

TEST(PipelineConfig, RefusesOverridesOfKeysThatTheFormatLacks) {
  EXPECT_EQ(refused(kShort, {"model.backnd=cpu"}),
            "p.yaml: override 'model.backnd=cpu': key 'model.backnd': expected one of file, backend, precision, "
            "fallback, cuda, got an unknown key");
  EXPECT_EQ(refused(kShort, {"sinks.1.uri=x.npy"}),
            "p.yaml: override 'sinks.1.uri=x.npy': key 'sinks.1': expected the index of one of 1 entries, got '1'");
}

TEST(PipelineConfig, RefusesOtherFormats) {
  EXPECT_EQ(refused(replaced(kShort, "halotap-pipeline/1", "halotap-model/1")),
            "p.yaml:1:9: key 'format': expected 'halotap-pipeline/1', got 'halotap-model/1'");
}

TEST(PipelineConfig, RefusesUnknownKeys) {
  EXPECT_EQ(
      refused(std::string(kShort) + "latencies: {budget_ms: 20}\n"),
      "p.yaml:5:1: key 'latencies': expected one of format, source, model, chunk_frames, ring, latency, stages, sinks, "
      "record, input, realtime, got an unknown key");
  EXPECT_EQ(refused(replaced(kShort, "uri: in.wav", "uri: in.wav, rate: 1")),
            "p.yaml:2:23: key 'source.rate': expected one of uri, got an unknown key");
  EXPECT_EQ(refused(replaced(kShort, "uri: out.npy", "uri: out.npy, url: x")),
            "p.yaml:4:24: key 'sinks.0.url': expected one of uri, got an unknown key");
  EXPECT_EQ(refused(replaced(kWhole, "on_full", "on_empty")),
            "p.yaml:5:27: key 'ring.on_empty': expected one of capacity_ms, on_full, got an unknown key");
}

TEST(PipelineConfig, ReadsEveryWayToAskACard) {
  const ScratchFolder folder;
  const auto file = folder.write("p.yaml", kShort);
  for (const CudaInvocation invocation :
       {CudaInvocation::kLayers, CudaInvocation::kLaunch, CudaInvocation::kResident}) {
    const std::string word(to_string(invocation));
    EXPECT_EQ(load_pipeline_config(file, {"model.cuda.invocation=" + word}).cuda.invocation, invocation);
    EXPECT_EQ(parse_cuda_invocation(word), invocation);
  }
  for (const Wait wait : {Wait::kSpin, Wait::kYield, Wait::kBlock}) {
    const std::string word(to_string(wait));
    EXPECT_EQ(load_pipeline_config(file, {"model.cuda.wait=" + word}).cuda.wait, wait);
    EXPECT_EQ(parse_wait(word), wait);
  }
  EXPECT_EQ(
      refused(kShort, {"model.cuda.invocation=graph"}),
      "p.yaml: override 'model.cuda.invocation=graph': key 'model.cuda.invocation': expected one of layers, launch "
      "or resident, got 'graph'");
  EXPECT_EQ(refused(kShort, {"model.cuda.wait=sleep"}),
            "p.yaml: override 'model.cuda.wait=sleep': key 'model.cuda.wait': expected one of spin, yield or "
            "block, got 'sleep'");
  EXPECT_EQ(refused(kShort, {"model.cuda.resident_clusters=0"}),
            "p.yaml: override 'model.cuda.resident_clusters=0': key 'model.cuda.resident_clusters': expected an "
            "integer from 1 to 1048576, got '0'");
  EXPECT_EQ(refused(kShort, {"model.cuda.clusters=1"}),
            "p.yaml: override 'model.cuda.clusters=1': key 'model.cuda.clusters': expected one of invocation, wait, "
            "resident_clusters, got an unknown key");
}

TEST(PipelineConfig, ReadsEveryLatencyPolicy) {
  const ScratchFolder folder;
  const auto file = folder.write("p.yaml", kShort);
  for (const OnMiss policy : {OnMiss::kCount, OnMiss::kSkipToLatest, OnMiss::kHoldLast, OnMiss::kStop}) {
    const PipelineConfig config =
        load_pipeline_config(file, {"latency.budget_ms=20", "latency.on_miss=" + std::string(to_string(policy))});
    EXPECT_EQ(config.latency.on_miss, policy);
    EXPECT_EQ(config.latency.budget_ms, 20);
  }
}

TEST(PipelineConfig, RefusesLatencyThatCannotBeMeant) {
  const std::string at = "p.yaml: override 'latency.";
  EXPECT_EQ(refused(kShort, {"latency.budget_ms=0"}),
            at + "budget_ms=0': key 'latency.budget_ms': expected a number above 0 and at most 3.6e+06, got '0'");
  EXPECT_EQ(refused(kShort, {"latency.budget_ms=.inf"}),
            at + "budget_ms=.inf': key 'latency.budget_ms': expected a number above 0 and at most 3.6e+06, got '.inf'");
  EXPECT_EQ(refused(kShort, {"latency.on_miss=stop"}),
            at + "on_miss=stop': key 'latency.on_miss': expected count where there is no budget_ms, got 'stop'");
  EXPECT_EQ(refused(kWhole, {"latency.on_miss=skip"}),
            at + "on_miss=skip': key 'latency.on_miss': expected one of count, skip_to_latest, hold_last or stop, got "
                 "'skip'");
  EXPECT_EQ(refused(kWhole, {"latency.miss_after=0"}),
            at + "miss_after=0': key 'latency.miss_after': expected an integer from 1 to 1000000, got '0'");
  EXPECT_EQ(refused(kWhole, {"latency.recover_after=1.5"}),
            at + "recover_after=1.5': key 'latency.recover_after': expected an integer from 1 to 1000000, got '1.5'");
  EXPECT_EQ(refused(kWhole, {"latency.budgets_ms.engine=21"}),
            at + "budgets_ms.engine=21': key 'latency.budgets_ms.engine': expected a number above 0 and at most 20, "
                 "got '21'");
  EXPECT_EQ(refused(kWhole, {"latency.budgets_ms.model=1"}),
            at + "budgets_ms.model=1': key 'latency.budgets_ms.model': expected one of source, engine, stages, sinks, "
                 "got an unknown key");
  EXPECT_EQ(refused(kWhole, {"latency.budget=1"}),
            at + "budget=1': key 'latency.budget': expected one of budget_ms, on_miss, miss_after, recover_after, "
                 "budgets_ms, got an unknown key");
}

TEST(PipelineConfig, RefusesMissingKeys) {
  EXPECT_EQ(refused(replaced(kShort, "source: {uri: in.wav}\n", "")),
            "p.yaml:1:1: key 'source': expected a value, got no such key");
  EXPECT_EQ(refused(replaced(kShort, "file: m.yaml", "backend: cpu")),
            "p.yaml:3:8: key 'model.file': expected a value, got no such key");
  EXPECT_EQ(refused(replaced(kShort, "[{uri: out.npy}]", "[]")),
            "p.yaml:4:8: key 'sinks': expected a list of 1 to 64, got 0");
}

TEST(PipelineConfig, RefusesValuesOutOfRange) {
  EXPECT_EQ(refused(replaced(kWhole, "chunk_frames: 16", "chunk_frames: 0")),
            "p.yaml:4:15: key 'chunk_frames': expected an integer from 1 to 1048576, got '0'");
  EXPECT_EQ(refused(replaced(kWhole, "20.5", "-1")),
            "p.yaml:5:21: key 'ring.capacity_ms': expected a number above 0 and at most 3.6e+06, got '-1'");
  EXPECT_EQ(refused(replaced(kWhole, "backend: cpu", "backend: tpu")),
            "p.yaml:3:42: key 'model.backend': expected one of auto, cpu or cuda, got 'tpu'");
  EXPECT_EQ(refused(replaced(kWhole, "fallback: none", "fallback: cuda")),
            "p.yaml:3:74: key 'model.fallback': expected cpu or none, got 'cuda'");
  EXPECT_EQ(refused(replaced(kWhole, "precision: bf16", "precision: fp64")),
            "p.yaml:3:58: key 'model.precision': expected one of fp32, tf32, bf16 or fp16, got 'fp64'");
  EXPECT_EQ(refused(replaced(kWhole, "drop_newest", "drop_oldest")),
            "p.yaml:5:36: key 'ring.on_full': expected drop_newest, got 'drop_oldest'");
  EXPECT_EQ(refused(replaced(kWhole, "on_gap: fill", "on_gap: skip")),
            "p.yaml:10:17: key 'input.on_gap': expected one of reset, mark or fill, got 'skip'");
  EXPECT_EQ(refused(replaced(kWhole, "on_invalid: hold", "on_invalid: drop")),
            "p.yaml:10:35: key 'input.on_invalid': expected one of pass, hold or zero, got 'drop'");
  EXPECT_EQ(refused(replaced(kWhole, "priority: 80", "priority: 100")),
            "p.yaml:11:22: key 'realtime.priority': expected an integer from 1 to 99, got '100'");
  EXPECT_EQ(refused(replaced(kWhole, "[1, 3]", "[1, 1024]")),
            "p.yaml:11:36: key 'realtime.cpus.1': expected an integer from 0 to 1023, got '1024'");
}

}  // namespace
}  // namespace halotap::pipeline
