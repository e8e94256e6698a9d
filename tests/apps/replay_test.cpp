#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <thread>

#include "array_file.hpp"
#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

class Replay : public testing::Test {
 protected:
  Outcome replay(std::vector<std::string> more, const Surroundings& surroundings = {}) {
    more.insert(more.begin(), {"replay", "--model", model_, "--input", input_});
    return run_halotap(more, surroundings);
  }

  test::ScratchFolder folder_;
  std::string model_ = golden("stack_same", "model.yaml");
  std::string input_ = golden("stack_same", "x.npy");
};

TEST_F(Replay, WritesTheSameBytesHoweverItIsCut) {
  ASSERT_EQ(replay({"--output", folder_.file("whole.npy"), "--offline"}).exit_code, 0);
  const std::string whole = test::ScratchFolder::content(folder_.file("whole.npy"));
  const std::vector<std::vector<std::string>> cuts{{"--chunk", "1"},        {"--chunk", "7"},   {"--chunk", "1048576"},
                                                   {"--chunk", "random:3"}, {"--speed", "100"}, {"--workers", "2"}};
  for (std::vector<std::string> cut : cuts) {
    const std::string name = cut.back();
    cut.insert(cut.end(), {"--output", folder_.file("cut.npy")});
    const Outcome outcome = replay(cut);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(test::ScratchFolder::content(folder_.file("cut.npy")) == whole) << name;
  }
}

// A pipeline file over the same model, whose source and sinks are not there.
std::string staged_pipeline(const test::ScratchFolder& folder, const std::string& model) {
  return folder.write("p.yaml",
                      "format: halotap-pipeline/1\nsource: {uri: nowhere.wav}\nmodel: {file: " + model +
                          "}\nchunk_frames: 5\nstages:\n  - {type: smooth, attack_ms: 2}\n"
                          "  - {type: threshold, channel: 0, on: 0.065, off: 0.06}\n  - {type: decimate, factor: 3}\n"
                          "sinks: [{uri: nowhere/y.npy}]\n");
}

TEST_F(Replay, WritesTheSameResultsAndEventsBehindStagesHoweverItIsCut) {
  const std::string file = staged_pipeline(folder_, model_);
  const auto replay_staged = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"replay", "--pipeline", file, "--input", input_, "--output", folder_.file("y.npy"),
                               "--output", folder_.file("y.jsonl"), "--json"});
    const Outcome outcome = run_halotap(more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.json();
  };
  const auto summary = replay_staged({});
  EXPECT_EQ(summary["chunk_frames"], 5);  // the file's
  ASSERT_EQ(summary["stages"].size(), 3u);
  const auto frames = summary["frames"].get<std::int64_t>();
  EXPECT_EQ(summary["frames_out"], (frames + 2) / 3);
  const std::vector<std::int64_t> shape = read_array(input_).shape;
  EXPECT_EQ(read_array(folder_.file("y.npy")).shape, (std::vector<std::int64_t>{shape[0], 16, (shape[2] + 2) / 3}));
  const std::string results = test::ScratchFolder::content(folder_.file("y.npy"));
  const std::string lines = test::ScratchFolder::content(folder_.file("y.jsonl"));
  EXPECT_NE(lines.find("{\"event\": \"on\", "), std::string::npos);
  for (const std::vector<std::string>& cut :
       std::vector<std::vector<std::string>>{{"--chunk", "1"}, {"--chunk", "1048576"}, {"--chunk", "random:3"}}) {
    replay_staged(cut);
    EXPECT_TRUE(test::ScratchFolder::content(folder_.file("y.npy")) == results) << cut.back();
    EXPECT_TRUE(test::ScratchFolder::content(folder_.file("y.jsonl")) == lines) << cut.back();
  }
  const Outcome verified = run_halotap(
      {"verify", "--pipeline", file, "--input", input_, "--expect", folder_.file("y.npy"), "--rel-l2", "0"});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
}

TEST_F(Replay, SaysOfTwoMeasuresOfItsSpeedWhatEachIs) {
  const std::string text = replay({"--output", folder_.file("y.npy")}).out;
  const std::regex shape(
      "\nreal time  0.25 s in ([0-9.]+) ([mu]?)s: ([0-9.]+) times real time "
      "\\(real-time factor, time taken over duration: ([0-9.e-]+)\\)\n");
  std::smatch figures;
  ASSERT_TRUE(std::regex_search(text, figures, shape)) << text;
  const double factor = std::stod(figures[1]) * (figures[2] == "u" ? 1e-6 : figures[2] == "m" ? 1e-3 : 1) / 0.25;
  EXPECT_NEAR(std::stod(figures[3]), 1 / factor, 0.02 / factor);
  EXPECT_NEAR(std::stod(figures[4]), factor, 0.02 * factor);
}

