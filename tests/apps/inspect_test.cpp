#include <gtest/gtest.h>

#include <sstream>

#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

TEST(Inspect, TellsReceptiveFieldAndLookaheadOfEveryGoldenCase) {
  for (const auto& folder : std::filesystem::directory_iterator(std::string(HALOTAP_TEST_DATA) + "/golden")) {
    const auto facts = nlohmann::json::parse(test::ScratchFolder::content(folder.path() / "case.json"));
    const Outcome outcome = run_halotap({"inspect", (folder.path() / "model.yaml").string(), "--json"});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    const auto shown = outcome.json();
    EXPECT_EQ(shown["receptive_field_frames"], facts["receptive_field"]) << folder.path();
    EXPECT_EQ(shown["lookahead_frames"], facts["lookahead_frames"]) << folder.path();
  }
}

TEST(Inspect, CountsWhatEveryLayerCosts) {
  const auto shown = run_halotap({"inspect", golden("stack_mixed", "model.yaml"), "--chunk", "1", "--json"}).json();
  EXPECT_EQ(shown["in_channels"], 12);
  EXPECT_EQ(shown["out_channels"], 5);
  EXPECT_EQ(shown["frame_rate_hz"], 200);
  EXPECT_EQ(shown["receptive_field_ms"], shown["receptive_field_frames"].get<double>() * 5);
  EXPECT_GT(shown["state_bytes_per_stream"], 0);
  EXPECT_EQ(shown["device"].get<std::string>().substr(0, 5), "cpu (");
  EXPECT_EQ(shown["backend"]["auto"], "cpu");
  EXPECT_EQ(shown["backend"]["reason"], "fewer than 100000 multiply-accumulates a call are no work for a card");
  EXPECT_TRUE(shown["backend"]["cpu_p999_us"].is_null());
  ASSERT_EQ(shown["layers"].size(), 4u);
  EXPECT_EQ(shown["layers"][0]["padding"], "same");
  EXPECT_EQ(shown["layers"][0]["macs_per_frame"], 12 * 5 + 12 * 32);
  EXPECT_EQ(shown["layers"][1]["halo_frames"], 3 * 3);
  EXPECT_EQ(shown["layers"][3]["type"], "pointwise");
  std::int64_t macs = 0;
  for (const auto& layer : shown["layers"]) macs += layer["macs_per_frame"].get<std::int64_t>();
  EXPECT_EQ(shown["macs_per_frame"], macs);
}

TEST(Inspect, TellsWhatOfACardsOptionsDoesNothing) {
  std::vector<std::string> arguments{"inspect", golden("stack_mixed", "model.yaml"), "--chunk", "1"};
  EXPECT_EQ(run_halotap(arguments).out.find("not used"), std::string::npos);
  arguments.insert(arguments.end(), {"--cuda-invocation", "resident", "--cuda-resident-clusters", "2"});
  EXPECT_NE(run_halotap(arguments).out.find(
                " are no work for a card; not used: --cuda-invocation, --cuda-resident-clusters\n"),
            std::string::npos);
  arguments.emplace_back("--json");
  EXPECT_EQ(run_halotap(arguments).json()["backend"]["unused"],
            (nlohmann::json{"--cuda-invocation", "--cuda-resident-clusters"}));
}

TEST(Inspect, TellsWithoutACardWhetherOneKernelRunsTheStack) {
  const std::string fits = golden("stack_mixed", "model.yaml");
  EXPECT_EQ(run_halotap({"inspect", fits, "--json"}).json()["one_kernel"],
            (nlohmann::json{{"fits", true}, {"reason", nullptr}}));
  EXPECT_NE(
      run_halotap({"inspect", fits}).out.find("on a card        one kernel for the whole stack (fp32, from Hopper on)"),
      std::string::npos);
  const std::string wide = golden("wide_in", "model.yaml");
  EXPECT_EQ(run_halotap({"inspect", wide, "--json"}).json()["one_kernel"],
            (nlohmann::json{{"fits", false}, {"reason", "layer layers.0 has 200 channels, more than 128"}}));
  EXPECT_NE(run_halotap({"inspect", wide}).out.find("on a card        a kernel a layer alone: layer layers.0 has"),
            std::string::npos);
}

TEST(Inspect, AlignsTheLayerTable) {
  const Outcome outcome = run_halotap({"inspect", golden("stack_mixed", "model.yaml")});
  EXPECT_EQ(outcome.exit_code, 0);
  const std::size_t table = outcome.out.find("\nlayer ");
  ASSERT_NE(table, std::string::npos) << outcome.out;
  std::istringstream lines(outcome.out.substr(table + 1));
  std::vector<std::size_t> widths;
  for (std::string line; std::getline(lines, line);) widths.push_back(line.size());
  ASSERT_EQ(widths.size(), 5u);
  for (const std::size_t width : widths) EXPECT_EQ(width, widths.front()) << outcome.out;
}

}  // namespace
}  // namespace halotap::apps
