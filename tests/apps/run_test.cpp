#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include <sstream>

#include "array_file.hpp"
#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

// The last line: a run of more than a second has others before it.
nlohmann::json summary_of(const Outcome& outcome) {
  const std::vector<nlohmann::json> lines = Outcome::json_lines(outcome.out);
  EXPECT_FALSE(lines.empty()) << outcome.err;
  const nlohmann::json summary = lines.empty() ? nlohmann::json::object() : lines.back();
  EXPECT_EQ(summary.value("line", ""), "summary");
  return summary;
}

// What a terminal shows in the end of what was written to it: its rows.
std::vector<std::string> screen_of(const std::string& text) {
  std::vector<std::string> rows(1);
  std::size_t column = 0;
  for (const char c : text) {
    if (c == '\n') {
      rows.emplace_back();
      column = 0;
    } else if (c == '\r') {
      column = 0;
    } else {
      rows.back().resize(std::max(rows.back().size(), column + 1), ' ');
      rows.back()[column++] = c;
    }
  }
  for (std::string& row : rows) row.erase(row.find_last_not_of(' ') + 1);
  return rows;
}

class Run : public testing::Test {
 protected:
  // A pipeline over an hour of noise.
  std::string pipeline_file(const std::string& sink) {
    return folder_.write("pipeline.yaml",
                         "format: halotap-pipeline/1\nsource: {uri: \"synth://noise?seconds=3600\"}\nmodel: {file: " +
                             golden("stack_mixed", "model.yaml") + "}\nchunk_frames: 16\nsinks: [{uri: \"" + sink +
                             "\"}]\n");
  }

  test::ScratchFolder folder_;
};

