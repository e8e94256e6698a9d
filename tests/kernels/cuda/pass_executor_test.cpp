// What is the pass executor's alone; what every executor must keep is in executor_test.cpp.
#include "cuda/pass_executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "cuda/host_pass_device.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::draw_signal;
using test::draw_stack;
using test::Random;

struct Made {
  std::unique_ptr<Executor> executor;
  HostPassDevice* device;  // the executor's
};

Made make(const std::shared_ptr<const Stack>& stack, const PassShape& shape) {
  auto device = std::make_unique<HostPassDevice>(stack, shape);
  HostPassDevice* raw = device.get();
  return {make_pass_executor(shape, std::move(device)), raw};
}

// Streams of one chunk each, as one call; [stream][channels, frames].
struct Batch {
  Batch(const Stack& stack, std::int64_t streams, std::int64_t frames, Random& random) {
    for (std::int64_t s = 0; s < streams; ++s) {
      inputs.push_back(draw_signal(random, stack.in_channels() * frames));
      outputs.emplace_back(static_cast<std::size_t>(stack.out_channels() * frames));
    }
    for (std::int64_t s = 0; s < streams; ++s) {
      const auto i = static_cast<std::size_t>(s);
      chunks.push_back({s, planar<const float>(inputs[i].data(), stack.in_channels(), frames),
                        planar(outputs[i].data(), stack.out_channels(), frames), -1});
    }
  }
  std::vector<std::vector<float>> inputs;
  std::vector<std::vector<float>> outputs;
  std::vector<SlotChunk> chunks;
};

TEST(PassExecutor, GivesTheSameBitsWhateverFitsIntoAPass) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const auto stack = draw_stack(random);
    const ExecutorSpec spec{5, 60};
    const Batch batch(*stack, 5, 60, random);
    const PassShape whole = make_pass_shape(*stack, spec);
    ASSERT_EQ(whole.max_items, 5);
    ASSERT_EQ(whole.step_frames, 60);
    PassShape small = make_pass_shape(*stack, {5, 7});
    small.max_items = 2;
    std::vector<Batch> results;
    for (const PassShape& shape : {whole, small}) {
      const Made made = make(stack, shape);
      Batch& result = results.emplace_back(batch);
      for (std::size_t i = 0; i < result.chunks.size(); ++i) result.chunks[i].output.data = result.outputs[i].data();
      made.executor->process(result.chunks, 0);
    }
    for (std::size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(results[0].chunks[i].frames_emitted, results[1].chunks[i].frames_emitted);
      ASSERT_EQ(std::memcmp(results[0].outputs[i].data(), results[1].outputs[i].data(),
                            results[0].outputs[i].size() * sizeof(float)),
                0)
          << "seed " << seed << " stream " << i;
    }
  }
}

TEST(PassExecutor, StagesNothingThatLiesPlanarInItsOwnMemory) {
  Random random(3);
  LayerSpec spec;
  spec.name = "ahead";
  spec.in_channels = 3;
  spec.out_channels = 3;
  spec.kernel_size = 5;
  spec.padding = Padding::kSame;  // looks 2 frames ahead
  const auto stack = std::make_shared<const Stack>(std::vector{test::draw_layer(random, spec)});
  const Made made = make(stack, make_pass_shape(*stack, {1, 4}));
  float* memory = made.executor->allocate_samples(3 * 4 * 2);
  const FrameView input = planar(memory, 3, 4);
  const FrameView output = planar(memory + 3 * 4, 3, 4);
  SlotChunk chunk{0, input, output, -1};
  made.executor->process({&chunk, 1}, 0);
  EXPECT_EQ(made.device->staged_inputs(), 0);
  EXPECT_EQ(made.device->staged_outputs(), 1) << "two frames come before the first that is wanted";
  made.executor->process({&chunk, 1}, 0);
  EXPECT_EQ(made.device->staged_outputs(), 1);
  // Not side by side, and elsewhere.
  std::vector<float> other(3 * 4);
  chunk.input = interleaved(memory, 3, 4);
  made.executor->process({&chunk, 1}, 0);
  EXPECT_EQ(made.device->staged_inputs(), 1);
  chunk.input = planar(other.data(), 3, 4);
  made.executor->process({&chunk, 1}, 0);
  EXPECT_EQ(made.device->staged_inputs(), 2);
  EXPECT_EQ(made.device->staged_outputs(), 1);
}

