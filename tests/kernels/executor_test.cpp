// What every backend must keep. Which backends a program tests, its executor_backends() says.
#include "halotap/kernels/executor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <new>
#include <stdexcept>
#include <utility>

#include "compare.hpp"
#include "executor_backends.hpp"
#include "halotap/kernels/reference.hpp"
#include "random_stack.hpp"

namespace halotap::kernels {
namespace {

using test::draw;
using test::draw_layer;
using test::draw_signal;
using test::draw_stack;
using test::Random;
using test::relative_l2;
using test::same_bits;

// A recording [channels, frames] run through one slot in chunks of the given lengths, then flushed; [channels, frames].
std::vector<float> run(Executor& executor, const Stack& stack, std::int64_t slot, const std::vector<float>& input,
                       std::int64_t frames, const std::vector<std::int64_t>& lengths) {
  std::vector<float> output(static_cast<std::size_t>(stack.out_channels() * frames), -7.0f);
  const ConstFrameView in = planar(input.data(), stack.in_channels(), frames);
  const FrameView out = planar(output.data(), stack.out_channels(), frames);
  std::int64_t taken = 0;
  std::int64_t given = 0;
  for (const std::int64_t length : lengths) {
    SlotChunk chunk{slot, in.slice(taken, length), out.slice(given, frames - given), -1};
    executor.process({&chunk, 1}, 0);
    taken += length;
    EXPECT_EQ(given + chunk.frames_emitted, std::max<std::int64_t>(0, taken - stack.lookahead_frames()));
    given += chunk.frames_emitted;
  }
  EXPECT_EQ(taken, frames);
  given += executor.flush(slot, out.slice(given, frames - given));
  EXPECT_EQ(given, frames);
  return output;
}

std::vector<std::int64_t> partition(Random& random, std::int64_t frames, std::int64_t longest) {
  std::vector<std::int64_t> lengths;
  while (frames > 0) {
    lengths.push_back(std::min(frames, draw(random, draw(random, 0, 1), longest)));
    frames -= lengths.back();
  }
  return lengths;
}

class ExecutorTest : public testing::TestWithParam<ExecutorBackend> {
 protected:
  void SetUp() override {
    if (GetParam().missing) GTEST_SKIP() << *GetParam().missing;
  }
  std::unique_ptr<Executor> make(std::shared_ptr<const Stack> stack, const ExecutorSpec& spec) const {
    return GetParam().make(std::move(stack), spec);
  }
};

TEST_P(ExecutorTest, AgreesWithTheReferenceOnRandomStacks) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const auto stack = draw_stack(random);
    const std::int64_t frames = draw(random, 1, 150);
    const std::vector<float> input = draw_signal(random, stack->in_channels() * frames);
    const auto executor = make(stack, {1, 37});
    const std::vector<float> output = run(*executor, *stack, 0, input, frames, partition(random, frames, 37));
    EXPECT_LE(relative_l2(output, run_reference(*stack, input, frames)), 1.5e-6) << "seed " << seed;
  }
}

TEST_P(ExecutorTest, AgreesWithTheReferenceOnWideLayersAndLongKernels) {
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    Random random(1000 + seed);
    const auto stack =
        draw_stack(random, {.max_layers = 2, .max_channels = 260, .max_kernel_size = 257, .max_dilation = 40});
    const std::int64_t frames = 200;
    const std::vector<float> input = draw_signal(random, stack->in_channels() * frames);
    const auto executor = make(stack, {1, 64});
    const std::vector<float> output = run(*executor, *stack, 0, input, frames, partition(random, frames, 64));
    EXPECT_LE(relative_l2(output, run_reference(*stack, input, frames)), 1.5e-6) << "seed " << seed;
  }
}

