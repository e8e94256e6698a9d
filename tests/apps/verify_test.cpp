#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "array_file.hpp"
#include "program.hpp"
#include "scratch_folder.hpp"

namespace halotap::apps {
namespace {

// The golden case block_same with a changed expectation.
class Verify : public testing::Test {
 protected:
  Outcome verify(const ArrayFile& expectation, std::vector<std::string> more = {"--json"}) {
    write_array(folder_.file("expected.npy"), expectation);
    more.insert(more.begin(), {"verify", "--model", golden("block_same", "model.yaml"), "--input", input_, "--expect",
                               folder_.file("expected.npy")});
    return run_halotap(more);
  }

  test::ScratchFolder folder_;
  std::string input_ = golden("block_same", "x.npy");
  ArrayFile expected_ = read_array(golden("block_same", "y.npy"));  // [streams, channels, frames]
};

TEST_F(Verify, PassesAndPrintsItsFigures) {
  const Outcome outcome = verify(expected_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto result = outcome.json();
  EXPECT_TRUE(result["pass"]);
  EXPECT_GT(result["rel_l2"], 0);
  EXPECT_LT(result["rel_l2"], 1e-6);
  EXPECT_GT(result["max_abs"], 0);
  EXPECT_EQ(result["streams"], expected_.shape[0]);
  EXPECT_EQ(result["channels"], expected_.shape[1]);
  EXPECT_EQ(result["frames"], expected_.shape[2]);
  EXPECT_EQ(result["first_mismatch"], nullptr);
}

TEST_F(Verify, ComparesWithAFloat64ExpectationUnrounded) {
  const auto exact = verify(expected_).json();
  expected_.type = "<f4";
  const auto rounded = verify(expected_).json();
  EXPECT_NE(exact["rel_l2"], rounded["rel_l2"]);
}

TEST_F(Verify, FailsAtTheFirstSampleThatIsNotAsExpected) {
  const std::int64_t channels = expected_.shape[1];
  const std::int64_t frames = expected_.shape[2];
  expected_.values[static_cast<std::size_t>((1 * channels + 5) * frames + 40)] += 1;
  expected_.values[static_cast<std::size_t>((0 * channels + 2) * frames + 41)] -= 7;
  const Outcome outcome = verify(expected_);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("first at stream 1, channel 5, frame 40: expected "), std::string::npos) << outcome.err;
  const auto result = outcome.json();
  EXPECT_FALSE(result["pass"]);
  EXPECT_NEAR(result["max_abs"].get<double>(), 7, 1e-4);
  EXPECT_EQ(result["first_mismatch"]["frame"], 40);
}

TEST_F(Verify, PassesWhenEitherToleranceHolds) {
  for (double& value : expected_.values) value += 1e-3;
  EXPECT_EQ(verify(expected_).exit_code, 1);
  EXPECT_EQ(verify(expected_, {"--rel-l2", "0.1", "--abs", "0"}).exit_code, 0);
  EXPECT_EQ(verify(expected_, {"--rel-l2", "0", "--abs", "0.0011"}).exit_code, 0);
  EXPECT_EQ(verify(expected_, {"--rel-l2", "0", "--abs", "0.0009"}).exit_code, 1);
}

TEST_F(Verify, AnAbsoluteToleranceAloneIsTheWholeCheck) {
  EXPECT_EQ(verify(expected_).exit_code, 0);
  EXPECT_EQ(verify(expected_, {"--abs", "1e-20"}).exit_code, 1);
}

TEST_F(Verify, RefusesAnotherShapeAndNamesBothValues) {
  const std::string frames = std::to_string(expected_.shape[2]);
  ArrayFile longer = expected_;
  longer.shape[2] += 1;
  longer.values.resize(longer.values.size() + static_cast<std::size_t>(longer.shape[0] * longer.shape[1]));
  Outcome outcome = verify(longer, {});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("frames: expected " + frames), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(std::to_string(longer.shape[2])), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.out, "");

  ArrayFile one_stream = expected_;
  one_stream.shape[0] = 1;
  one_stream.values.resize(one_stream.values.size() / static_cast<std::size_t>(expected_.shape[0]));
  outcome = verify(one_stream, {});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find("streams: expected 2"), std::string::npos) << outcome.err;

  ArrayFile other_channels = expected_;
  std::swap(other_channels.shape[1], other_channels.shape[2]);
  outcome = verify(other_channels, {});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_NE(outcome.err.find(std::to_string(expected_.shape[1])), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(std::to_string(expected_.shape[2])), std::string::npos) << outcome.err;
}

TEST_F(Verify, NanAndInfinityEqualThemselvesOnly) {
  ArrayFile x = read_array(input_);
  x.values[10] = std::numeric_limits<double>::quiet_NaN();
  x.values[100] = std::numeric_limits<double>::infinity();
  write_array(folder_.file("x.npy"), x);
  input_ = folder_.file("x.npy");
  const Outcome replayed = run_halotap(
      {"replay", "--model", golden("block_same", "model.yaml"), "--input", input_, "--output", folder_.file("y.npy")});
  ASSERT_EQ(replayed.exit_code, 0) << replayed.err;
  ArrayFile y = read_array(folder_.file("y.npy"));
  const auto nan = std::find_if(y.values.begin(), y.values.end(), [](double value) { return std::isnan(value); });
  ASSERT_NE(nan, y.values.end());

  const Outcome same = verify(y);
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_EQ(same.json()["max_abs"], 0);

  *nan = 0;
  const Outcome differs = verify(y, {"--json", "--rel-l2", "1e9", "--abs", "1e9"});
  EXPECT_EQ(differs.exit_code, 1);
  const auto result = differs.json();
  EXPECT_EQ(result["rel_l2"], nullptr);
  EXPECT_EQ(result["max_abs"], nullptr);
  EXPECT_EQ(result["non_finite_mismatches"], 1);
  EXPECT_NE(differs.err.find("got nan"), std::string::npos) << differs.err;
}

TEST_F(Verify, AnExpectationOfZerosHasNoRelativeError) {
  std::fill(expected_.values.begin(), expected_.values.end(), 0.0);
  const Outcome outcome = verify(expected_);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.json()["rel_l2"], nullptr);
  EXPECT_GT(outcome.json()["max_abs"], 0);
}

}  // namespace
}  // namespace halotap::apps