TEST(PassExecutor, StagesRowsThatDoNotBeginWhereItsDeviceWantsThem) {
  Random random(5);
  LayerSpec spec;
  spec.in_channels = 3;
  spec.out_channels = 3;
  const auto stack = std::make_shared<const Stack>(std::vector{test::draw_layer(random, spec)});
  PassShape shape = make_pass_shape(*stack, {1, 4});
  shape.in_place_floats = 4;
  const Made made = make(stack, shape);
  float* memory = made.executor->allocate_samples(200);
  SlotChunk chunk{0, {memory, 3, 3, 8, 1}, {memory + 100, 3, 3, 4, 1}, -1};
  made.executor->process({&chunk, 1}, 0);
  EXPECT_EQ(made.device->staged_inputs(), 0);
  EXPECT_EQ(made.device->staged_outputs(), 0);
  chunk = {0, {memory, 3, 3, 3, 1}, {memory + 101, 3, 3, 4, 1}, -1};
  made.executor->process({&chunk, 1}, 0);
  EXPECT_EQ(made.device->staged_inputs(), 1);
  EXPECT_EQ(made.device->staged_outputs(), 1);
}

TEST(PassExecutor, StagesNothingThatOneOfItsMemoriesHoldsWhole) {
  Random random(6);
  LayerSpec spec;
  spec.name = "layer";
  spec.in_channels = 2;
  spec.out_channels = 2;
  const auto stack = std::make_shared<const Stack>(std::vector{test::draw_layer(random, spec)});
  const Made made = make(stack, make_pass_shape(*stack, {1, 4}));
  std::vector<float> output(2 * 4);
  const auto is_staged = [&](float* input, std::int64_t channel_stride) {
    const std::int64_t before = made.device->staged_inputs();
    SlotChunk chunk{0, {input, 2, 4, channel_stride, 1}, planar(output.data(), std::int64_t{2}, std::int64_t{4}), -1};
    made.executor->process({&chunk, 1}, 0);
    return made.device->staged_inputs() > before;
  };
  std::vector<float> elsewhere(2 * 4);
  constexpr std::int64_t kSamples[] = {2 * 8, 1 << 16};
  std::vector<float*> memories;  // the last 16 samples of each
  for (int i = 0; i < 7; ++i) {
    // Large ones come from elsewhere, and not one behind the other.
    memories.push_back(made.executor->allocate_samples(kSamples[i % 2]) + kSamples[i % 2] - 2 * 8);
    for (float* memory : memories) {
      EXPECT_FALSE(is_staged(memory, 4));
      EXPECT_FALSE(is_staged(memory, 12)) << "to its last sample";
      EXPECT_FALSE(is_staged(memory + 8, 4)) << "likewise";
      // A channel in each of two.
      for (float* other : memories) {
        if (other <= memory) continue;
        EXPECT_TRUE(is_staged(memory, other - memory));
      }
      EXPECT_TRUE(is_staged(std::min(memory, elsewhere.data()), std::abs(memory - elsewhere.data())));
    }
    EXPECT_TRUE(is_staged(elsewhere.data(), 4));
  }
}

TEST(PassExecutor, GivesNothingOnceItsDeviceHasFailed) {
  Random random(1);
  const auto stack = draw_stack(random);
  PassShape shape = make_pass_shape(*stack, {3, 20});
  shape.max_items = 1;
  const Made made = make(stack, shape);
  Batch batch(*stack, 3, 20, random);
  made.executor->process(batch.chunks, 0);
  EXPECT_EQ(made.executor->failure(), nullptr);
  made.device->fail_after(2);  // in the middle of the next call
  made.executor->process(batch.chunks, 0);
  EXPECT_STREQ(made.executor->failure(), "the test ended it");
  for (const SlotChunk& chunk : batch.chunks) EXPECT_EQ(chunk.frames_emitted, 0);
  EXPECT_EQ(made.executor->flush(0, batch.chunks[0].output), 0);
}