// A layer whose mix is the identity takes a way of its own, which one that differs by a weight, a bias or a residual
// must not take.
TEST_P(ExecutorTest, AgreesWithTheReferenceWhereTheMixIsTheIdentityOrNearlySo) {
  constexpr std::int64_t kChannels = 5;
  constexpr std::int64_t kFrames = 40;
  const auto relative_error = [this](const auto& change) {
    Random random(7);
    LayerSpec spec;
    spec.name = "filters";
    spec.type = LayerType::kTemporalConv;
    spec.in_channels = kChannels;
    spec.out_channels = kChannels;
    spec.kernel_size = 4;
    spec.dilation = 3;
    spec.activation = Activation::kTanh;
    Layer layer = draw_layer(random, spec);
    test::make_identity(layer);
    change(layer);
    const auto stack = std::make_shared<const Stack>(std::vector{layer});
    const std::vector<float> input = draw_signal(random, kChannels * kFrames);
    const auto executor = make(stack, {1, 16});
    const std::vector<float> output = run(*executor, *stack, 0, input, kFrames, partition(random, kFrames, 16));
    return relative_l2(output, run_reference(*stack, input, kFrames));
  };
  EXPECT_LE(relative_error([](Layer&) {}), 1e-6);
  EXPECT_LE(relative_error([](Layer& layer) { layer.weights.pw_bias.assign(kChannels, 0.0); }), 1e-6);
  EXPECT_LE(relative_error([](Layer& layer) { layer.weights.pw_bias = {0, 0, 0, 0, 0.5}; }), 1e-6);
  EXPECT_LE(relative_error([](Layer& layer) { layer.weights.pw_weight[kChannels] = 0.5; }), 1e-6);
  EXPECT_LE(relative_error([](Layer& layer) { layer.weights.pw_weight.back() = -1.0; }), 1e-6);
  EXPECT_LE(relative_error([](Layer& layer) { layer.spec.residual = true; }), 1e-6);
}

TEST_P(ExecutorTest, GivesTheSameBitsForEveryPartition) {
  int partitions = 0;
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(2000 + seed);
    const auto stack = draw_stack(random);
    const std::int64_t frames = draw(random, 1, 260);
    const std::vector<float> input = draw_signal(random, stack->in_channels() * frames);
    const auto offline = make(stack, {1, frames});
    const std::vector<float> expected = run(*offline, *stack, 0, input, frames, {frames});
    const std::vector<std::int64_t> ones(static_cast<std::size_t>(frames), 1);
    ASSERT_TRUE(same_bits(run(*make(stack, {1, 1}), *stack, 0, input, frames, ones), expected));
    for (int i = 0; i < 8; ++i, ++partitions) {
      const std::int64_t longest = draw(random, 1, 150);
      const auto executor = make(stack, {1, longest});
      const auto lengths = partition(random, frames, longest);
      ASSERT_TRUE(same_bits(run(*executor, *stack, 0, input, frames, lengths), expected))
          << "seed " << seed << " partition " << i;
    }
  }
  EXPECT_GE(partitions, 200);
}

// Streams of different recordings join, advance by different lengths, end and make room in random slots; each must
// come out as if it had run alone.
// Long dilated kernels are summed in another way when a step holds many of their frames.
TEST_P(ExecutorTest, GivesTheSameBitsForEveryPartitionOfLongDilatedKernels) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(2500 + seed);
    const auto stack =
        draw_stack(random, {.max_layers = 2, .max_channels = 40, .max_kernel_size = 33, .max_dilation = 70});
    const std::int64_t frames = 700;
    const std::vector<float> input = draw_signal(random, stack->in_channels() * frames);
    const std::vector<float> expected = run(*make(stack, {1, frames}), *stack, 0, input, frames, {frames});
    EXPECT_LE(relative_l2(expected, run_reference(*stack, input, frames)), 1.5e-6) << "seed " << seed;
    for (const std::int64_t longest : {1, 40, 300, 650}) {
      const std::vector<std::int64_t> lengths = partition(random, frames, longest);
      ASSERT_TRUE(same_bits(run(*make(stack, {1, longest}), *stack, 0, input, frames, lengths), expected))
          << "seed " << seed << " chunks up to " << longest;
    }
  }
}