TEST_F(Replay, SaysWhatOfACardsOptionsDoesNothing) {
  const std::string file =
      folder_.write("p.yaml", "format: halotap-pipeline/1\nsource: {uri: nowhere.wav}\nmodel: {file: " + model_ +
                                  ", cuda: {wait: block}}\nchunk_frames: 5\nsinks: [{uri: nowhere/y.npy}]\n");
  const auto said = [&](std::vector<std::string> more, bool card) {
    more.insert(more.begin(), {"replay", "--input", input_, "--output", folder_.file("y.npy")});
    const Outcome outcome = run_halotap(more, {.card = card});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_LE(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return outcome.err;
  };
  for (const bool card : {false, true}) {  // with worker threads it makes no difference
    EXPECT_EQ(said({"--model", model_, "--workers", "1"}, card), "");
    EXPECT_TRUE(said({"--model", model_, "--cuda-wait", "yield", "--workers", "1"}, card)
                    .ends_with("): only the cpu has worker threads; not used: --cuda-wait\n"));
    EXPECT_TRUE(said({"--pipeline", file, "--workers", "1"}, card).ends_with("; not used: model.cuda\n"));
    EXPECT_TRUE(said({"--pipeline", file, "--cuda-invocation", "launch", "--workers", "1"}, card)
                    .ends_with("; not used: model.cuda, --cuda-invocation\n"));
  }
  EXPECT_EQ(said({"--pipeline", file, "--backend", "cuda", "--cuda-invocation", "launch"}, true),
            "halotap: backend host: asked for\n");
}

TEST_F(Replay, RefusesToOverwriteThePipelineFileItReads) {
  const std::string file = staged_pipeline(folder_, model_);
  const Outcome outcome = run_halotap({"replay", "--pipeline", file, "--input", input_, "--output", "jsonl://" + file});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("same file as the input"), std::string::npos) << outcome.err;
}

TEST_F(Replay, TakesNoMoreMemoryForAChunkThanTheRecordingFills) {
  const std::int64_t short_kib = replay({"--output", folder_.file("y.npy")}).peak_kib;
  // 2^20 frames of 54 channels are 226 MB a stream, twice: in the ring and before the engine.
  EXPECT_LT(replay({"--output", folder_.file("y.npy"), "--chunk", "1048576"}).peak_kib, 2 * short_kib);
}

TEST_F(Replay, WritesInTheArrangementOfTheInput) {
  const ArrayFile x = read_array(input_);
  ASSERT_EQ(replay({"--output", folder_.file("y.npy")}).exit_code, 0);
  const ArrayFile y = read_array(folder_.file("y.npy"));
  EXPECT_EQ(y.type, "<f4");
  EXPECT_EQ(y.shape, read_array(golden("stack_same", "y.npy")).shape);

  // The first stream alone as [frames, channels].
  const std::int64_t channels = x.shape[1];
  const std::int64_t frames = x.shape[2];
  ArrayFile recording{"<f4", {frames, channels}, {}};
  for (std::int64_t t = 0; t < frames; ++t) {
    for (std::int64_t c = 0; c < channels; ++c) {
      recording.values.push_back(x.values[static_cast<std::size_t>(c * frames + t)]);
    }
  }
  write_array(folder_.file("recording.npy"), recording);
  input_ = folder_.file("recording.npy");
  ASSERT_EQ(replay({"--output", folder_.file("flat.npy")}).exit_code, 0);
  const ArrayFile flat = read_array(folder_.file("flat.npy"));
  ASSERT_EQ(flat.shape, (std::vector<std::int64_t>{frames, y.shape[1]}));
  for (std::int64_t t = 0; t < frames; ++t) {
    for (std::int64_t c = 0; c < y.shape[1]; ++c) {
      ASSERT_EQ(flat.values[static_cast<std::size_t>(t * y.shape[1] + c)],
                y.values[static_cast<std::size_t>(c * frames + t)]);
    }
  }
}

TEST_F(Replay, WritesEveryOutputAskedFor) {
  const Outcome outcome = replay({"--output", folder_.file("a.npy"), "--output", "npy://" + (folder_.file("b"))});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(test::ScratchFolder::content(folder_.file("a.npy")), test::ScratchFolder::content(folder_.file("b")));
  EXPECT_EQ(folder_.entries(), 2u);
}

