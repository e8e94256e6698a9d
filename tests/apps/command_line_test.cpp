#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <utility>

#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

// One line that begins with the program's name.
void expect_one_message(const Outcome& outcome, const std::string& part) {
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.substr(0, 9), "halotap: ");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
}

TEST(CommandLine, TellsItsVersionCommitAndCompiler) {
  const Outcome outcome = run_halotap({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  const std::regex shape("halotap [0-9.]+ \\(commit ([0-9a-f]{12}(-dirty)?|unknown); .*\\)\n");
  EXPECT_TRUE(std::regex_match(outcome.out, shape)) << outcome.out;
}

TEST(CommandLine, HelpNamesEveryCommandAndTheExitCodes) {
  const Outcome outcome = run_halotap({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* word : {"replay", "verify", "inspect", "bench", "run", "plan", "Exit codes"}) {
    EXPECT_NE(outcome.out.find(word), std::string::npos) << word;
  }
}

TEST(CommandLine, HelpOfEveryCommandHasAnExample) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"replay"}, {"verify"}, {"inspect"}, {"run"}, {"plan"}, {"bench"}, {"bench", "block"}, {"bench", "stack"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    const Outcome outcome = run_halotap(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << command.back();
    EXPECT_NE(outcome.out.find("  halotap " + command.front()), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find(":INT in"), std::string::npos) << "the library's own words in: " << outcome.out;
  }
}

TEST(CommandLine, HelpOfReplayNamesTheSchemesOfThisBuild) {
  const Outcome outcome = run_halotap({"replay", "--help"});
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("Inputs of this build:.* npy"))) << outcome.out;
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("Outputs of this build:.* npy"))) << outcome.out;
}

TEST(CommandLine, HelpNamesEveryOptionThatAPipelineFileGives) {
  for (const std::string command : {"replay", "verify"}) {
    const std::string help = run_halotap({command, "--help"}).out;
    const std::size_t begin = help.find("Pipeline file instead: ");
    ASSERT_NE(begin, std::string::npos) << help;
    const std::string line = help.substr(begin, help.find('\n', begin) - begin);
    for (const char* word : {"model", "stages", "input.on_invalid", "--backend", "--precision", "--cuda-invocation",
                             "--cuda-wait", "--cuda-resident-clusters", "--chunk"}) {
      EXPECT_NE(line.find(word), std::string::npos) << command << ": " << word;
    }
    EXPECT_EQ(line.find("--fallback") != std::string::npos, command == "replay");
  }
}

TEST(CommandLine, BadUsageIsOneLineAndExitCodeTwo) {
  const std::string model = golden("stack_same", "model.yaml");
  const std::string input = golden("stack_same", "x.npy");
  const std::vector<std::pair<std::vector<std::string>, std::string>> usages{
      {{}, "subcommand"},
      {{"play"}, "'play'"},
      {{"bench"}, "subcommand"},
      {{"bench", "blocks"}, "'blocks'"},
      {{"replay"}, "--input"},
      {{"replay", "--input", input, "--output", "o.npy"}, "--model or --pipeline"},
      {{"replay", "--model", model, "--pipeline", "p.yaml", "--input", input, "--output", "o.npy"}, "--pipeline"},
      {{"replay", "--pipeline", "p.yaml", "--input", input, "--output", "o.npy", "--offline"}, "--offline"},
      {{"replay", "--model", model, "--input", input}, "--output"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--loud"}, "--loud"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--chunk", "0"}, "'0'"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--chunk", "1048577"}, "1048577"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--chunk", "7.5"}, "7.5"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--chunk", "random:"}, "random:"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--speed", "0"}, "--speed"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--speed", "nan"}, "--speed"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--backend", "tpu"}, "tpu"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--precision", "fp8"}, "fp8"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--fallback", "cuda"}, "cpu or none"},
      {{"verify", "--model", model, "--input", input, "--expect", input, "--fallback", "cpu"}, "--fallback"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--cuda-invocation", "graph"},
       "--cuda-invocation: expected layers, launch or resident, got 'graph'"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--cuda-wait", "sleep"},
       "--cuda-wait: expected spin, yield or block, got 'sleep'"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--cuda-resident-clusters", "0"},
       "--cuda-resident-clusters: expected a whole number from 1 to 1048576, got '0'"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--cuda-resident-clusters", "2",
        "--cuda-invocation", "launch"},
       "--cuda-resident-clusters: expected --cuda-invocation resident, got launch"},
      {{"verify", "--model", model, "--input", input, "--expect", input, "--cuda-invocation", "resident", "--backend",
        "cpu"},
       "--cuda-invocation: expected backend cuda or auto, got cpu"},
      {{"bench", "stack", "--cuda-wait", "block", "--backend", "cpu"}, "--cuda-wait: expected backend cuda or auto"},
      {{"inspect", model, "--cuda-resident-clusters", "2"}, "expected --cuda-invocation resident"},
      {{"inspect", model, "--chunk", "0x10"}, "--chunk: expected a whole number from 1 to 1048576, got '0x10'"},
      {{"inspect", model, "--streams", "2k"}, "--streams: expected a whole number"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--workers", "-1"}, "from 0 to 256"},
      {{"replay", "--model", model, "--input", input, "--output", "o.npy", "--offline", "--chunk", "8"}, "--offline"},
      {{"verify", "--model", model, "--input", input, "--expect", input, "--rel-l2", "-1"}, "--rel-l2"},
      {{"verify", "--model", model, "--input", input, "--expect", input, "--abs", "nan"}, "--abs"},
      {{"run", "p.yaml", "--duration", "10"}, "10s"},
      {{"bench", "stack", "--layers", "0"}, "--layers: expected a whole number from 1 to"},
      {{"bench", "stack", "--dilations", "1,,2"}, "--dilations"},
      {{"bench", "stack", "--seconds", "0"}, "--seconds"},
      {{"bench", "stack", "--seconds", "nan"}, "'nan'"},
      {{"bench", "stack", "--model", model, "--layers", "2"}, "--layers excludes --model"},
      {{"bench", "stack", "--model", model, "--channels", "8"}, "--channels excludes --model"},
      {{"bench", "stack", "--model", model, "--kernel", "3"}, "--kernel excludes --model"},
      {{"bench", "stack", "--model", model, "--dilations", "1"}, "--dilations excludes --model"},
  };
  for (const auto& [arguments, part] : usages) {
    const Outcome outcome = run_halotap(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << part;
    expect_one_message(outcome, part);
  }
}