TEST_P(ExecutorTest, GivesTheSameBitsBesideAnyOtherStreamsInAnySlot) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(3000 + seed);
    const auto stack = draw_stack(random);
    constexpr std::int64_t kSlots = 7;
    const auto alone = make(stack, {1, 200});
    const auto crowd = make(stack, {kSlots, 50});

    struct Recording {
      std::int64_t frames;
      std::vector<float> input;
      std::vector<float> expected;
      std::vector<float> output;
      std::int64_t taken = 0;
      std::int64_t given = 0;
    };
    std::map<std::int64_t, Recording> playing;  // by slot
    int finished = 0;
    while (finished < 20) {
      const std::int64_t slot = draw(random, 0, kSlots - 1);
      if (!playing.contains(slot)) {
        Recording recording;
        recording.frames = draw(random, 1, 200);
        recording.input = draw_signal(random, stack->in_channels() * recording.frames);
        recording.expected = run(*alone, *stack, 0, recording.input, recording.frames, {recording.frames});
        recording.output.resize(recording.expected.size());
        crowd->reset(slot, {});
        playing.emplace(slot, std::move(recording));
      }
      std::vector<SlotChunk> chunks;
      for (auto& [where, recording] : playing) {
        if (draw(random, 0, 2) == 0) continue;
        const std::int64_t length = draw(random, 0, std::min<std::int64_t>(50, recording.frames - recording.taken));
        const ConstFrameView in = planar(recording.input.data(), stack->in_channels(), recording.frames);
        const FrameView out = planar(recording.output.data(), stack->out_channels(), recording.frames);
        chunks.push_back({where, in.slice(recording.taken, length),
                          out.slice(recording.given, recording.frames - recording.given), -1});
      }
      std::shuffle(chunks.begin(), chunks.end(), random);
      crowd->process(chunks, 0);
      for (const SlotChunk& chunk : chunks) {
        Recording& recording = playing.at(chunk.slot);
        recording.taken += chunk.input.frames;
        recording.given += chunk.frames_emitted;
        if (recording.taken < recording.frames) continue;
        const FrameView out = planar(recording.output.data(), stack->out_channels(), recording.frames);
        recording.given += crowd->flush(chunk.slot, out.slice(recording.given, recording.frames - recording.given));
        ASSERT_EQ(recording.given, recording.frames);
        ASSERT_TRUE(same_bits(recording.output, recording.expected)) << "seed " << seed << " slot " << chunk.slot;
        playing.erase(chunk.slot);
        ++finished;
      }
    }
  }
}

TEST_P(ExecutorTest, ReadsAndWritesPlanarAndInterleavedMemoryAlike) {
  Random random(7);
  const auto stack = draw_stack(random);
  const std::int64_t frames = 90;
  const std::vector<float> input = draw_signal(random, stack->in_channels() * frames);
  const auto executor = make(stack, {1, frames});
  const std::vector<float> expected = run(*executor, *stack, 0, input, frames, {frames});

  std::vector<float> frame_major(input.size());
  for (std::int64_t c = 0; c < stack->in_channels(); ++c) {
    for (std::int64_t t = 0; t < frames; ++t) {
      frame_major[static_cast<std::size_t>(t * stack->in_channels() + c)] =
          input[static_cast<std::size_t>(c * frames + t)];
    }
  }
  std::vector<float> output(expected.size());
  const FrameView out = interleaved(output.data(), stack->out_channels(), frames);
  SlotChunk chunk{0, interleaved<const float>(frame_major.data(), stack->in_channels(), frames), out, 0};
  executor->process({&chunk, 1}, 0);
  executor->flush(0, out.slice(chunk.frames_emitted, frames - chunk.frames_emitted));
  for (std::int64_t o = 0; o < stack->out_channels(); ++o) {
    for (std::int64_t t = 0; t < frames; ++t) {
      ASSERT_EQ(output[static_cast<std::size_t>(t * stack->out_channels() + o)],
                expected[static_cast<std::size_t>(o * frames + t)]);
    }
  }
}