TEST(PassExecutor, KeepsEqualChunksTogetherWhereTheyGoInLockstep) {
  Random random(5);
  LayerSpec spec;
  spec.name = "layer";
  spec.in_channels = 2;
  spec.out_channels = 2;
  spec.kernel_size = 3;
  const auto stack = std::make_shared<const Stack>(std::vector{test::draw_layer(random, spec)});
  const Made made = make(stack, make_pass_shape(*stack, {9, 6}));
  const auto passes_of = [&](std::initializer_list<std::int64_t> lengths) {
    Batch batch(*stack, std::ssize(lengths), 6, random);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      batch.chunks[i].input = batch.chunks[i].input.slice(0, lengths.begin()[i]);
    }
    const std::size_t before = made.device->items_of_passes().size();
    made.executor->process(batch.chunks, 0);
    for (std::size_t i = 0; i < lengths.size(); ++i) EXPECT_EQ(batch.chunks[i].frames_emitted, lengths.begin()[i]);
    const std::vector<std::int64_t>& all = made.device->items_of_passes();
    return std::vector<std::int64_t>(all.begin() + static_cast<std::ptrdiff_t>(before), all.end());
  };
  using Passes = std::vector<std::int64_t>;
  EXPECT_EQ(passes_of({4, 3, 4, 4, 0, 4, 2, 4}), Passes({7}));
  made.device->go_in_lockstep(5);
  EXPECT_EQ(passes_of({4, 3, 4, 4, 0, 4, 2, 4}), Passes({5, 2}));
  EXPECT_EQ(passes_of({4, 4, 4, 4, 4}), Passes({5}));
  EXPECT_EQ(passes_of({4, 4, 4, 4, 3}), Passes({5})) << "too few of each";
  made.executor->reset(2, {FillKind::kHoldFirst, nullptr});
  EXPECT_EQ(passes_of({4, 4, 4, 4, 4, 4}), Passes({5, 1})) << "one that starts to hold";
  EXPECT_EQ(passes_of({4, 4, 4, 4, 4, 4}), Passes({6}));
}

TEST(PassExecutor, IsOverWhenOneOfItsDevicesFails) {
  Random random(4);
  const auto stack = draw_stack(random);
  const PassShape shape = make_pass_shape(*stack, {2, 20});
  std::vector<std::unique_ptr<PassDevice>> devices;
  devices.push_back(std::make_unique<HostPassDevice>(stack, shape));
  auto failing = std::make_unique<HostPassDevice>(stack, shape);
  HostPassDevice* raw = failing.get();
  devices.push_back(std::move(failing));
  const auto executor = make_pass_executor(shape, std::move(devices));
  Batch batch(*stack, 4, 20, random);
  executor->process(batch.chunks, 0);
  EXPECT_EQ(executor->failure(), nullptr);
  raw->fail_after(0);
  executor->process(batch.chunks, 0);
  EXPECT_STREQ(executor->failure(), "the test ended it");
  for (const SlotChunk& chunk : batch.chunks) EXPECT_EQ(chunk.frames_emitted, 0);
  executor->process({batch.chunks.data(), 1}, 0);  // of the other one alone
  EXPECT_EQ(batch.chunks[0].frames_emitted, 0);
  EXPECT_EQ(executor->flush(0, batch.chunks[0].output), 0);
}

TEST(PassExecutor, ResetsAStreamWithoutItsDevice) {
  Random random(2);
  const auto stack = draw_stack(random);
  const Made made = make(stack, make_pass_shape(*stack, {1, 20}));
  const std::vector<float> frame(static_cast<std::size_t>(stack->in_channels()), 1.0f);
  made.device->fail_after(0);
  for (const FillKind kind : {FillKind::kZeros, FillKind::kHoldFirst, FillKind::kFrame}) {
    made.executor->reset(0, {kind, frame.data()});
  }
  Batch batch(*stack, 1, 20, random);
  made.executor->process(batch.chunks, 0);
  EXPECT_EQ(batch.chunks[0].frames_emitted, 0);
}

}  // namespace
}  // namespace halotap::kernels::cuda
