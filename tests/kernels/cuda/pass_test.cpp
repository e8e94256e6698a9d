#include "cuda/pass.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <utility>

#include "halotap/kernels/executor.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::draw;
using test::draw_stack;
using test::Random;

constexpr std::int64_t kWindowFloats = std::int64_t{1} << 26;

Stack same_stack(std::int64_t channels, std::int64_t layers, std::int64_t dilation = 1) {
  Random random(1);
  std::vector<Layer> all;
  for (std::int64_t l = 0; l < layers; ++l) {
    LayerSpec spec;
    spec.name = "layers." + std::to_string(l);
    spec.in_channels = channels;
    spec.out_channels = channels;
    spec.kernel_size = 5;
    spec.dilation = dilation;
    spec.padding = Padding::kSame;
    all.push_back(test::draw_layer(random, spec));
  }
  return Stack(std::move(all));
}

TEST(PassShape, LaysWindowsAndHalosOutWithoutOverlapOnAlignedFrames) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    const auto stack = draw_stack(random);
    const PassShape shape = make_pass_shape(*stack, {draw(random, 1, 9), draw(random, 1, 100)});
    ASSERT_EQ(shape.layers.size(), stack->layers().size() + 1);
    std::int64_t window = 0;
    std::int64_t state = 0;
    std::int64_t lag = 0;
    for (std::size_t l = 0; l < shape.layers.size(); ++l) {
      const PassLayer& layer = shape.layers[l];
      EXPECT_EQ(layer.window_offset, window);
      EXPECT_EQ(layer.state_offset, state);
      EXPECT_EQ(layer.lag_frames, lag);
      EXPECT_GE(layer.lead_frames, layer.halo_frames);
      EXPECT_GE(layer.window_stride, layer.lead_frames + shape.step_frames);
      for (const std::int64_t floats : {layer.lead_frames, layer.window_stride, layer.window_offset}) {
        EXPECT_EQ(floats % kAlignFrames, 0);
      }
      window += layer.channels * layer.window_stride;
      state += layer.channels * layer.halo_frames;
      lag += layer.right_frames;
    }
    EXPECT_EQ(shape.window_floats, window);
    EXPECT_EQ(shape.state_floats, state);
    EXPECT_EQ(shape.layers.back().channels, stack->out_channels());
    EXPECT_EQ(shape.layers.back().lag_frames, stack->lookahead_frames());
    EXPECT_EQ(shape.layers.back().halo_frames, 0);
  }
}

TEST(PassShape, TakesAWholeBatchInOnePassAndALongRecordingInFew) {
  const PassShape batch = make_pass_shape(same_stack(128, 1), {16, 2048});
  EXPECT_EQ(batch.max_items, 16);
  EXPECT_EQ(batch.step_frames, 2048);
  const PassShape recording = make_pass_shape(same_stack(128, 8), {1, 1'000'000});
  EXPECT_EQ(recording.max_items, 1);
  EXPECT_GE(recording.step_frames, 50'000);
}

TEST(PassShape, KeepsItsWindowsBounded) {
  const Stack stack = same_stack(80, 8);
  for (const std::int64_t streams : {1, 100, 20'000, 1 << 20}) {
    for (const std::int64_t chunk : {1, 64, 100'000}) {
      const PassShape shape = make_pass_shape(stack, {streams, chunk});
      EXPECT_LE(shape.max_items * shape.window_floats, kWindowFloats + std::int64_t{4} * 720)
          << streams << " x " << chunk;
      EXPECT_GE(shape.step_frames, std::min<std::int64_t>(chunk, 16));
      EXPECT_GE(shape.max_items, std::min<std::int64_t>(streams, 1000));
    }
  }
}

TEST(PassShape, TakesOneItemWhoseHaloIsLargerThanAllWindowsShouldBe) {
  const PassShape shape = make_pass_shape(same_stack(40, 1, 1 << 22), {3, 64});
  EXPECT_EQ(shape.max_items, 1);
  EXPECT_EQ(shape.step_frames, 16);
}

TEST(PassShape, RefusesWhatItCannotKeep) {
  const Stack stack = same_stack(2, 1);
  EXPECT_THROW(make_pass_shape(stack, {0, 1}), std::invalid_argument);
  EXPECT_THROW(make_pass_shape(stack, {(1 << 20) + 1, 1}), std::invalid_argument);
  EXPECT_THROW(make_pass_shape(stack, {1, 0}), std::invalid_argument);
  EXPECT_THROW(make_pass_shape(stack, {1, 1, 2}), std::invalid_argument);
}

TEST(RealFrames, AreThoseInsideTheRecording) {
  PassEntry entry{.frames = 10, .received = 5};
  EXPECT_EQ(real_frames(entry, 0).begin, 0);
  EXPECT_EQ(real_frames(entry, 0).end, 10);
  EXPECT_EQ(real_frames(entry, 8).begin, 3);  // the window begins three frames before the recording
  EXPECT_EQ(real_frames(entry, 100).begin, 10);
  entry.end = 9;
  EXPECT_EQ(real_frames(entry, 0).end, 4);
  EXPECT_EQ(real_frames(entry, 8).end, 10);
  entry.received = 20;
  EXPECT_EQ(real_frames(entry, 0).end, 0);
  entry.held = true;
  EXPECT_EQ(real_frames(entry, 100).begin, 0);
}

TEST(PassShape, IsWaitedForInProportionToTheWork) {
  const Stack stack = same_stack(128, 8);
  const PassShape shape = make_pass_shape(stack, {4, 4096});
  const auto limit_ms = [&](std::int64_t frames, std::size_t entries) {
    return answer_limit_ns(shape, std::vector<PassEntry>(entries, {.frames = frames})) / 1000000;
  };
  EXPECT_EQ(limit_ms(1, 1), 100);
  EXPECT_EQ(limit_ms(256, 1), 101);
  // 4 x 4096 frames of 8 x (128 x 128 + 128 x 5) multiply-accumulates and 9 x 128 floats.
  EXPECT_EQ(limit_ms(4096, 4), 100 + 22 + 75);
}

}  // namespace
}  // namespace halotap::kernels::cuda