TEST_P(ExecutorTest, WorksInPlaceOnOnePieceOfMemory) {
  Random random(8);
  LayerSpec spec;
  spec.name = "conv";
  spec.in_channels = 6;
  spec.out_channels = 6;
  spec.kernel_size = 5;
  spec.padding = Padding::kSame;
  const auto stack = std::make_shared<const Stack>(std::vector{draw_layer(random, spec)});
  const std::int64_t frames = 300;
  std::vector<float> memory = draw_signal(random, 6 * frames);
  const auto executor = make(stack, {1, frames});
  const std::vector<float> expected = run(*executor, *stack, 0, memory, frames, {frames});
  const FrameView view = planar(memory.data(), 6, frames);
  SlotChunk chunk{0, view, view, 0};
  executor->process({&chunk, 1}, 0);
  executor->flush(0, view.slice(chunk.frames_emitted, 2));
  EXPECT_TRUE(same_bits(memory, expected));
}

// Many streams of a call, each with its own length, in memory of the executor: some input there, some output, at
// places of any alignment, beside others elsewhere.
TEST_P(ExecutorTest, GivesTheSameBitsInMemoryOfItsOwn) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const auto stack = draw_stack(random);
    const std::int64_t in = stack->in_channels();
    const std::int64_t out = stack->out_channels();
    constexpr std::int64_t kStreams = 40;
    const std::int64_t longest = draw(random, 0, 1) == 0 ? 4 : 13;
    const auto executor = make(stack, {kStreams, longest});
    const std::int64_t room = (longest + 3) / 4 * 4 + draw(random, 0, 3);
    float* inputs = executor->allocate_samples(kStreams * in * room);
    float* outputs = executor->allocate_samples(kStreams * out * room);
    EXPECT_EQ(*std::max_element(inputs, inputs + kStreams * in * room), 0.0f);
    std::vector<std::vector<float>> received(kStreams);  // [channels, frames] a stream, as it was cut
    std::vector<std::vector<float>> given(kStreams);
    std::vector<std::vector<std::int64_t>> lengths(kStreams);
    for (int call = 0; call < 6; ++call) {
      std::vector<SlotChunk> chunks;
      std::vector<std::vector<float>> elsewhere;
      elsewhere.reserve(2 * kStreams);
      for (std::int64_t s = 0; s < kStreams; ++s) {
        const auto i = static_cast<std::size_t>(s);
        const std::int64_t frames = draw(random, 0, longest);
        const std::vector<float> signal = draw_signal(random, in * frames);
        lengths[i].push_back(frames);
        received[i].insert(received[i].end(), signal.begin(), signal.end());
        FrameView input{inputs + s * in * room, in, frames, room, 1};
        if (draw(random, 0, 3) == 0) {
          input = planar(elsewhere.emplace_back(static_cast<std::size_t>(in * room)).data(), in, frames);
        } else if (draw(random, 0, 3) == 0) {
          input = interleaved(input.data, in, frames);
        }
        for (std::int64_t c = 0; c < in; ++c) {
          for (std::int64_t t = 0; t < frames; ++t) input(c, t) = signal[static_cast<std::size_t>(c * frames + t)];
        }
        FrameView output{outputs + s * out * room, out, room, room, 1};
        if (draw(random, 0, 3) == 0) {
          output = planar(elsewhere.emplace_back(static_cast<std::size_t>(out * room)).data(), out, room);
        } else if (draw(random, 0, 3) == 0) {
          output = interleaved(output.data, out, room);
        }
        chunks.push_back({s, input, output, -1});
      }
      executor->process(chunks, 0);
      for (std::int64_t s = 0; s < kStreams; ++s) {
        const SlotChunk& chunk = chunks[static_cast<std::size_t>(s)];
        for (std::int64_t t = 0; t < chunk.frames_emitted; ++t) {
          for (std::int64_t c = 0; c < out; ++c) given[static_cast<std::size_t>(s)].push_back(chunk.output(c, t));
        }
      }
    }
    const auto alone = make(stack, {1, longest});
    for (std::size_t i = 0; i < kStreams; ++i) {
      alone->reset(0, Fill{});
      const float* from = received[i].data();
      std::vector<float> expected;
      for (const std::int64_t frames : lengths[i]) {
        std::vector<float> output(static_cast<std::size_t>(out * longest));
        SlotChunk chunk{0, planar(from, in, frames), interleaved(output.data(), out, longest), -1};
        alone->process({&chunk, 1}, 0);
        expected.insert(expected.end(), output.begin(), output.begin() + out * chunk.frames_emitted);
        from += in * frames;
      }
      ASSERT_TRUE(same_bits(given[i], expected)) << "seed " << seed << ", stream " << i;
    }
  }
}