TEST_F(Run, EndsAfterTheDurationAskedFor) {
  const Outcome outcome = run_halotap(
      {"run", pipeline_file(folder_.file("y.npy")), "--duration", "250ms", "--set", "chunk_frames=8", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = summary_of(outcome);
  EXPECT_EQ(result["frames"], 50);  // at 200 Hz
  EXPECT_EQ(result["chunk_frames"], 8);
  EXPECT_GE(result["elapsed_s"], 0.24);
  EXPECT_FALSE(result["stopped"]);
  EXPECT_EQ(read_array(folder_.file("y.npy")).shape, (std::vector<std::int64_t>{50, 5}));
}

TEST_F(Run, SendsResultsThroughTheStagesOfTheFile) {
  const std::string file = folder_.write(
      "staged.yaml", "format: halotap-pipeline/1\nsource: {uri: \"synth://noise?seconds=3600\"}\nmodel: {file: " +
                         golden("stack_mixed", "model.yaml") +
                         "}\nstages:\n  - {type: select, channels: [3, 1]}\n  - {type: decimate, factor: 4}\n"
                         "  - {type: threshold, on: 0, channel: 1, min_on_ms: 40}\nsinks:\n  - {uri: \"" +
                         folder_.file("y.npy") + "\"}\n  - {uri: \"" + folder_.file("y.wav") + "\"}\n  - {uri: \"" +
                         folder_.file("y.jsonl") + "\"}\n");
  const Outcome outcome = run_halotap({"run", file, "--duration", "250ms", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  // 50 frames at 200 Hz become 13 at 50 Hz.
  EXPECT_EQ(read_array(folder_.file("y.npy")).shape, (std::vector<std::int64_t>{13, 2}));
  const std::string wav = test::ScratchFolder::content(folder_.file("y.wav"));
  EXPECT_EQ(static_cast<int>(wav.at(24)), 50);  // the rate, in the header's 24th byte

  std::istringstream lines(test::ScratchFolder::content(folder_.file("y.jsonl")));
  std::vector<nlohmann::json> frames;
  std::vector<nlohmann::json> events;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json object = nlohmann::json::parse(line);
    (object.contains("event") ? events : frames).push_back(object);
  }
  ASSERT_EQ(frames.size(), 13u);
  EXPECT_EQ(frames[3]["time_s"], 0.06);

  const auto result = summary_of(outcome);
  EXPECT_EQ(result["frames"], 50);
  EXPECT_EQ(result["frames_out"], 13);
  EXPECT_EQ(result["stage_latency_frames"], 3 + 4);
  EXPECT_EQ(result["algorithmic_latency_frames"],
            result["chunk_frames"].get<int>() - 1 + result["lookahead_frames"].get<int>() + 7);
  ASSERT_EQ(result["stages"].size(), 3u);
  EXPECT_EQ(result["stages"][1]["type"], "decimate");
  EXPECT_EQ(result["stages"][1]["frames_merged"], 37);
  EXPECT_EQ(result["stages"][2]["events"], events.size());
}

// As 16-bit samples read as float are, and worse.
TEST_F(Run, ReplacesInvalidSamplesAsTheFileSaysAndCountsThem) {
  const ArrayFile clean = read_array(golden("stack_causal", "x.npy"));
  const std::int64_t channels = clean.shape[1];
  const std::int64_t frames = 40;
  ArrayFile input{"<f4", {frames, channels}, {}};
  for (std::int64_t i = 0; i < frames * channels; ++i) input.values.push_back(std::sin(static_cast<double>(i)));
  ArrayFile held = input;
  const auto sample = [channels](std::int64_t frame) { return static_cast<std::size_t>(frame * channels + 1); };
  input.values[sample(10)] = NAN;
  input.values[sample(11)] = 3e38;
  input.values[sample(30)] = -INFINITY;
  held.values[sample(10)] = held.values[sample(11)] = held.values[sample(9)];
  held.values[sample(30)] = held.values[sample(29)];
  write_array(folder_.file("x.npy"), input);
  write_array(folder_.file("held.npy"), held);
  const std::string file =
      folder_.write("p.yaml", "format: halotap-pipeline/1\nsource: {uri: \"" + folder_.file("x.npy") +
                                  "\"}\nmodel: {file: " + golden("stack_causal", "model.yaml") +
                                  "}\ninput: {on_invalid: hold}\nsinks: [{uri: \"" + folder_.file("y.npy") + "\"}]\n");
  const Outcome live = run_halotap({"run", file, "--json"});
  ASSERT_EQ(live.exit_code, 0) << live.err;
  EXPECT_EQ(live.json()["samples_invalid"], nlohmann::json({{"nan", 1}, {"infinite", 1}, {"too_large", 1}}));

  const Outcome replayed = run_halotap(
      {"replay", "--pipeline", file, "--input", folder_.file("x.npy"), "--output", folder_.file("replayed.npy")});
  ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
  EXPECT_NE(replayed.out.find("invalid    samples: 1 NaN, 1 infinite, 1 above 1e30"), std::string::npos)
      << replayed.out;
  ASSERT_EQ(run_halotap({"replay", "--model", golden("stack_causal", "model.yaml"), "--input", folder_.file("held.npy"),
                         "--output", folder_.file("expected.npy")})
                .exit_code,
            0);
  const std::string expected = test::ScratchFolder::content(folder_.file("expected.npy"));
  EXPECT_EQ(test::ScratchFolder::content(folder_.file("y.npy")), expected);
  EXPECT_EQ(test::ScratchFolder::content(folder_.file("replayed.npy")), expected);
}

// At a rate that no sound has, through a stage that makes one frame of two.
TEST_F(Run, KeepsInputAndOutputThatAReplayConfirms) {
  const std::string in = folder_.file("in.wav");
  const std::string out = folder_.file("out.wav");
  const std::string file = folder_.write(
      "kept.yaml", "format: halotap-pipeline/1\nsource: {uri: \"synth://noise?seconds=3600\"}\nmodel: {file: " +
                       golden("stack_mixed", "model.yaml") +
                       "}\nchunk_frames: 16\nstages: [{type: decimate, factor: 2}]\nsinks: [{uri: \"" +
                       folder_.file("y.npy") + "\"}]\nrecord: {file: " + in + ", output: " + out + "}\n");
  const Outcome run = run_halotap({"run", file, "--duration", "250ms", "--json"});
  if (run.err.find("this build has no audio") != std::string::npos) GTEST_SKIP() << run.err;
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto kept = run.json();
  EXPECT_EQ(kept["recording"]["frames"], 50);
  EXPECT_EQ(kept["recording_output"]["frames"], 25);
  EXPECT_EQ(kept["recording_output"]["files"], std::vector<std::string>{out});

  const Outcome verified =
      run_halotap({"verify", "--pipeline", file, "--input", in, "--expect", out, "--abs", "0", "--json"});
  ASSERT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_EQ(verified.json()["max_abs"], 0);
}

TEST_F(Run, NamesTheStageThatAsksForAChannelThatIsNotThere) {
  const std::string file = pipeline_file(folder_.file("y.npy"));
  const std::string text = test::ScratchFolder::content(file) + "stages: [{type: affine, gain: 2, channel: speech}]\n";
  const Outcome outcome = run_halotap({"run", folder_.write("pipeline.yaml", text), "--duration", "1s"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(
      outcome.err.find("pipeline.yaml:6:10: key 'stages.0': channel: expected a number from 0 to 4, got 'speech'"),
      std::string::npos)
      << outcome.err;
}

TEST_F(Run, RefusesToOverwriteItsOwnPipelineFile) {
  const std::string file = pipeline_file("npy://" + (folder_.file("pipeline.yaml")));
  const std::string before = test::ScratchFolder::content(file);
  const Outcome outcome = run_halotap({"run", file, "--duration", "1s"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("pipeline.yaml"), std::string::npos) << outcome.err;
  EXPECT_EQ(test::ScratchFolder::content(file), before);
}

// ALSA knows a card that is not there, and nothing else.
TEST_F(Run, SaysWithoutASoundDeviceHowToRunARecordingInstead) {
  setenv("ALSA_CONFIG_PATH", folder_.write("asound.conf", "pcm.card { type hw card 31 hint.show on }\n").c_str(), 1);
  setenv("JACK_NO_START_SERVER", "1", 1);
  const std::string file = pipeline_file(folder_.file("y.npy"));
  const Outcome outcome = run_halotap({"run", file, "--set", "source.uri=portaudio://default"});
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.err.find("halotap: portaudio://default: "), 0U) << outcome.err;
  if (outcome.err.find("this build has no") != std::string::npos) {
    EXPECT_EQ(outcome.exit_code, 2);
    GTEST_SKIP() << "this build has no PortAudio";
  }
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_NE(outcome.err.find("--set source.uri=FILE.wav"), std::string::npos) << outcome.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.file("y.npy")));
}

// A device that delivers silence as fast as it is read: far too fast, and so the ring overflows.
TEST_F(Run, EndsCleanlyWhenItsTerminalIsClosed) {
  const std::string file = pipeline_file(folder_.file("y.npy"));
  Surroundings surroundings;
  surroundings.meanwhile = [this](pid_t program) {
    // Sinks are opened behind the handler.
    const auto opened = [this] {
      for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
        if (entry.path().filename().string().find("y.npy") != std::string::npos) return true;
      }
      return false;
    };
    for (int i = 0; i < 2000 && !opened(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    kill(program, SIGHUP);
  };
  const Outcome outcome = run_halotap({"run", file, "--json"}, surroundings);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(summary_of(outcome)["stopped"]);
}

TEST_F(Run, EndsALiveSourceCleanlyAtASignal) {
  setenv("ALSA_CONFIG_PATH", folder_.write("asound.conf", "pcm.!default { type null }\n").c_str(), 1);
  setenv("JACK_NO_START_SERVER", "1", 1);
  const std::string file = pipeline_file(folder_.file("y.npy"));
  Surroundings surroundings;
  surroundings.meanwhile = [](pid_t program) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(program, SIGTERM);
  };
  const Outcome outcome = run_halotap(
      {"run", file, "--json", "--set", "source.uri=portaudio://default?rate=48000&resample=true"}, surroundings);
  if (outcome.err.find("this build has no") != std::string::npos) GTEST_SKIP() << "this build has no PortAudio";
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = summary_of(outcome);
  EXPECT_TRUE(result["stopped"]);
  EXPECT_EQ(result["frames"], result["frames_out"]);
  EXPECT_GT(result["source_latency_frames"], 0);
  EXPECT_EQ(read_array(folder_.file("y.npy")).shape[0], result["frames"]);
}

TEST_F(Run, ShowsItsStatusOnATerminalAndErasesIt) {
  if (!has_terminals()) GTEST_SKIP() << "this system lends no pseudo-terminals";
  Surroundings terminal;
  terminal.terminal = true;
  const std::vector<std::string> arguments{
      "run", pipeline_file(folder_.file("y.npy")), "--duration", "1s", "--set", "latency.budget_ms=1000"};
  const Outcome outcome = run_halotap(arguments, terminal);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* part : {" of 1 s | ", " dB [", "| p50 ", ", p99 ", ", 0 late"}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << " in " << outcome.err;
  }
  EXPECT_EQ(screen_of(outcome.err), std::vector<std::string>{""});

  EXPECT_EQ(run_halotap(arguments).err, "");
}

// A device that delivers as fast as it is read overflows the ring again and again: a message each time.
TEST_F(Run, KeepsEveryMessageWholeBesideItsStatus) {
  if (!has_terminals()) GTEST_SKIP() << "this system lends no pseudo-terminals";
  setenv("ALSA_CONFIG_PATH", folder_.write("asound.conf", "pcm.!default { type null }\n").c_str(), 1);
  setenv("JACK_NO_START_SERVER", "1", 1);
  const std::string file = pipeline_file(folder_.file("y.npy"));
  Surroundings surroundings;
  surroundings.terminal = true;
  surroundings.meanwhile = [](pid_t program) {
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    kill(program, SIGTERM);
  };
  const Outcome outcome = run_halotap(
      {"run", file, "--set", "source.uri=portaudio://default?rate=48000&resample=true", "--set", "ring.capacity_ms=20"},
      surroundings);
  if (outcome.err.find("this build has no") != std::string::npos) GTEST_SKIP() << "this build has no PortAudio";
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::vector<std::string> rows = screen_of(outcome.err);
  EXPECT_EQ(rows.back(), "");
  rows.pop_back();
  EXPECT_GE(rows.size(), 2u);
  for (const std::string& row : rows) EXPECT_EQ(row.find("halotap: "), 0u) << row;
}

TEST_F(Run, TellsOfItselfEverySecondInJson) {
  const Outcome outcome = run_halotap({"run", pipeline_file(folder_.file("y.npy")), "--duration", "1200ms", "--json",
                                       "--set", "latency.budget_ms=10000"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const std::vector<nlohmann::json> lines = Outcome::json_lines(outcome.out);
  ASSERT_GE(lines.size(), 2u);
  const nlohmann::json& status = lines.front();
  EXPECT_EQ(status["line"], "status");
  EXPECT_GT(status["frames"], 100);  // of 240
  EXPECT_EQ(status["threads"], nlohmann::json::array({"halotap-session", "halotap-status"}));
  EXPECT_NEAR(status["level"]["peak"].get<double>(), 0.5, 0.1);  // of noise within ±0.5
  EXPECT_NEAR(status["level"]["rms"].get<double>(), 0.29, 0.1);
  EXPECT_EQ(status["channel_levels"].size(), 8u);
  EXPECT_GT(status["latency"]["whole"]["chunks"], 5);
  EXPECT_EQ(status["latency"]["whole"]["misses"], 0);
  EXPECT_FALSE(status["missing"]);
  EXPECT_EQ(status["failovers"], 0);
  const nlohmann::json& summary = lines.back();
  EXPECT_EQ(summary["line"], "summary");
  EXPECT_EQ(summary["frames"], 240);
  EXPECT_EQ(summary["latency"]["whole"]["chunks"], 15);  // of 16 frames
  EXPECT_EQ(summary["budget_ms"], 10000);
  EXPECT_EQ(summary["on_miss"], "count");
  EXPECT_TRUE(summary["failover"].is_null());
}

TEST_F(Run, LeavesStandardOutputToASinkThatHasIt) {
  const Outcome outcome = run_halotap({"run", pipeline_file("jsonl://-"), "--duration", "1200ms", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const nlohmann::json& line : Outcome::json_lines(outcome.out)) EXPECT_TRUE(line.contains("frame"));
  const std::vector<nlohmann::json> told = Outcome::json_lines(outcome.err);
  ASSERT_GE(told.size(), 2u);
  EXPECT_EQ(told.front()["line"], "status");
  EXPECT_EQ(told.back()["line"], "summary");
}

// No computer takes no time.
TEST_F(Run, TellsInItsSummaryOfACardThatFailed) {
  const std::vector<std::string> arguments{"run",        pipeline_file("npy://" + folder_.file("y.npy")),
                                           "--duration", "200ms",
                                           "--set",      "model.backend=cuda",
                                           "--set",      "model.precision=bf16"};
  const auto run = [&](const char* failure, std::vector<std::string> more) {
    more.insert(more.begin(), arguments.begin(), arguments.end());
    setenv("HALOTAP_INJECT_DEVICE_FAILURE", failure, 1);
    const Outcome outcome = run_halotap(more, {.card = true});
    unsetenv("HALOTAP_INJECT_DEVICE_FAILURE");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("host failed: injected error; cpu ("), std::string::npos) << outcome.err;
    return outcome;
  };
  const auto check = [](const nlohmann::json& summary) {
    EXPECT_EQ(summary["device"].get<std::string>().substr(0, 5), "cpu (");
    EXPECT_EQ(summary["precision"], "fp32");
    ASSERT_TRUE(summary["failover"].is_object()) << summary;
    EXPECT_EQ(summary["failover"]["device"], "host");
    EXPECT_EQ(summary["failover"]["precision"], "bf16");
    EXPECT_EQ(summary["failover"]["reason"], "injected error");
    EXPECT_GT(summary["failover"]["rebuild_us"], 0);
  };
  const auto failed = summary_of(run("error:2", {"--json"}));
  check(failed);
  EXPECT_EQ(failed["failover"]["frame"], 16);  // in chunks of 16
  EXPECT_TRUE(failed["failover"]["time_s"].is_number());

  const std::string budget = "latency.budget_ms=3600000";
  const auto tried = summary_of(run("error:2", {"--json", "--set", budget}));
  check(tried);
  EXPECT_EQ(tried["failover"]["frame"], 0);
  EXPECT_TRUE(tried["failover"]["time_s"].is_null());
  EXPECT_NE(run("error:2", {"--set", budget})
                .out.find("from the start on, for host, bf16, failed while the budget was tried: injected error\n"),
            std::string::npos);
}

TEST_F(Run, EndsWithExitCode1WhereAMissedBudgetIsToEndIt) {
  const Outcome outcome =
      run_halotap({"run", pipeline_file(folder_.file("y.npy")), "--force", "--set", "latency.budget_ms=0.000001",
                   "--set", "latency.on_miss=stop", "--set", "latency.miss_after=2"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out.find("frames     32 in, 32 out, 0 dropped"), 0U) << outcome.out;
  EXPECT_NE(outcome.out.find("; 2 of 2 chunks late: nothing is left of 1e-06 ms\n"), std::string::npos) << outcome.out;
  const std::string line = "\nhalotap: latency.on_miss: stop: the run ended in front of frame 32: 2 chunks on end";
  EXPECT_NE(outcome.err.find(line), std::string::npos) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << "what was forced, and: " << outcome.err;
  EXPECT_EQ(read_array(folder_.file("y.npy")).shape, (std::vector<std::int64_t>{32, 5})) << "what was computed";
}

TEST_F(Run, EndsWithTheSummaryAsItsLastLineOfJsonWhereAMissedBudgetEndsIt) {
  const Outcome outcome =
      run_halotap({"run", pipeline_file(folder_.file("y.npy")), "--json", "--force", "--set",
                   "latency.budget_ms=0.000001", "--set", "latency.on_miss=stop", "--set", "latency.miss_after=2"});
  EXPECT_EQ(outcome.exit_code, 1);
  const std::vector<nlohmann::json> told = Outcome::json_lines(outcome.out);
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back()["line"], "summary");
  EXPECT_EQ(told.back()["frames_out"], 32);
  EXPECT_EQ(told.back()["latency"]["whole"]["misses"], 2);
  EXPECT_EQ(told.back()["timed_budget_ms"], 0);
}

}  // namespace
}  // namespace halotap::apps
