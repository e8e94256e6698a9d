#include "halotap/pipeline/clock.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace halotap::pipeline {
namespace {

std::string text(std::int64_t ns) { return duration_text(std::chrono::nanoseconds(ns)); }

TEST(Clock, TellsATimeInTheUnitThatPeopleRead) {
  EXPECT_EQ(text(0), "0 us");
  EXPECT_EQ(text(7), "0.007 us");
  EXPECT_EQ(text(12'345), "12.3 us");
  EXPECT_EQ(text(999'400), "999 us");
  EXPECT_EQ(text(999'500), "1 ms") << "never 1e+03 us";
  EXPECT_EQ(text(12'850'000), "12.8 ms");
  EXPECT_EQ(text(999'499'999), "999 ms");
  EXPECT_EQ(text(1'000'000'000), "1 s");
  EXPECT_EQ(text(61'234'567'890), "61.23 s");
  EXPECT_EQ(text(999'400'000'000), "999.4 s");
  EXPECT_EQ(text(86'400'000'000'000), "86400 s");
}

}  // namespace
}  // namespace halotap::pipeline