TEST_P(ExecutorTest, GivesMemoryFromAPagesBeginningOn) {
  Random random(1);
  const auto executor = make(draw_stack(random), {1, 4});
  for (const std::int64_t count : {1, 1000, 1000}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(executor->allocate_samples(count)) % 4096, 0U);
  }
}

TEST_P(ExecutorTest, RefusesSamplesThatNoMemoryHolds) {
  Random random(1);
  const auto executor = make(draw_stack(random), {1, 4});
  EXPECT_THROW(executor->allocate_samples(-1), std::bad_alloc);
  EXPECT_THROW(executor->allocate_samples(Executor::kMostSamples + 1), std::bad_alloc);
  EXPECT_THROW(executor->allocate_samples(std::int64_t{1} << 62), std::bad_alloc);
}

// Many streams with equally many frames in most calls: a backend may put them side by side.
TEST_P(ExecutorTest, GivesTheSameBitsToManyStreamsInLockstep) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    Random random(seed);
    std::shared_ptr<const Stack> stack = draw_stack(random);
    if (seed % 2 == 0) {  // what the fastest kernels take
      std::vector<Layer> layers;
      for (int l = 0; l < 3; ++l) {
        LayerSpec spec;
        spec.name = "layers." + std::to_string(l);
        spec.in_channels = l == 0 ? 48 : 128;
        spec.out_channels = 128;
        spec.kernel_size = seed % 4 == 0 ? 5 : draw(random, 1, 7);
        spec.dilation = std::int64_t{1} << draw(random, 0, 3);
        spec.padding = spec.halo_frames() % 2 == 0 && seed % 4 != 0 ? Padding::kSame : Padding::kCausal;
        spec.residual = l > 0;
        layers.push_back(draw_layer(random, spec));
      }
      stack = std::make_shared<const Stack>(std::move(layers));
    }
    const std::int64_t in = stack->in_channels();
    const std::int64_t out = stack->out_channels();
    const std::int64_t streams = draw(random, 64, 150);
    constexpr std::int64_t kLengths[] = {1, 2, 3, 4, 7, 16};
    const std::int64_t longest = kLengths[draw(random, 0, 5)];
    const auto executor = make(stack, {streams, longest});
    float* inputs = executor->allocate_samples(streams * in * longest);
    float* outputs = executor->allocate_samples(streams * out * longest);
    const auto alone = make(stack, {1, longest});
    std::vector<std::int64_t> slots;
    for (std::int64_t s = 0; s < streams; ++s) slots.push_back(s);
    struct Step {
      std::vector<float> input;  // [in_channels, frames]
      std::vector<float> output;
      std::int64_t frames = 0;
    };
    std::vector<std::vector<Step>> steps(static_cast<std::size_t>(streams));  // since the last reset
    const auto check = [&](std::size_t stream) {
      alone->reset(0, Fill{});
      for (const Step& step : steps[stream]) {
        std::vector<float> output(static_cast<std::size_t>(out * longest));
        SlotChunk chunk{0, planar(step.input.data(), in, step.frames), interleaved(output.data(), out, longest), -1};
        alone->process({&chunk, 1}, 0);
        output.resize(static_cast<std::size_t>(out * chunk.frames_emitted));
        ASSERT_TRUE(same_bits(step.output, output)) << "seed " << seed << ", stream " << stream;
      }
      steps[stream].clear();
    };
    for (int call = 0; call < 8; ++call) {
      std::shuffle(slots.begin(), slots.end(), random);
      const std::int64_t common = draw(random, 0, 2) == 0 ? draw(random, 1, longest) : longest;
      std::vector<SlotChunk> chunks;
      for (const std::int64_t s : slots) {
        if (std::ssize(chunks) >= 64 && draw(random, 0, 9) == 0) continue;  // not this time
        const std::int64_t frames = call == 5 ? draw(random, 0, longest) : common;
        Step step{draw_signal(random, in * frames), {}, frames};
        float* input = inputs + s * in * longest;
        std::copy(step.input.begin(), step.input.end(), input);
        steps[static_cast<std::size_t>(s)].push_back(std::move(step));
        chunks.push_back(
            {s, planar<const float>(input, in, frames), planar(outputs + s * out * longest, out, longest), -1});
      }
      executor->process(chunks, 0);
      for (const SlotChunk& chunk : chunks) {
        std::vector<float>& given = steps[static_cast<std::size_t>(chunk.slot)].back().output;
        for (std::int64_t t = 0; t < chunk.frames_emitted; ++t) {
          for (std::int64_t c = 0; c < out; ++c) given.push_back(chunk.output(c, t));
        }
      }
      const std::int64_t fresh = draw(random, 0, streams - 1);
      check(static_cast<std::size_t>(fresh));
      executor->reset(fresh, Fill{});
    }
    for (std::size_t s = 0; s < steps.size(); s += 7) check(s);
  }
}

