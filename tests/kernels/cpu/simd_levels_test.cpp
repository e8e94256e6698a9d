#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "forced_level.hpp"
#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/reference.hpp"
#include "random_stack.hpp"

namespace halotap::kernels {
namespace {

TEST(HalotapIsa, IsRefusedWhenItNamesNoLevelAndSaysWhichThereAre) {
  test::Random random(1);
  const auto stack = test::draw_stack(random);
  const ForcedLevel forced("MMX");
  try {
    make_cpu_executor(stack, {1, 1});
    FAIL() << "MMX was taken";
  } catch (const std::invalid_argument& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find("HALOTAP_ISA: expected one of "), 0u) << message;
    EXPECT_NE(message.find(", got 'MMX'"), std::string::npos) << message;
  }
}

TEST(HalotapIsa, ForcesALevelOnlyWhileItIsSet) {
  test::Random random(1);
  const auto stack = test::draw_stack(random);
  const ForcedLevel best("");
  const std::string chosen = make_cpu_executor(stack, {1, 1})->description();
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const ForcedLevel forced(hwy::TargetName(target));
    make_cpu_executor(stack, {1, 1});
    const ForcedLevel none("");
    EXPECT_EQ(make_cpu_executor(stack, {1, 1})->description(), chosen);
  }
}

// Every SIMD level of this build that this processor can run.
class SimdLevel : public testing::TestWithParam<std::int64_t> {};

TEST_P(SimdLevel, AgreesWithTheReferenceAndWithItselfInOtherChunks) {
  const ForcedLevel forced(hwy::TargetName(GetParam()));
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    test::Random random(seed);
    const auto stack = test::draw_stack(random);
    const std::int64_t frames = stack->lookahead_frames() + 100;
    const std::vector<float> input = test::draw_signal(random, stack->in_channels() * frames);
    const ConstFrameView in = planar(input.data(), stack->in_channels(), frames);
    const std::int64_t given = frames - stack->lookahead_frames();

    const auto executor = make_cpu_executor(stack, {2, frames});
    EXPECT_EQ(executor->description(), std::string("cpu (") + hwy::TargetName(GetParam()) + ")");
    std::vector<float> whole(static_cast<std::size_t>(stack->out_channels() * frames));
    SlotChunk chunk{0, in, planar(whole.data(), stack->out_channels(), frames), 0};
    executor->process({&chunk, 1}, 0);
    ASSERT_EQ(chunk.frames_emitted, given);

    std::vector<float> pieces(whole.size());
    const FrameView out = planar(pieces.data(), stack->out_channels(), frames);
    std::int64_t done = 0;
    for (std::int64_t taken = 0; taken < frames;) {
      const std::int64_t length = std::min(frames - taken, test::draw(random, 1, 17));
      SlotChunk piece{1, in.slice(taken, length), out.slice(done, frames - done), 0};
      executor->process({&piece, 1}, 0);
      taken += length;
      done += piece.frames_emitted;
    }
    ASSERT_EQ(std::memcmp(whole.data(), pieces.data(), whole.size() * sizeof(float)), 0) << "seed " << seed;

    const std::vector<double> expected = run_reference(*stack, input, frames);
    double difference = 0;
    double norm = 0;
    for (std::int64_t o = 0; o < stack->out_channels(); ++o) {
      for (std::int64_t t = 0; t < given; ++t) {
        const auto i = static_cast<std::size_t>(o * frames + t);
        difference += std::pow(static_cast<double>(whole[i]) - expected[i], 2);
        norm += expected[i] * expected[i];
      }
    }
    EXPECT_LE(std::sqrt(difference), 2e-6 * std::sqrt(norm)) << "seed " << seed;
  }
}

std::vector<std::int64_t> levels() {
  std::vector<std::int64_t> targets;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) targets.push_back(target);
  return targets;
}

INSTANTIATE_TEST_SUITE_P(All, SimdLevel, testing::ValuesIn(levels()),
                         [](const auto& tested) { return std::string(hwy::TargetName(tested.param)); });

}  // namespace
}  // namespace halotap::kernels
