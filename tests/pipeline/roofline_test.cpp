#include "halotap/pipeline/roofline.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {
namespace {

TEST(Roofline, GivesFiguresFromOneSampleOn) {
  Roofline roofline;
  for (int samples = 0; samples < 3; ++samples) {
    roofline.sample();
    for (const double figure : {roofline.gflops(), roofline.l2_gbytes_per_s()}) {
      EXPECT_TRUE(std::isfinite(figure));
      EXPECT_GT(figure, 0);
    }
  }
}

TEST(Roofline, RefusesALevelThatThereIsNot) {
  const char* before = std::getenv("HALOTAP_ISA");
  const std::string kept = before == nullptr ? "" : before;
  setenv("HALOTAP_ISA", "MMX", 1);
  Roofline roofline;
  EXPECT_THROW(roofline.sample(), ConfigError);
  setenv("HALOTAP_ISA", kept.c_str(), 1);  // empty: as if not set
}

}  // namespace
}  // namespace halotap::pipeline