// The same with little work, which Compute Sanitizer's tools have time for: as many streams as lockstep takes and one
// more, so that the last group of them lacks most, from the beginning and from what that left. Streams share signals,
// of a number that divides no tile's.
TEST_P(ExecutorTest, GivesTheSameBitsInTwoSmallPassesInLockstep) {
  Random random(7);
  std::vector<Layer> layers;
  for (const auto& [in, out] : {std::pair<std::int64_t, std::int64_t>{4, 8}, {8, 5}}) {
    LayerSpec spec;
    spec.name = "layers." + std::to_string(layers.size());
    spec.in_channels = in;
    spec.out_channels = out;
    spec.kernel_size = 3;
    spec.dilation = 1 + std::ssize(layers);
    layers.push_back(draw_layer(random, spec));
  }
  const auto stack = std::make_shared<const Stack>(std::move(layers));
  constexpr std::int64_t kIn = 4;
  constexpr std::int64_t kOut = 5;
  constexpr std::int64_t kStreams = 65;
  constexpr std::int64_t kSignals = 7;
  constexpr std::int64_t kPasses = 2;
  for (const std::int64_t frames : {2, 3, 4}) {
    const auto executor = make(stack, {kStreams, frames});
    const auto alone = make(stack, {1, frames});
    float* inputs = executor->allocate_samples(kStreams * kIn * frames);
    float* outputs = executor->allocate_samples(kStreams * kOut * frames);
    std::vector<std::vector<float>> signals;  // [pass][signal, in_channels, frames]
    for (int pass = 0; pass < kPasses; ++pass) signals.push_back(draw_signal(random, kSignals * kIn * frames));
    std::vector<std::vector<float>> given;  // [pass][stream, out_channels, frames]
    for (const std::vector<float>& signal : signals) {
      std::vector<SlotChunk> chunks;
      for (std::int64_t s = 0; s < kStreams; ++s) {
        float* input = inputs + s * kIn * frames;
        std::copy_n(&signal[static_cast<std::size_t>(s % kSignals * kIn * frames)], kIn * frames, input);
        chunks.push_back(
            {s, planar<const float>(input, kIn, frames), planar(outputs + s * kOut * frames, kOut, frames), -1});
      }
      executor->process(chunks, 0);
      for (const SlotChunk& chunk : chunks) ASSERT_EQ(chunk.frames_emitted, frames);
      given.emplace_back(outputs, outputs + kStreams * kOut * frames);
    }
    for (std::int64_t signal = 0; signal < kSignals; ++signal) {
      alone->reset(0, Fill{});
      for (std::size_t pass = 0; pass < kPasses; ++pass) {
        std::vector<float> expected(static_cast<std::size_t>(kOut * frames));
        SlotChunk chunk{
            0, planar<const float>(&signals[pass][static_cast<std::size_t>(signal * kIn * frames)], kIn, frames),
            planar(expected.data(), kOut, frames), -1};
        alone->process({&chunk, 1}, 0);
        for (std::int64_t s = signal; s < kStreams; s += kSignals) {
          const auto first = given[pass].begin() + s * kOut * frames;
          ASSERT_TRUE(same_bits({first, first + kOut * frames}, expected)) << frames << " frames, stream " << s;
        }
      }
    }
  }
}

