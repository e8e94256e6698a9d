#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/safetensors_builder.hpp"
#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

// No test here depends on how fast the machine is: budgets are an hour, or less than the chunk alone takes.
class Plan : public testing::Test {
 protected:
  // A pipeline over noise, through a model at 200 Hz: chunks of 80 ms.
  std::string pipeline_file(const std::string& rest = {}) {
    return folder_.write("pipeline.yaml",
                         "format: halotap-pipeline/1\nsource: {uri: \"synth://noise?seconds=3600\"}\nmodel: {file: " +
                             golden("stack_mixed", "model.yaml") +
                             "}\nchunk_frames: 16\nsinks: [{uri: " + folder_.file("y.npy") + "}]\n" + rest);
  }

  // y = 2 x, of so many channels and frames a second.
  std::string model_file(std::int64_t channels, const std::string& rate_hz) {
    test::SafetensorsBuilder weights;
    weights.add("mix.pw.weight", {channels, channels, 1}, 2.0f);
    folder_.write("weights.safetensors", weights.bytes());
    const std::string count = std::to_string(channels);
    return folder_.write("model.yaml", "format: halotap-model/1\nname: mix\nframe_rate: " + rate_hz +
                                           "\nweights: weights.safetensors\nlayers: [{name: mix, type: pointwise, "
                                           "in_channels: " +
                                           count + ", out_channels: " + count + ", activation: identity}]\n");
  }

  void have_alsa(const std::string& configuration) {
    setenv("ALSA_CONFIG_PATH", folder_.write("asound.conf", configuration).c_str(), 1);
    setenv("JACK_NO_START_SERVER", "1", 1);
  }

  test::ScratchFolder folder_;
};

const nlohmann::json& term(const nlohmann::json& plan, const std::string& place) {
  for (const auto& entry : plan["terms"]) {
    if (entry["place"] == place) return entry;
  }
  ADD_FAILURE() << "no term " << place << " in " << plan;
  static const nlohmann::json none = {{"frames", -1}, {"ms", -1}, {"kind", ""}, {"key", ""}, {"note", ""}};
  return none;
}

bool has_no_sound_devices(const Outcome& outcome) { return outcome.err.find("this build has no") != std::string::npos; }

