// Every golden case, against PyTorch's float64 result, through the command line: however the recording is cut, the
// result is within four times the error of PyTorch's own float32 run.
#include <gtest/gtest.h>

#include <algorithm>

#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const auto& folder : std::filesystem::directory_iterator(std::string(HALOTAP_TEST_DATA) + "/golden")) {
    names.push_back(folder.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, CaseVerifiesHoweverItIsCut) {
  const std::string& name = GetParam();
  const auto facts = nlohmann::json::parse(test::ScratchFolder::content(golden(name, "case.json")));
  const double tolerance = 4 * facts["torch_fp32_rel_l2"].get<double>() + 1e-7;
  const std::vector<std::vector<std::string>> cuts{
      {"--chunk", "1"},        {"--chunk", "7"},        {"--chunk", "64"},
      {"--chunk", "random:1"}, {"--chunk", "random:2"}, {"--chunk", "random:3"},
      {"--chunk", "random:4"}, {"--chunk", "random:5"}, {"--offline"}};
  for (const auto& cut : cuts) {
    SCOPED_TRACE(cut.back());
    std::vector<std::string> arguments{"verify",
                                       "--model",
                                       golden(name, "model.yaml"),
                                       "--input",
                                       golden(name, "x.npy"),
                                       "--expect",
                                       golden(name, "y.npy"),
                                       "--rel-l2",
                                       nlohmann::json(tolerance).dump(),
                                       "--json"};
    arguments.insert(arguments.end(), cut.begin(), cut.end());
    const Outcome outcome = run_halotap(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    const auto result = outcome.json();
    EXPECT_EQ(result["frames"], facts["frames"]);
    EXPECT_EQ(result["streams"], facts["streams"]);
    EXPECT_TRUE(result["rel_l2"] <= tolerance || result["max_abs"] <= 1e-30) << outcome.out;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, testing::ValuesIn(case_names()),
                         [](const testing::TestParamInfo<std::string>& golden_case) { return golden_case.param; });

}  // namespace
}  // namespace halotap::apps
