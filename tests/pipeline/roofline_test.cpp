#include "halotap/pipeline/roofline.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <string>

#include "halotap/pipeline/errors.hpp"

namespace halotap::pipeline {
namespace {

TEST(MeasureRoofline, GivesFiguresHoweverShortTheTime) {
  const Roofline roofline = measure_roofline(std::chrono::nanoseconds(0));
  for (const double figure : {roofline.gflops, roofline.l2_gbytes_per_s}) {
    EXPECT_TRUE(std::isfinite(figure));
    EXPECT_GT(figure, 0);
  }
}

TEST(MeasureRoofline, RefusesALevelThatThereIsNot) {
  const char* before = std::getenv("HALOTAP_ISA");
  const std::string kept = before == nullptr ? "" : before;
  setenv("HALOTAP_ISA", "MMX", 1);
  EXPECT_THROW(measure_roofline(std::chrono::nanoseconds(0)), ConfigError);
  setenv("HALOTAP_ISA", kept.c_str(), 1);  // empty: as if not set
}

}  // namespace
}  // namespace halotap::pipeline
