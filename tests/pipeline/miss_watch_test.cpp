#include "halotap/pipeline/miss_watch.hpp"

#include <gtest/gtest.h>

#include <string>

namespace halotap::pipeline {
namespace {

// One letter a chunk: what the watch says behind it, 'A' when it acts. `chunks` has 'x' for a late one.
std::string acts_on(MissWatch watch, const std::string& chunks) {
  std::string said;
  for (const char chunk : chunks) {
    watch.record(chunk == 'x');
    said += watch.acts() ? 'A' : '.';
  }
  return said;
}

TEST(MissWatch, ActsFromEnoughLateChunksOnEndUntilEnoughOnTime) {
  EXPECT_EQ(acts_on(MissWatch(3, 2), "xx.xxxxx.x..xx.xxx"), ".....AAAAAA......A");
}

TEST(MissWatch, ActsAtOnceWhenOneIsEnough) { EXPECT_EQ(acts_on(MissWatch(1, 1), ".x.xx."), ".A.AA."); }

}  // namespace
}  // namespace halotap::pipeline