TEST_F(Replay, PrintsItsFiguresAsJson) {
  const Outcome outcome = replay({"--output", folder_.file("y.npy"), "--chunk", "16", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto facts = nlohmann::json::parse(test::ScratchFolder::content(golden("stack_same", "case.json")));
  const auto result = outcome.json();
  EXPECT_EQ(result["frames"], facts["frames"]);
  EXPECT_EQ(result["frames_out"], facts["frames"]);
  EXPECT_EQ(result["frames_dropped"], 0);
  EXPECT_EQ(result["streams"], facts["streams"]);
  EXPECT_EQ(result["lookahead_frames"], facts["lookahead_frames"]);
  EXPECT_EQ(result["algorithmic_latency_frames"], 15 + facts["lookahead_frames"].get<int>());
  EXPECT_EQ(result["chunks"], facts["frames"].get<int>() / 16);
  for (const char* figure : {"real_time_factor", "duration_s", "elapsed_s", "p50_us", "p99_us", "p999_us", "max_us"}) {
    EXPECT_GT(result[figure], 0) << figure;
  }
  EXPECT_FALSE(result["stopped"]);
}

TEST_F(Replay, PrintsItsSummaryBesideResultsOnStandardOutput) {
  const Outcome outcome = replay({"--output", "jsonl://-", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto summary = nlohmann::json::parse(outcome.err, nullptr, false);
  ASSERT_TRUE(summary.is_object()) << outcome.err;
  EXPECT_EQ(summary["sinks"], nlohmann::json{"jsonl://-"});
  std::istringstream lines(outcome.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    ASSERT_FALSE(nlohmann::json::parse(line, nullptr, false).is_discarded()) << line;
  }
  EXPECT_GT(count, 0);
}

TEST_F(Replay, NeverTakesAFileForAStandardFileThatIsClosed) {
  input_ = "synth://noise?channels=54&rate=1000&frames=30";
  Surroundings closed;
  closed.closed = {STDOUT_FILENO};
  const Outcome outcome = replay({"--output", folder_.file("y.npy"), "--output", "csv://-"}, closed);
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("standard output"), std::string::npos) << outcome.err;
  EXPECT_EQ(folder_.entries(), 0u);

  closed.closed = {STDIN_FILENO, STDERR_FILENO};
  EXPECT_EQ(replay({"--output", folder_.file("y.npy"), "--output", "csv://-"}, closed).exit_code, 0);
  EXPECT_EQ(read_array(folder_.file("y.npy")).shape[0], 30);
}

TEST_F(Replay, NeverOverwritesWhatItReads) {
  for (const char* name : {"model.yaml", "weights.safetensors", "x.npy"}) {
    std::filesystem::copy_file(golden("stack_same", name), folder_.file(name));
  }
  model_ = folder_.file("model.yaml");
  input_ = folder_.file("x.npy");
  for (const std::string name : {"model.yaml", "weights.safetensors", "x.npy", "./x.npy"}) {
    const std::string before = test::ScratchFolder::content(folder_.file(name));
    const Outcome outcome = replay({"--output", "npy://" + (folder_.file(name))});
    EXPECT_EQ(outcome.exit_code, 2) << name;
    EXPECT_NE(outcome.err.find(name), std::string::npos) << outcome.err;
    EXPECT_EQ(test::ScratchFolder::content(folder_.file(name)), before);
  }
  EXPECT_EQ(replay({"--output", folder_.file("y.npy"), "--output", folder_.file("y.npy")}).exit_code, 2);
  EXPECT_EQ(folder_.entries(), 3u);
}

TEST_F(Replay, LeavesNothingBehindWhenTheDiskIsFull) {
  Surroundings full;
  full.file_size_limit = 4096;
  for (const char* cut : {"--chunk=7", "--offline"}) {
    const Outcome outcome = replay({"--output", folder_.file("y.npy"), cut}, full);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_NE(outcome.err.find("y.npy"), std::string::npos) << outcome.err;
    EXPECT_EQ(folder_.entries(), 0u);
  }
}

TEST_F(Replay, DrawsThePlotUnderTheNameGiven) {
  const Outcome outcome = replay({"--plot", folder_.file("100 %?.png")});
  if (outcome.err.find("left out of this build") != std::string::npos) GTEST_SKIP() << outcome.err;
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(test::ScratchFolder::content(folder_.file("100 %?.png")).substr(1, 3), "PNG");
}

TEST_F(Replay, KeepsWhatWasComputedWhenInterrupted) {
  const ArrayFile x = read_array(input_);
  // Slow enough to last minutes, so that the signal always comes before the end.
  Surroundings interrupted;
  interrupted.meanwhile = [this](pid_t process) {
    while (folder_.entries() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    kill(process, SIGINT);
  };
  const Outcome outcome = replay({"--output", folder_.file("y.npy"), "--speed", "0.001", "--json"}, interrupted);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("stopped early"), std::string::npos) << outcome.err;
  const auto result = outcome.json();
  EXPECT_TRUE(result["stopped"]);
  EXPECT_LT(result["frames"], x.shape[2]);
  EXPECT_EQ(result["frames_out"], result["frames"]);
  EXPECT_EQ(read_array(folder_.file("y.npy")).shape[2], result["frames"]);
}

}  // namespace
}  // namespace halotap::apps