TEST(CommandLine, UsageMessagePointsAtTheHelpOfTheCommand) {
  expect_one_message(run_halotap({"bench", "block", "--loud"}), "(see halotap bench block --help)");
}

TEST(CommandLine, AMissingFileIsOneLineThatNamesIt) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"inspect", "nowhere/model.yaml"},
           {"run", "nowhere/model.yaml"},
           {"replay", "--model", "nowhere/model.yaml", "--input", "x.npy", "--output", "y.npy"}}) {
    const Outcome outcome = run_halotap(arguments);
    EXPECT_EQ(outcome.exit_code, 2);
    expect_one_message(outcome, "nowhere/model.yaml");
  }
}

TEST(CommandLine, ControlCharactersOfAFileNameDoNotReachTheTerminal) {
  const Outcome outcome = run_halotap({"inspect", "no\033[31m\nwhere.yaml"});
  EXPECT_EQ(outcome.exit_code, 2);
  expect_one_message(outcome, "where.yaml");
  EXPECT_EQ(outcome.err.find('\033'), std::string::npos);
}

// A replay that finds no card, whatever this machine has, and must leave no file.
Outcome replay_without_card(const std::string& option, const std::string& value) {
  test::ScratchFolder folder;
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  Outcome outcome = run_halotap({"replay", "--model", golden("stack_same", "model.yaml"), "--input",
                                 golden("stack_same", "x.npy"), "--output", folder.file("y.npy"), option, value});
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(folder.entries(), 0u);
  return outcome;
}

TEST(CommandLine, AMissingBackendIsADeviceFailure) {
  const Outcome outcome = replay_without_card("--backend", "cuda");
  EXPECT_EQ(outcome.exit_code, 3);
  expect_one_message(outcome, "backend cuda: ");
}

TEST(CommandLine, APrecisionThatWantsACardSaysSoAndWhyThereIsNone) {
  const Outcome outcome = replay_without_card("--precision", "bf16");
  EXPECT_EQ(outcome.exit_code, 2);
  expect_one_message(outcome, "precision: expected fp32 without a card, got bf16: backend cuda: ");
}

TEST(CommandLine, AFailureThatNobodyCanInjectIsBadUsageWhateverTheBackend) {
  test::ScratchFolder folder;
  const std::string model = golden("stack_same", "model.yaml");
  setenv("HALOTAP_INJECT_DEVICE_FAILURE", "error", 1);
  for (const bool card : {false, true}) {
    for (const std::string backend : {"auto", "cpu", "cuda"}) {
      const std::vector<std::string> arguments{
          "replay",    "--model", model, "--input", golden("stack_same", "x.npy"), "--output", folder.file("y.npy"),
          "--backend", backend};
      const Outcome outcome = run_halotap(arguments, {.card = card});
      EXPECT_EQ(outcome.exit_code, 2) << backend;
      expect_one_message(outcome,
                         "HALOTAP_INJECT_DEVICE_FAILURE: expected error:N or hang:N with a pass N from 1, got");
    }
    EXPECT_EQ(run_halotap({"inspect", model}, {.card = card}).exit_code, 2);
  }
  // A rehearsal that does not happen is not to look survived.
  setenv("HALOTAP_INJECT_DEVICE_FAILURE", "error:2", 1);
  const Outcome unused = run_halotap({"replay", "--model", model, "--input", golden("stack_same", "x.npy"), "--output",
                                      folder.file("y.npy"), "--backend", "cpu"});
  EXPECT_NE(unused.err.find("; not used: HALOTAP_INJECT_DEVICE_FAILURE\n"), std::string::npos) << unused.err;
  unsetenv("HALOTAP_INJECT_DEVICE_FAILURE");
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(CommandLine, AResultThatCannotBePrintedIsAnError) {
  Surroundings full;
  full.standard_output = "/dev/full";
  const Outcome outcome = run_halotap({"inspect", golden("stack_same", "model.yaml")}, full);
  EXPECT_EQ(outcome.exit_code, 2);
  expect_one_message(outcome, "standard output");
}

}  // namespace
}  // namespace halotap::apps