TEST_P(ExecutorTest, KeepsANaNOrInfInsideItsReceptiveField) {
  const float bad[] = {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(4000 + seed);
    const auto stack = draw_stack(random);
    const std::int64_t frames = stack->receptive_field() + 120;
    const std::int64_t at = draw(random, 0, 100);
    const std::vector<float> clean = draw_signal(random, stack->in_channels() * frames);
    std::vector<float> dirty = clean;
    dirty[static_cast<std::size_t>(draw(random, 0, stack->in_channels() - 1) * frames + at)] = bad[seed % 3];
    const auto executor = make(stack, {2, 40});
    const auto lengths = partition(random, frames, 40);
    const std::vector<float> expected = run(*executor, *stack, 0, clean, frames, lengths);
    const std::vector<float> output = run(*executor, *stack, 1, dirty, frames, lengths);
    const std::int64_t first = at - stack->lookahead_frames();
    const std::int64_t last = at + stack->receptive_field() - 1 - stack->lookahead_frames();
    for (std::int64_t o = 0; o < stack->out_channels(); ++o) {
      for (std::int64_t t = 0; t < frames; ++t) {
        if (t >= first && t <= last) continue;
        const auto i = static_cast<std::size_t>(o * frames + t);
        ASSERT_EQ(std::memcmp(&output[i], &expected[i], sizeof(float)), 0) << "seed " << seed << " frame " << t;
      }
    }
    EXPECT_TRUE(same_bits(run(*executor, *stack, 1, clean, frames, lengths), expected)) << "after flush";
  }
}

TEST_P(ExecutorTest, LeavesNothingOfAStreamBehindAReset) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(5000 + seed);
    const auto stack = draw_stack(random);
    const std::int64_t frames = 120;
    const std::vector<float> input = draw_signal(random, stack->in_channels() * frames);
    const auto executor = make(stack, {2, frames});
    const std::vector<float> expected = run(*executor, *stack, 0, input, frames, {frames});
    std::vector<float> poison(input.size(), std::nanf(""));
    std::vector<float> output(expected.size());
    SlotChunk chunk{0, planar<const float>(poison.data(), stack->in_channels(), draw(random, 1, frames)),
                    planar(output.data(), stack->out_channels(), frames), 0};
    chunk.input.channel_stride = frames;
    executor->process({&chunk, 1}, 0);
    executor->reset(0, {});
    EXPECT_TRUE(same_bits(run(*executor, *stack, 0, input, frames, {frames}), expected)) << "seed " << seed;
  }
}

