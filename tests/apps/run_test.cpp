#include <gtest/gtest.h>

#include "array_file.hpp"
#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

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
  const auto result = outcome.json();
  EXPECT_EQ(result["frames"], 50);  // at 200 Hz
  EXPECT_EQ(result["chunk_frames"], 8);
  EXPECT_GE(result["elapsed_s"], 0.24);
  EXPECT_FALSE(result["stopped"]);
  EXPECT_EQ(read_array(folder_.file("y.npy")).shape, (std::vector<std::int64_t>{50, 5}));
}

TEST_F(Run, RefusesToOverwriteItsOwnPipelineFile) {
  const std::string file = pipeline_file("npy://" + (folder_.file("pipeline.yaml")));
  const std::string before = test::ScratchFolder::content(file);
  const Outcome outcome = run_halotap({"run", file, "--duration", "1s"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("pipeline.yaml"), std::string::npos) << outcome.err;
  EXPECT_EQ(test::ScratchFolder::content(file), before);
}

TEST_F(Run, ShowsProgressOnATerminalAndErasesIt) {
  if (!has_terminals()) GTEST_SKIP() << "this system lends no pseudo-terminals";
  Surroundings terminal;
  terminal.terminal = true;
  const std::vector<std::string> arguments{"run", pipeline_file(folder_.file("y.npy")), "--duration", "1s"};
  const Outcome outcome = run_halotap(arguments, terminal);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find(" frames, "), std::string::npos) << outcome.err;
  const std::size_t erased = outcome.err.rfind('\r', outcome.err.size() - 2);
  ASSERT_NE(erased, std::string::npos);
  EXPECT_EQ(outcome.err.substr(erased).find_first_not_of(" \r"), std::string::npos);

  EXPECT_EQ(run_halotap(arguments).err, "");
}

}  // namespace
}  // namespace halotap::apps
