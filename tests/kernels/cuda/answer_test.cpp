#include "cuda/answer.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace halotap::kernels::cuda {
namespace {

std::int64_t now = 0;
std::int64_t tick() noexcept { return now += 1'000'000; }

TEST(Answer, IsWaitedForUntilItComes) {
  int asked = 0;
  EXPECT_TRUE(answers(tick, 100'000'000, [&] { return ++asked == 50; }));
  EXPECT_EQ(asked, 50);
  asked = 0;
  EXPECT_TRUE(answers(nullptr, 0, [&] { return ++asked == 1000; })) << "without a clock there is no limit";
}

TEST(Answer, IsGivenUpOnceTheLimitHasPassed) {
  const std::int64_t begun = now;
  EXPECT_FALSE(answers(tick, 100'000'000, [] { return false; }));
  EXPECT_GT(now - begun, 100'000'000);
  EXPECT_LT(now - begun, 110'000'000);
}

TEST(Answer, CountsWhenItCameWhileTheHostStoodStill) {
  int asked = 0;
  EXPECT_TRUE(answers(tick, 100'000'000, [&] {
    now += 10'000'000'000;  // behind the question
    return ++asked == 2;
  }));
}

TEST(Answer, SaysHowLongItWasWaitedFor) {
  NoAnswer silence;
  EXPECT_STREQ(silence.text(100'000'000), "no answer within 100 ms");
  EXPECT_STREQ(silence.text(1'234'567'890, " (injected)"), "no answer within 1234 ms (injected)");
  EXPECT_LT(std::strlen(silence.text(std::int64_t{1} << 62, std::string(500, 'x').c_str())), 128U);
}

}  // namespace
}  // namespace halotap::kernels::cuda