TEST_F(Plan, AddsUpEveryWaitAndKeepsTheKindsApart) {
  const std::size_t files = folder_.entries();
  const Outcome outcome = run_halotap(
      {"plan", pipeline_file("latency: {budget_ms: 3600000}\nstages: [{type: decimate, factor: 4}]\n"), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto plan = outcome.json();
  const auto model = run_halotap({"inspect", golden("stack_mixed", "model.yaml"), "--json"}).json();
  const std::int64_t lookahead = model["lookahead_frames"];
  EXPECT_TRUE(plan["fits"]);
  EXPECT_TRUE(plan["misfits"].empty());
  EXPECT_EQ(plan["algorithmic_frames"], 15 + lookahead + 3);
  EXPECT_EQ(term(plan, "chunk")["frames"], 15);
  EXPECT_EQ(term(plan, "chunk")["key"], "chunk_frames");
  EXPECT_EQ(term(plan, "lookahead")["frames"], lookahead);
  EXPECT_EQ(term(plan, "stage 0 (decimate)")["frames"], 3);
  EXPECT_EQ(term(plan, "stage 0 (decimate)")["key"], "stages.0.factor");
  EXPECT_EQ(term(plan, "compute")["kind"], "measured");
  EXPECT_GE(plan["chunks"], 1);
  double sum_ms = 0;
  for (const auto& entry : plan["terms"]) sum_ms += entry["ms"].get<double>();
  EXPECT_DOUBLE_EQ(plan["total_ms"], sum_ms);
  EXPECT_NEAR(
      plan["total_ms"],
      plan["algorithmic_ms"].get<double>() + plan["buffering_ms"].get<double>() + plan["measured_ms"].get<double>(),
      1e-9);
  EXPECT_EQ(folder_.entries(), files + 1) << "nothing is written besides the test's own file";
}

TEST_F(Plan, OpensNoFileToWriteTo) {
  const Outcome outcome =
      run_halotap({"plan", pipeline_file(), "--set", "sinks.0.uri=" + folder_.file("no_such_folder/y.npy")});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

// `run` states what the plan counted on.
TEST_F(Plan, HasTheAlgorithmicLatencyOfTheRunsSummary) {
  const std::string file = pipeline_file("stages: [{type: decimate, factor: 4}]\n");
  const auto plan = run_halotap({"plan", file, "--json"}).json();
  const auto run = run_halotap({"run", file, "--duration", "100ms", "--json"}).json();
  EXPECT_EQ(plan["algorithmic_frames"], run["algorithmic_latency_frames"]);
  EXPECT_EQ(plan["algorithmic_ms"], run["algorithmic_latency_ms"]);
}

TEST_F(Plan, NamesTheTermAndTheKeyOfABudgetThatCannotBeMet) {
  const Outcome outcome = run_halotap({"plan", pipeline_file("latency: {budget_ms: 70}\n")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("pipeline.yaml: does not fit 70 ms: chunk alone is 75 ms; "), std::string::npos)
      << outcome.err;
  EXPECT_NE(outcome.err.find("chunk_frames"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.out.find("algorithmic + buffering + measured"), std::string::npos) << outcome.out;

  const auto plan = run_halotap({"plan", pipeline_file(), "--set", "latency.budget_ms=70", "--json"}).json();
  EXPECT_FALSE(plan["fits"]);
  EXPECT_EQ(plan["misfits"][0]["place"], "chunk");
  EXPECT_EQ(plan["misfits"][0]["key"], "chunk_frames");
}

// Before anything is opened or measured: here there is no such loudspeaker, and the budget is less than a chunk.
TEST_F(Plan, RefusesABudgetForARecordingIntoALoudspeakerAsRunDoes) {
  const std::string file = pipeline_file("latency: {budget_ms: 1}\n");
  const std::string sink = "sinks.0.uri=portaudio://nowhere";
  const Outcome plan = run_halotap({"plan", file, "--set", sink});
  const Outcome run = run_halotap({"run", file, "--set", sink});
  EXPECT_EQ(plan.exit_code, 2);
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(plan.err.find("halotap: latency.budget_ms: expected a live source, or no sink that is a device, got "), 0U)
      << plan.err;
  EXPECT_EQ(plan.err, run.err);
}

TEST_F(Plan, RefusesAModelThatCannotKeepUp) {
  // A frame a nanosecond: no machine computes that.
  const std::string file = pipeline_file();
  const Outcome outcome = run_halotap({"plan", file, "--set", "model.file=" + model_file(1, "1e9"), "--set",
                                       "chunk_frames=1", "--set", "source.uri=synth://noise?frames=10"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("cannot keep up: a chunk of 1 frame takes"), std::string::npos) << outcome.err;
}

TEST_F(Plan, TakesThirtyTwoChannelsAt96Kilohertz) {
  const std::string file = pipeline_file();
  const std::string model = model_file(32, "96000");
  for (const int chunk_frames : {1, 17, 4096}) {
    const auto plan = run_halotap({"plan", file, "--set", "model.file=" + model, "--set",
                                   "chunk_frames=" + std::to_string(chunk_frames), "--json"})
                          .json();
    EXPECT_EQ(plan["rate_hz"], 96000);
    EXPECT_EQ(plan["algorithmic_frames"], chunk_frames - 1);
    EXPECT_DOUBLE_EQ(plan["chunk_period_ms"], chunk_frames / 96.0);
  }
}

TEST_F(Plan, PlansWithWhatTheAddressStatesWhereThereIsNoDevice) {
  have_alsa("pcm.card { type hw card 31 hint.show on }\n");
  const std::string file = pipeline_file();
  const std::string model = "model.file=" + model_file(1, "48000");
  for (const int block : {1, 17, 4096}) {
    const std::string address = "portaudio://default?block=" + std::to_string(block);
    for (const std::string end : {"source", "sinks.0"}) {
      const Outcome outcome = run_halotap(
          {"plan", file, "--json", "--set", model, "--set", "chunk_frames=4096", "--set", end + ".uri=" + address});
      if (has_no_sound_devices(outcome)) GTEST_SKIP() << "this build has no PortAudio";
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
      const auto plan = outcome.json();
      ASSERT_EQ(plan["notes"].size(), 1U);
      EXPECT_NE(plan["notes"][0].get<std::string>().find("planned with what the address states"), std::string::npos);
      const nlohmann::json& device = term(plan, end == "source" ? "device" : "sink 0 (device)");
      EXPECT_EQ(device["frames"], block);
      EXPECT_EQ(device["key"], end + ".uri's block");
      if (end == "source") {
        EXPECT_GT(term(plan, "ring")["ms"], 0);
      }
    }
  }
}

TEST_F(Plan, HasTheReserveAndTheResamplerOfALoudspeakerOnAnotherClock) {
  have_alsa("pcm.card { type hw card 31 hint.show on }\n");
  const Outcome outcome =
      run_halotap({"plan", pipeline_file("latency: {budget_ms: 3600000}\n"), "--json", "--set",
                   "model.file=" + model_file(1, "48000"), "--set", "source.uri=portaudio://default", "--set",
                   "sinks.0.uri=portaudio://default?drift=correct&reserve_ms=20&block=64"});
  if (has_no_sound_devices(outcome)) GTEST_SKIP() << "this build has no PortAudio";
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto plan = outcome.json();
  EXPECT_EQ(term(plan, "sink 0 (device)")["frames"], 64);
  EXPECT_EQ(term(plan, "sink 0 (playback)")["frames"], 960);
  EXPECT_EQ(term(plan, "sink 0 (playback)")["key"], "sinks.0.uri's reserve_ms");
  EXPECT_GT(term(plan, "sink 0 (resampler)")["frames"], 0);
}

TEST_F(Plan, RefusesTwoClocksThatNothingCorrects) {
  const Outcome outcome =
      run_halotap({"plan", pipeline_file(), "--set", "source.uri=portaudio://default", "--set",
                   "sinks.0.uri=portaudio://default", "--set", "model.file=" + model_file(1, "48000")});
  if (has_no_sound_devices(outcome)) GTEST_SKIP() << "this build has no PortAudio";
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("drift=correct"), std::string::npos) << outcome.err;
}

TEST_F(Plan, AsksADeviceThatIsThereForItsLatency) {
  have_alsa("pcm.!default { type null }\n");
  const Outcome outcome = run_halotap({"plan", pipeline_file("latency: {budget_ms: 3600000}\n"), "--json", "--set",
                                       "model.file=" + model_file(1, "48000"), "--set", "chunk_frames=480", "--set",
                                       "source.uri=portaudio://default?rate=44100&resample=true&block=17"});
  if (has_no_sound_devices(outcome)) GTEST_SKIP() << "this build has no PortAudio";
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto plan = outcome.json();
  EXPECT_TRUE(plan["notes"].empty()) << plan["notes"];
  EXPECT_EQ(term(plan, "device")["note"], "as the device states it");
  EXPECT_EQ(term(plan, "device")["rate_hz"], 44100);
  EXPECT_GE(term(plan, "device")["frames"], 17);
  EXPECT_EQ(term(plan, "resampler")["kind"], "algorithmic");
  EXPECT_GT(term(plan, "resampler")["frames"], 0);
  EXPECT_EQ(plan["algorithmic_frames"], 479 + term(plan, "resampler")["frames"].get<std::int64_t>());
}

TEST_F(Plan, ShowsTheMedianBesideWhatItJudgesBy) {
  const std::string text = run_halotap({"plan", pipeline_file()}).out;
  const std::string time = "[0-9.]+ [mu]?s";
  for (const std::string& line :
       {"model.backend; (p99.9|p99|longest) of [0-9]+ chunks?, p50 " + time + "\n",
        "\nin all  .* measured (p99.9|p99|longest); " + time + " with p50\n",
        "\npace  .*, computed in " + time + " \\((p99.9|p99|longest)\\), " + time + " \\(p50\\)\n"}) {
    EXPECT_TRUE(std::regex_search(text, std::regex(line))) << line << " in:\n" << text;
  }
}

TEST_F(Plan, SaysWhatOfTheCardsSettingsDoesNothing) {
  const std::string file = pipeline_file();
  const auto said = [&](const std::vector<std::string>& overrides) {
    std::vector<std::string> arguments{"plan", file};
    for (const std::string& override : overrides) arguments.insert(arguments.end(), {"--set", override});
    return run_halotap(arguments).err;
  };
  const std::string on_cpu = "halotap: backend cpu (";
  for (const auto& [backend, why] : {std::pair{"cpu", "): asked for"}, {"auto", " are no work for a card"}}) {
    const std::string line = said({std::string("model.backend=") + backend, "model.cuda.wait=block"});
    EXPECT_EQ(line.substr(0, on_cpu.size()), on_cpu);
    EXPECT_TRUE(line.ends_with(std::string(why) + "; not used: model.cuda\n")) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  }
  EXPECT_EQ(said({"model.cuda.invocation=launch", "model.cuda.resident_clusters=2"})
                .find("halotap: " + file + ": model.cuda.resident_clusters is not used: the invocation is launch\n"),
            0U);
  EXPECT_TRUE(said({"model.cuda.invocation=launch"}).ends_with("; not used: model.cuda\n")) << "as without it";
}

TEST_F(Plan, IsBadInputWhereTheFileIs) {
  const std::string file = pipeline_file();
  EXPECT_EQ(run_halotap({"plan"}).exit_code, 2);
  EXPECT_EQ(run_halotap({"plan", folder_.file("none.yaml")}).exit_code, 2);
  EXPECT_EQ(run_halotap({"plan", file, "--set", "latency.budget_ms=0"}).exit_code, 2);
  EXPECT_EQ(run_halotap({"plan", file, "--set", "source.uri=" + folder_.file("none.npy")}).exit_code, 2);
  EXPECT_EQ(run_halotap({"plan", file, "--set", "sinks.0.uri=bogus://x"}).exit_code, 2);
  have_alsa("pcm.!default { type null }\n");
  EXPECT_EQ(run_halotap({"plan", file, "--set", "source.uri=portaudio://nowhere?blok=1"}).exit_code, 2);
  EXPECT_EQ(run_halotap({"plan", file, "--set", "sinks.0.uri=portaudio://nowhere?blok=1"}).exit_code, 2);
}

TEST_F(Plan, RefusesChunksThatNoMemoryHolds) {
  const Outcome outcome =
      run_halotap({"plan", pipeline_file(), "--set", "model.file=" + model_file(64, "1000"), "--set",
                   "chunk_frames=1048576", "--set", "source.uri=synth://noise?streams=65536&frames=1"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("chunk_frames and ring: chunks of 1048576 frames"), std::string::npos) << outcome.err;
  EXPECT_LT(outcome.peak_kib, 1 << 20);
}

TEST_F(Plan, KeepsARunFromBeginningThatCannotFit) {
  const std::string file = pipeline_file("latency: {budget_ms: 70}\n");
  const Outcome outcome = run_halotap({"run", file, "--duration", "100ms"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("does not fit 70 ms: chunk alone is 75 ms"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("--force"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.file("y.npy")));

  const Outcome forced = run_halotap({"run", file, "--duration", "100ms", "--force"});
  EXPECT_EQ(forced.exit_code, 0);
  EXPECT_EQ(forced.err.find("halotap: " + file + ": does not fit 70 ms: chunk alone is 75 ms"), 0U) << forced.err;
  EXPECT_NE(forced.err.find("run all the same, for --force"), std::string::npos) << forced.err;
  EXPECT_TRUE(std::filesystem::exists(folder_.file("y.npy")));
}

TEST_F(Plan, LetsARunBeginThatFits) {
  const Outcome outcome = run_halotap({"run", pipeline_file("latency: {budget_ms: 3600000}\n"), "--duration", "100ms"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.err, "");
}

}  // namespace
}  // namespace halotap::apps
