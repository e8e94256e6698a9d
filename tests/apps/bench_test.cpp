#include <gtest/gtest.h>

#include "program.hpp"

namespace halotap::apps {
namespace {

void expect_figures(const nlohmann::json& result) {
  for (const char* figure : {"p50_us", "p99_us", "p999_us", "max_us", "gflops", "peak_gflops", "peak_fraction",
                             "gbytes_per_s", "l2_gbytes_per_s", "bytes_fraction", "copy_us", "noise_max_us"}) {
    ASSERT_TRUE(result.contains(figure)) << figure;
    EXPECT_GT(result[figure].get<double>(), 0) << figure;
  }
  EXPECT_LE(result["p50_us"], result["p99_us"]);
  EXPECT_LE(result["p99_us"], result["p999_us"]);
  for (const char* fact : {"device", "compiler", "commit"}) EXPECT_NE(result[fact].get<std::string>(), "") << fact;
  // 2 operations a multiply-accumulate; microseconds to giga.
  EXPECT_NEAR(result["gflops"].get<double>(), 2 * result["macs"].get<double>() / result["p50_us"].get<double>() / 1e3,
              1e-9 * result["gflops"].get<double>());
  EXPECT_NEAR(result["peak_fraction"].get<double>(),
              result["gflops"].get<double>() / result["peak_gflops"].get<double>(), 1e-9);
  EXPECT_NEAR(result["gbytes_per_s"].get<double>(),
              result["bytes"].get<double>() / result["p50_us"].get<double>() / 1e3,
              1e-9 * result["gbytes_per_s"].get<double>());
  EXPECT_NEAR(result["bytes_fraction"].get<double>(),
              result["gbytes_per_s"].get<double>() / result["l2_gbytes_per_s"].get<double>(), 1e-9);
}

TEST(Bench, MeasuresAStack) {
  const Outcome outcome =
      run_halotap({"bench", "stack", "--layers", "3", "--channels", "16", "--kernel", "3", "--chunk", "8", "--streams",
                   "2", "--backend", "cpu", "--seconds", "0.05", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = outcome.json();
  expect_figures(result);
  EXPECT_EQ(result["macs"], 3 * (16 * 3 + 16 * 16) * 8 * 2);
  // Weights and biases of three layers, then input and output of two streams.
  EXPECT_EQ(result["bytes"], 4 * (3 * (16 * 4 + 16 * 17) + 2 * 8 * (16 + 16)));
  EXPECT_EQ(result["dilations"], (nlohmann::json{1, 2, 4, 8}));
}

TEST(Bench, MeasuresABlock) {
  const Outcome outcome = run_halotap({"bench", "block", "--batch", "2", "--channels", "8", "--out-channels", "4",
                                       "--kernel", "5", "--frames", "100", "--seconds", "0.05", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = outcome.json();
  expect_figures(result);
  EXPECT_EQ(result["macs"], (8 * 5 + 8 * 4) * 100 * 2);
  EXPECT_EQ(result["bytes"], 4 * (8 * 6 + 4 * 9 + 2 * 100 * (8 + 4)));
}

TEST(Bench, MeasuresAModelFromAFile) {
  const std::string model = golden("wide_in", "model.yaml");
  const Outcome shape = run_halotap({"inspect", model, "--json"});
  const Outcome outcome =
      run_halotap({"bench", "stack", "--model", model, "--chunk", "4", "--seconds", "0.05", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = outcome.json();
  expect_figures(result);
  EXPECT_EQ(result["model"], model);
  EXPECT_EQ(result["layers"], shape.json()["layers"].size());
  EXPECT_EQ(result["channels"], shape.json()["in_channels"]);
  EXPECT_EQ(result["out_channels"], shape.json()["out_channels"]);
  EXPECT_EQ(result["macs"], shape.json()["macs_per_frame"].get<std::int64_t>() * 4);
}

TEST(Bench, CountsTheBytesOfAPointwiseLayerWithoutTaps) {
  const std::string model = std::string(HALOTAP_SOURCE_DIR) + "/configs/cochlea/model.yaml";
  const Outcome outcome =
      run_halotap({"bench", "stack", "--model", model, "--chunk", "10", "--seconds", "0.05", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::int64_t mix = 32 * 33;
  const std::int64_t taps_and_biases = 32 * (32 + 26 + 30 + 30 + 16 + 33);
  const std::int64_t numbers = 32 * 2 + taps_and_biases + 6 * mix;
  EXPECT_EQ(outcome.json()["bytes"], 4 * (numbers + 10 * (1 + 32)));
}

TEST(Bench, SaysWhichFileItCannotRead) {
  const Outcome outcome = run_halotap({"bench", "stack", "--model", "none.yaml"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("none.yaml"), std::string::npos) << outcome.err;
}

TEST(Bench, RefusesSamplesOf16BitsOnTheCpu) {
  for (const std::string samples : {"bf16", "fp16"}) {
    const Outcome outcome = run_halotap({"bench", "block", "--samples", samples, "--backend", "cpu"});
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err,
              "halotap: --samples: expected fp32, which is what the cpu backend takes, got " + samples + '\n');
  }
  const Outcome outcome =
      run_halotap({"bench", "block", "--channels", "4", "--frames", "8", "--seconds", "0.001", "--json"});
  EXPECT_EQ(outcome.json()["samples"], "fp32");
}

TEST(Bench, RefusesWhatNoMachineHolds) {
  const Outcome outcome = run_halotap({"bench", "block", "--batch", "1000000", "--frames", "1000000"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("input and output samples: expected at most"), std::string::npos) << outcome.err;
  const Outcome heavy = run_halotap({"bench", "stack", "--layers", "4096", "--channels", "16384"});
  EXPECT_EQ(heavy.exit_code, 2);
  EXPECT_NE(heavy.err.find("weights: expected at most"), std::string::npos) << heavy.err;
}

}  // namespace
}  // namespace halotap::apps
