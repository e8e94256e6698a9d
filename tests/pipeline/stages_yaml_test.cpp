#include <gtest/gtest.h>

#include <cmath>

#include "halotap/pipeline/built_in_stages.hpp"
#include "halotap/pipeline/config.hpp"
#include "pipeline/refusal.hpp"
#include "pipeline/stages/run_stage.hpp"

namespace halotap::pipeline {
namespace {

using test::refusal;
using test::run_stage;
using test::ScratchFolder;

std::string pipeline_file(const std::string& stages) {
  return "format: halotap-pipeline/1\nsource: {uri: in.wav}\nmodel: {file: m.yaml}\nsinks: [{uri: out.npy}]\n" + stages;
}

StageEntry read_stage(const std::string& stage) {
  const ScratchFolder folder;
  const auto config = load_pipeline_config(folder.write("p.yaml", pipeline_file("stages: [" + stage + "]\n")));
  return config.stages.at(0);
}

std::string refused(const std::string& stages, const std::vector<std::string>& overrides = {}) {
  const ScratchFolder folder;
  const auto file = folder.write("p.yaml", pipeline_file(stages));
  return refusal<ConfigError>(folder, [&] { load_pipeline_config(file, overrides); });
}

// The stage of the file and the one made with the spec do the same to two channels at 1 kHz.
void expect_same(const std::string& stage, const StageMaker& expected) {
  const StageFormat input{.channels = 2, .rate_hz = 1000, .channel_names = {"a", "b"}};
  std::vector<float> samples;
  for (int i = 0; i < 60; ++i) samples.push_back(std::sin(static_cast<float>(i)));
  const test::StageRun got = run_stage(read_stage(stage).make, input, samples);
  const test::StageRun wanted = run_stage(expected, input, samples);
  EXPECT_EQ(got.results, wanted.results) << stage;
  EXPECT_EQ(got.output.latency_frames, wanted.output.latency_frames) << stage;
  ASSERT_EQ(got.events.size(), wanted.events.size()) << stage;
  for (std::size_t i = 0; i < got.events.size(); ++i) EXPECT_EQ(got.events[i].frame, wanted.events[i].frame) << stage;
}

TEST(StagesOfAPipelineFile, AreReadWithEveryKey) {
  expect_same("{type: select, channels: [b, 0, a]}", select_stage({.channels = {"b", "0", "a"}}));
  expect_same("{type: affine, gain: -2.5, offset: 1, channel: b}",
              affine_stage({.gain = -2.5, .offset = 1, .channel = "b"}));
  expect_same("{type: smooth, attack_ms: 2, release_ms: 5, channel: 1}",
              smooth_stage({.attack_ms = 2, .release_ms = 5, .channel = "1"}));
  expect_same("{type: threshold, on: 0.5, off: -0.5, min_on_ms: 3, min_off_ms: 2, channel: a}",
              threshold_stage({.on = 0.5, .off = -0.5, .min_on_ms = 3, .min_off_ms = 2, .channel = "a"}));
  expect_same("{type: argmax}", argmax_stage());
  expect_same("{type: decimate, factor: 3, keep: max}", decimate_stage({.factor = 3, .keep = Keep::kMax}));
  expect_same("{type: decimate, factor: 3, keep: last}", decimate_stage({.factor = 3, .keep = Keep::kLast}));
  expect_same("{type: rms, window_ms: 4}", rms_stage({.window_ms = 4}));
  expect_same("{type: log, unit: ln, floor: 0.5, channel: b}",
              log_stage({.unit = LogUnit::kNatural, .floor = 0.5, .channel = "b"}));
  expect_same("{type: log, unit: log10}", log_stage({.unit = LogUnit::kDecade}));
}

TEST(StagesOfAPipelineFile, HaveDefaults) {
  expect_same("{type: affine, gain: 2}", affine_stage({.gain = 2, .offset = 0}));
  expect_same("{type: affine, offset: 2}", affine_stage({.gain = 1, .offset = 2}));
  expect_same("{type: smooth, attack_ms: 2}", smooth_stage({.attack_ms = 2, .release_ms = 2}));
  expect_same("{type: threshold, on: 0.5}", threshold_stage({.on = 0.5, .off = 0.5}));
  expect_same("{type: decimate, factor: 3}", decimate_stage({.factor = 3, .keep = Keep::kMean}));
  expect_same("{type: log}", log_stage({.unit = LogUnit::kDecibel, .floor = 1e-6}));
}

TEST(StagesOfAPipelineFile, KeepTheirOrderTheirNameAndTheirPlace) {
  const ScratchFolder folder;
  const std::string file =
      folder.write("p.yaml", pipeline_file("stages:\n  - {type: argmax}\n  - type: rms\n    window_ms: 5\n"));
  const PipelineConfig config = load_pipeline_config(file);
  ASSERT_EQ(config.stages.size(), 2u);
  EXPECT_EQ(config.stages[0].name, "argmax");
  EXPECT_EQ(config.stages[1].name, "rms");
  EXPECT_EQ(config.stages[1].place, file + ":7:5: key 'stages.1'");
}

TEST(StagesOfAPipelineFile, MayBeNone) {
  const ScratchFolder folder;
  EXPECT_TRUE(load_pipeline_config(folder.write("p.yaml", pipeline_file("stages: []\n"))).stages.empty());
  EXPECT_TRUE(load_pipeline_config(folder.write("p.yaml", pipeline_file(""))).stages.empty());
}

TEST(StagesOfAPipelineFile, TakeOverrides) {
  const ScratchFolder folder;
  const std::string file = folder.write("p.yaml", pipeline_file("stages: [{type: affine, gain: 1}]\n"));
  const StageEntry stage = load_pipeline_config(file, {"stages.0.gain=5"}).stages.at(0);
  EXPECT_EQ(run_stage(stage.make, 1000, {2}), std::vector<float>{10});
}

TEST(StagesOfAPipelineFile, RefuseUnknownTypesAndKeys) {
  EXPECT_EQ(
      refused("stages: [{type: treshold, on: 1}]\n"),
      "p.yaml:5:17: key 'stages.0.type': expected one of select, affine, smooth, threshold, argmax, decimate, rms "
      "or log, got 'treshold'");
  EXPECT_EQ(refused("stages: [{on: 1}]\n"), "p.yaml:5:10: key 'stages.0.type': expected a value, got no such key");
  EXPECT_EQ(refused("stages: [{type: threshold, on: 1, chanel: speech}]\n"),
            "p.yaml:5:35: key 'stages.0.chanel': expected one of type, on, off, min_on_ms, min_off_ms, channel, got an "
            "unknown key");
  EXPECT_EQ(refused("stages: [{type: argmax, channel: 1}]\n"),
            "p.yaml:5:25: key 'stages.0.channel': expected one of type, got an unknown key");
  EXPECT_EQ(refused("stages: {type: argmax}\n"), "p.yaml:5:9: key 'stages': expected a list, got a map");
  EXPECT_EQ(refused("stages: [argmax]\n"), "p.yaml:5:10: key 'stages.0': expected a map, got 'argmax'");
}

TEST(StagesOfAPipelineFile, RefuseMissingKeys) {
  EXPECT_EQ(refused("stages: [{type: argmax}, {type: threshold}]\n"),
            "p.yaml:5:26: key 'stages.1.on': expected a value, got no such key");
  EXPECT_EQ(refused("stages: [{type: select}]\n"),
            "p.yaml:5:10: key 'stages.0.channels': expected a value, got no such key");
  EXPECT_EQ(refused("stages: [{type: smooth}]\n"),
            "p.yaml:5:10: key 'stages.0.attack_ms': expected a value, got no such key");
  EXPECT_EQ(refused("stages: [{type: decimate}]\n"),
            "p.yaml:5:10: key 'stages.0.factor': expected a value, got no such key");
  EXPECT_EQ(refused("stages: [{type: rms}]\n"),
            "p.yaml:5:10: key 'stages.0.window_ms': expected a value, got no such key");
  EXPECT_EQ(refused("stages: [{type: affine, channel: 1}]\n"),
            "p.yaml:5:10: key 'stages.0': expected a gain or an offset, got neither");
}

TEST(StagesOfAPipelineFile, RefuseValuesOutOfRangeWhereTheyStand) {
  EXPECT_EQ(refused("stages: [{type: threshold, on: 0.4, off: 0.6}]\n"),
            "p.yaml:5:42: key 'stages.0.off': expected at most on, 0.4, got 0.6");
  EXPECT_EQ(refused("stages: [{type: threshold, on: high}]\n"),
            "p.yaml:5:32: key 'stages.0.on': expected a finite number, got 'high'");
  EXPECT_EQ(refused("stages: [{type: threshold, on: 1, min_on_ms: -80}]\n"),
            "p.yaml:5:46: key 'stages.0.min_on_ms': expected milliseconds from 0 to 3600000, got -80");
  EXPECT_EQ(refused("stages: [{type: affine, gain: .inf}]\n"),
            "p.yaml:5:31: key 'stages.0.gain': expected a finite number, got '.inf'");
  EXPECT_EQ(refused("stages: [{type: affine, gain: 1e300}]\n"),
            "p.yaml:5:31: key 'stages.0.gain': expected a finite float32 number, got 1e+300");
  EXPECT_EQ(refused("stages: [{type: decimate, factor: 0}]\n"),
            "p.yaml:5:35: key 'stages.0.factor': expected an integer from 1 to 1073741824, got '0'");
  EXPECT_EQ(refused("stages: [{type: decimate, factor: 2, keep: first}]\n"),
            "p.yaml:5:44: key 'stages.0.keep': expected one of mean, max or last, got 'first'");
  EXPECT_EQ(refused("stages: [{type: rms, window_ms: 0}]\n"),
            "p.yaml:5:33: key 'stages.0.window_ms': expected milliseconds above 0, got 0");
  EXPECT_EQ(refused("stages: [{type: log, floor: 0}]\n"),
            "p.yaml:5:29: key 'stages.0.floor': expected a number above 0 and at most 1e+30, got 0");
  EXPECT_EQ(refused("stages: [{type: log, unit: dB}]\n"),
            "p.yaml:5:28: key 'stages.0.unit': expected one of db, ln or log10, got 'dB'");
  EXPECT_EQ(refused("stages: [{type: select, channels: []}]\n"),
            "p.yaml:5:35: key 'stages.0.channels': expected a list of 1 to 65536, got 0");
}

TEST(StagesOfAPipelineFile, RefuseWhatAnOverrideMakesWrong) {
  EXPECT_EQ(refused("stages: [{type: threshold, on: 1}]\n", {"stages.0.off=2"}),
            "p.yaml: override 'stages.0.off=2': key 'stages.0.off': expected at most on, 1, got 2");
}

}  // namespace
}  // namespace halotap::pipeline