TEST_P(ExecutorTest, HoldsAFrameAsIfItHadArrivedForEver) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(6000 + seed);
    const auto stack = draw_stack(random);
    const std::int64_t frames = 100;
    const std::int64_t channels = stack->in_channels();
    const std::vector<float> input = draw_signal(random, channels * frames);
    std::vector<float> frame = draw_signal(random, channels);
    const bool hold_first = seed % 2 == 0;
    if (hold_first) {
      for (std::int64_t c = 0; c < channels; ++c) {
        frame[static_cast<std::size_t>(c)] = input[static_cast<std::size_t>(c * frames)];
      }
    }

    // What a stream gives that did receive the frame, for longer than anything it remembers.
    const std::int64_t past = 2 * stack->receptive_field();
    std::vector<float> longer;
    for (std::int64_t c = 0; c < channels; ++c) {
      longer.insert(longer.end(), static_cast<std::size_t>(past), frame[static_cast<std::size_t>(c)]);
      longer.insert(longer.end(), input.begin() + c * frames, input.begin() + (c + 1) * frames);
    }
    const auto executor = make(stack, {2, 64});
    const std::vector<float> whole =
        run(*executor, *stack, 0, longer, past + frames, partition(random, past + frames, 64));
    std::vector<float> expected;
    for (std::int64_t o = 0; o < stack->out_channels(); ++o) {
      const auto row = whole.begin() + o * (past + frames);
      expected.insert(expected.end(), row + past, row + past + frames);
    }

    const Fill fill{hold_first ? FillKind::kHoldFirst : FillKind::kFrame, frame.data()};
    executor->reset(1, fill);
    const std::vector<float> output = run(*executor, *stack, 1, input, frames, partition(random, frames, 64));
    EXPECT_TRUE(same_bits(output, expected)) << "seed " << seed;
    EXPECT_LE(relative_l2(output, run_reference(*stack, input, frames, fill)), 1.5e-6) << "seed " << seed;
  }
}

TEST_P(ExecutorTest, GivesBackTheCallersFloatingPointModeAndDoesNotDependOnIt) {
  Random random(9);
  const auto stack = draw_stack(random);
  const std::int64_t frames = 50;
  const std::vector<float> input = draw_signal(random, stack->in_channels() * frames);
  const auto executor = make(stack, {1, frames});
  const std::vector<float> expected = run(*executor, *stack, 0, input, frames, {frames});
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  const std::vector<float> output = run(*executor, *stack, 0, input, frames, {frames});
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
  const auto made_here = make(stack, {1, frames});  // rounds the weights
  std::fesetround(FE_TONEAREST);
  EXPECT_TRUE(same_bits(output, expected));
  EXPECT_TRUE(same_bits(run(*made_here, *stack, 0, input, frames, {frames}), expected));
}

TEST_P(ExecutorTest, KeepsStateThatDoesNotGrowWithTheChunk) {
  Random random(10);
  const auto stack = draw_stack(random, {.max_layers = 3, .max_channels = 20, .max_kernel_size = 9});
  EXPECT_EQ(make(stack, {1, 1000})->state_bytes(), make(stack, {3, 100000})->state_bytes());
  const auto reaching = draw_stack(random, {.max_channels = 20, .max_kernel_size = 33, .max_dilation = 70});
  EXPECT_EQ(make(reaching, {1, 2000})->state_bytes(), make(reaching, {3, 100000})->state_bytes());
}

TEST_P(ExecutorTest, RefusesASpecOutOfRange) {
  Random random(11);
  const auto stack = draw_stack(random);
  EXPECT_THROW(make(stack, {0, 1}), std::invalid_argument);
  EXPECT_THROW(make(stack, {1, 0}), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Backends, ExecutorTest, testing::ValuesIn(executor_backends()),
                         [](const testing::TestParamInfo<ExecutorBackend>& backend) { return backend.param.name; });

}  // namespace
}  // namespace halotap::kernels
