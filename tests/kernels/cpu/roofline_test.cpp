#include "halotap/kernels/roofline.hpp"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "forced_level.hpp"

namespace halotap::kernels {
namespace {

TEST(MultiplyAddLoop, CountsTwoOperationsALaneAndSum) {
  const std::int64_t a_round = multiply_add_loop(1);
  EXPECT_GT(a_round, 0);
  EXPECT_EQ(a_round % 2, 0);
  EXPECT_EQ(multiply_add_loop(0), 0);
  EXPECT_EQ(multiply_add_loop(1000), 1000 * a_round);
}

TEST(ReadLoop, CountsEveryByteOfWholeKilobytes) {
  const std::vector<float> data(3 * 256, 1.0f);
  EXPECT_EQ(read_loop(data, 5), 5 * 3 * 1024);
  EXPECT_EQ(read_loop({}, 5), 0);
}

TEST(ReadLoop, LeavesARestOfLessThanAKilobyteAlone) {
  const std::vector<float> data(4 * 256 - 1, 1.0f);
  const std::int64_t bytes = read_loop(data, 1);
  EXPECT_GE(bytes, 3 * 1024);
  EXPECT_LT(bytes, 4 * 1024);
}

TEST(MultiplyAddLoop, RunsAtTheLevelThatHalotapIsaNames) {
  const auto levels = hwy::SupportedAndGeneratedTargets();
  const bool both =
      std::count(levels.begin(), levels.end(), HWY_AVX2) + std::count(levels.begin(), levels.end(), HWY_SSE4) == 2;
  if (!both) GTEST_SKIP() << "needs AVX2 and SSE4, which have as many registers and vectors of different lengths";
  std::int64_t wide = 0;
  {
    const ForcedLevel forced("AVX2");
    wide = multiply_add_loop(1);
  }
  const ForcedLevel forced("SSE4");
  EXPECT_EQ(wide, 2 * multiply_add_loop(1));
}

TEST(RooflineLoops, RefuseALevelThatThereIsNot) {
  const ForcedLevel forced("MMX");
  EXPECT_THROW(multiply_add_loop(1), std::invalid_argument);
  EXPECT_THROW(read_loop({}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace halotap::kernels
