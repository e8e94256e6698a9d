#include "cuda/device.hpp"

#include <gtest/gtest.h>

namespace halotap::kernels::cuda {
namespace {

TEST(Device, TakesACardThatTheBuildHasCodeFor) {
  EXPECT_EQ(refusal("Card", 80, true), "");
  EXPECT_EQ(refusal("Card", 120, true), "");
}

TEST(Device, RefusesAnOldCardByItsComputeCapability) {
  EXPECT_EQ(refusal("Card", 75, false), "Card has compute capability 7.5, expected 8.0 or later");
  EXPECT_EQ(refusal("Card", 75, true), refusal("Card", 75, false));
}

TEST(Device, SaysHowToBuildForACardWithoutCode) {
  EXPECT_EQ(refusal("Card", 120, false),
            "Card has compute capability 12.0, for which this build has no code: configure with "
            "-DHALOTAP_CUDA_ARCHITECTURES=120 or =all");
}

}  // namespace
}  // namespace halotap::kernels::cuda
