#include <gtest/gtest.h>

#include "program.hpp"

namespace halotap::apps {
namespace {

void expect_figures(const nlohmann::json& result) {
  for (const char* figure : {"p50_us", "p99_us", "p999_us", "max_us", "gflops", "copy_us", "noise_max_us"}) {
    ASSERT_TRUE(result.contains(figure)) << figure;
    EXPECT_GT(result[figure].get<double>(), 0) << figure;
  }
  EXPECT_LE(result["p50_us"], result["p99_us"]);
  EXPECT_LE(result["p99_us"], result["p999_us"]);
  for (const char* fact : {"device", "compiler", "commit"}) EXPECT_NE(result[fact].get<std::string>(), "") << fact;
  // 2 operations a multiply-accumulate; microseconds to giga.
  EXPECT_NEAR(result["gflops"].get<double>(), 2 * result["macs"].get<double>() / result["p50_us"].get<double>() / 1e3,
              1e-9 * result["gflops"].get<double>());
}

TEST(Bench, MeasuresAStack) {
  const Outcome outcome =
      run_halotap({"bench", "stack", "--layers", "3", "--channels", "16", "--kernel", "3", "--chunk", "8", "--streams",
                   "2", "--backend", "cpu", "--seconds", "0.05", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = outcome.json();
  expect_figures(result);
  EXPECT_EQ(result["macs"], 3 * (16 * 3 + 16 * 16) * 8 * 2);
  EXPECT_EQ(result["dilations"], (nlohmann::json{1, 2, 4, 8}));
}

TEST(Bench, MeasuresABlock) {
  const Outcome outcome = run_halotap({"bench", "block", "--batch", "2", "--channels", "8", "--out-channels", "4",
                                       "--kernel", "5", "--frames", "100", "--seconds", "0.05", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = outcome.json();
  expect_figures(result);
  EXPECT_EQ(result["macs"], (8 * 5 + 8 * 4) * 100 * 2);
}

TEST(Bench, RefusesWhatNoMachineHolds) {
  const Outcome outcome = run_halotap({"bench", "block", "--batch", "1000000", "--frames", "1000000"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("input and output samples: expected at most"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace halotap::apps
