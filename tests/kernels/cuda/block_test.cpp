// The block on a card, against the reference. Every test draws fresh layers and signals and poisons what it will read.
#include "cuda/block.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "compare.hpp"
#include "cuda/bfloat16.hpp"
#include "cuda/float16.hpp"
#include "halotap/kernels/reference.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::draw;
using test::draw_layer;
using test::draw_signal;
using test::Random;
using test::relative_l2;
using test::same_bits;
using test::toss;

void require(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Bytes in device memory.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t size) : size_(size) { require(cudaMalloc(&data_, std::max<std::size_t>(size, 1))); }
  template <typename Number>
  explicit DeviceBytes(const std::vector<Number>& numbers) : DeviceBytes(numbers.size() * sizeof(Number)) {
    require(cudaMemcpy(data_, numbers.data(), size_, cudaMemcpyHostToDevice));
  }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(data_); }

  template <typename Number>
  std::vector<Number> read() const {
    std::vector<Number> numbers(size_ / sizeof(Number));
    require(cudaMemcpy(numbers.data(), data_, size_, cudaMemcpyDeviceToHost));
    return numbers;
  }
  char* data() const { return static_cast<char*>(data_); }

 private:
  std::size_t size_;
  void* data_ = nullptr;
};

constexpr float kPoison = -12345.0f;

// Samples as a 16-bit type stores them.
std::vector<std::uint16_t> to_16_bits(const std::vector<float>& values, Element element) {
  std::vector<std::uint16_t> stored;
  for (const float value : values) {
    const auto wide = static_cast<double>(value);
    stored.push_back(element == Element::kBfloat16 ? bfloat16_bits(wide) : float16_bits(wide));
  }
  return stored;
}
std::vector<float> from_16_bits(const std::vector<std::uint16_t>& stored, Element element) {
  std::vector<float> values;
  for (const std::uint16_t bits : stored) {
    values.push_back(element == Element::kBfloat16 ? bfloat16_value(bits) : static_cast<float>(float16_value(bits)));
  }
  return values;
}

// So that y has the input's magnitude.
void drop_biases(Layer& layer) {
  layer.weights.dw_bias.clear();
  layer.weights.pw_bias.clear();
  layer.weights.batch_norm.reset();
}

// The whole of `input` [in_channels, frames] as one item.
Item whole(const LayerSpec&, const void* d_x, void* d_y, std::int64_t frames) {
  return {d_x, d_y, frames, frames, frames, 0, frames, 0, frames};
}

// In device memory, as a block with these samples reads it.
DeviceBytes stored_as(Element element, const std::vector<float>& values) {
  return element == Element::kFloat32 ? DeviceBytes(values) : DeviceBytes(to_16_bits(values, element));
}
std::vector<float> read_as(Element element, const DeviceBytes& samples) {
  return element == Element::kFloat32 ? samples.read<float>() : from_16_bits(samples.read<std::uint16_t>(), element);
}

// y [out_channels, frames] of one recording, run in one launch.
std::vector<float> run(const PackedBlock& block, const std::vector<float>& input, std::int64_t frames) {
  const DeviceBytes d_x = stored_as(block.options().x, input);
  const DeviceBytes d_y = stored_as(
      block.options().y, std::vector<float>(static_cast<std::size_t>(block.spec().out_channels * frames), kPoison));
  Items items;
  items.count = 1;
  items.first = whole(block.spec(), d_x.data(), d_y.data(), frames);
  require(launch_block(block, items, nullptr));
  require(cudaDeviceSynchronize());
  return read_as(block.options().y, d_y);
}

// What a sample of kPoison reads as.
float poison_as(Element element) {
  return element == Element::kFloat32 ? kPoison : from_16_bits(to_16_bits({kPoison}, element), element)[0];
}

constexpr BlockOptions kAllBfloat16{Math::kBf16, Element::kBfloat16, Element::kBfloat16};

// Float32, or, for a layer that can have it, all of it in bfloat16.
BlockOptions draw_options(Random& random, const LayerSpec& spec) {
  return spec.activation != Activation::kSoftmax && toss(random) ? kAllBfloat16 : BlockOptions{};
}

std::vector<double> reference(const Layer& layer, const std::vector<float>& input, std::int64_t frames) {
  return run_reference(Stack({layer}), input, frames);
}

struct LayerBounds {
  std::int64_t max_channels = 300;
  std::int64_t max_kernel_size = 20;
  std::int64_t max_dilation = 20;
  std::int64_t channel_multiple = 1;
};

LayerSpec draw_spec(Random& random, const LayerBounds& bounds = {}) {
  const std::int64_t unit = bounds.channel_multiple;
  LayerSpec spec;
  spec.name = "layer";
  spec.in_channels = unit * draw(random, 1, draw(random, 1, bounds.max_channels / unit));
  spec.out_channels =
      toss(random) ? spec.in_channels : unit * draw(random, 1, draw(random, 1, bounds.max_channels / unit));
  if (draw(random, 0, 3) == 0) {
    spec.type = LayerType::kPointwise;
    spec.activation = static_cast<Activation>(draw(random, 0, test::kSoftmax));
  } else {
    spec.kernel_size = draw(random, 1, draw(random, 1, bounds.max_kernel_size));
    spec.dilation = draw(random, 1, draw(random, 1, bounds.max_dilation));
    spec.activation = static_cast<Activation>(draw(random, 0, test::kSoftmax - 1));
    spec.padding = spec.halo_frames() % 2 == 0 && toss(random) ? Padding::kSame : Padding::kCausal;
    spec.residual = spec.in_channels == spec.out_channels && toss(random);
  }
  return spec;
}

std::string describe(const LayerSpec& spec) {
  return std::string(to_string(spec.type)) + " " + std::to_string(spec.in_channels) + " to " +
         std::to_string(spec.out_channels) + " k" + std::to_string(spec.kernel_size) + " d" +
         std::to_string(spec.dilation) + " " + std::string(to_string(spec.padding)) + " " +
         std::string(to_string(spec.activation)) + (spec.residual ? " residual" : "");
}

// Shapes that every kind of kernel runs: any channels, and multiples of 16.
class CudaBlock : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device";
  }
  LayerBounds bounds() const {
    LayerBounds bounds;
    bounds.channel_multiple = GetParam();
    return bounds;
  }
};

TEST_P(CudaBlock, AgreesWithTheReferenceOnRandomLayers) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Random random(seed);
    const Layer layer = draw_layer(random, draw_spec(random, bounds()));
    const std::int64_t frames = draw(random, 1, draw(random, 1, 400));
    const std::vector<float> input = draw_signal(random, layer.spec.in_channels * frames);
    const PackedBlock block(layer, {});
    EXPECT_LE(relative_l2(run(block, input, frames), reference(layer, input, frames)), 5e-7)
        << "seed " << seed << ": " << describe(layer.spec) << ", " << frames << " frames, " << block.kernel_name();
  }
}

TEST_P(CudaBlock, AgreesWithTheReferenceOnEveryActivationAndCommonKernelSize) {
  Random random(900);
  for (std::int64_t activation = 0; activation < test::kSoftmax; ++activation) {
    for (const std::int64_t kernel_size : {1, 2, 3, 4, 5, 7, 9, 15, 31}) {
      for (const std::int64_t dilation : {1, 2, 3, 4, 8, 64}) {
        LayerSpec spec;
        spec.name = "layer";
        spec.in_channels = draw(random, 1, 3) * 16 * GetParam();
        spec.out_channels = spec.in_channels;
        spec.kernel_size = kernel_size;
        spec.dilation = dilation;
        spec.activation = static_cast<Activation>(activation);
        spec.residual = toss(random);
        const Layer layer = draw_layer(random, spec);
        const std::int64_t frames = 100;
        const std::vector<float> input = draw_signal(random, layer.spec.in_channels * frames);
        const PackedBlock block(layer, {});
        ASSERT_LE(relative_l2(run(block, input, frames), reference(layer, input, frames)), 5e-7)
            << describe(layer.spec) << ", " << block.kernel_name();
      }
    }
  }
}

TEST_P(CudaBlock, AgreesWithTheReferenceOnWideLayersAndLongKernels) {
  for (const auto& [channels, kernel_size, dilation] :
       {std::array<std::int64_t, 3>{1024, 3, 512}, {16, 513, 1}, {32, 257, 16}, {528, 9, 512}, {128, 31, 64}}) {
    Random random(static_cast<std::uint64_t>(1000 + channels));
    LayerSpec spec;
    spec.name = "layer";
    spec.in_channels = channels - (GetParam() == 1 ? 1 : 0);
    spec.out_channels = spec.in_channels;
    spec.kernel_size = kernel_size;
    spec.dilation = dilation;
    const Layer layer = draw_layer(random, spec);
    const std::int64_t frames = 300;
    const std::vector<float> input = draw_signal(random, layer.spec.in_channels * frames);
    const PackedBlock block(layer, {});
    EXPECT_LE(relative_l2(run(block, input, frames), reference(layer, input, frames)), 5e-7)
        << describe(layer.spec) << ", " << block.kernel_name();
  }
}

TEST_P(CudaBlock, KeepsItsAccuracyForLoudQuietAndUnevenFrames) {
  for (const double magnitude : {1e-18, 1e-5, 1e6, 1e18}) {
    Random random(77);
    LayerSpec spec = draw_spec(random, bounds());
    spec.type = LayerType::kTemporalConv;
    spec.activation = Activation::kRelu;
    Layer layer = draw_layer(random, spec);
    drop_biases(layer);
    const std::int64_t frames = 200;
    std::vector<float> input = draw_signal(random, spec.in_channels * frames);
    for (float& sample : input) sample *= static_cast<float>(magnitude);
    const PackedBlock block(layer, {});
    EXPECT_LE(relative_l2(run(block, input, frames), reference(layer, input, frames)), 5e-7) << magnitude;
  }
}

TEST_P(CudaBlock, IsNearInBfloat16WhateverTheMagnitude) {
  for (const double magnitude : {1e-30, 1e-18, 1e-5, 1.0, 1e6, 1e18, 1e30}) {
    for (const bool usual : {false, true}) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        Random random(80 + seed);
        LayerSpec spec = draw_spec(random, bounds());
        spec.type = LayerType::kTemporalConv;
        spec.activation = toss(random) ? Activation::kSilu : Activation::kRelu;
        spec.in_channels = usual ? 128 : std::max<std::int64_t>(spec.in_channels, 16);  // no sum cancels to nothing
        spec.out_channels = usual ? 128 : std::max<std::int64_t>(spec.out_channels, 16);
        spec.residual = false;
        spec.padding = Padding::kCausal;
        if (usual) {
          spec.activation = Activation::kSilu;
          spec.kernel_size = std::array{5, 3, 5, 9}[seed];
          spec.dilation = std::array{2, 1, 8, 1}[seed];
        }
        Layer layer = draw_layer(random, spec);
        drop_biases(layer);
        const std::int64_t frames = 200;
        std::vector<float> input = draw_signal(random, spec.in_channels * frames);
        for (float& sample : input) sample *= static_cast<float>(magnitude);
        input = from_16_bits(to_16_bits(input, Element::kBfloat16), Element::kBfloat16);
        const PackedBlock block(layer, kAllBfloat16);
        EXPECT_LE(relative_l2(run(block, input, frames), reference(layer, input, frames)), usual ? 3.5e-3 : 0x1p-7)
            << magnitude << ", seed " << seed << ": " << describe(spec) << ", " << block.kernel_name();
      }
    }
  }
}

// Frames that need a scale of their own, here and there, leave no trace in those beside them: every frame's bits are
// those it has in a recording of its receptive field alone.
TEST_P(CudaBlock, ScalesEachFrameByItselfAlone) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(1500 + seed);
    LayerSpec spec = draw_spec(random, bounds());
    spec.type = LayerType::kTemporalConv;
    spec.activation = Activation::kRelu;
    spec.padding = Padding::kCausal;
    spec.kernel_size = draw(random, 1, 3);
    spec.dilation = draw(random, 1, 2);
    spec.residual = false;
    spec.out_channels = std::max<std::int64_t>(spec.out_channels, 16);  // so that no sum of a frame cancels to nothing
    Layer layer = draw_layer(random, spec);
    layer.weights.dw_bias.clear();
    layer.weights.batch_norm.reset();
    const std::int64_t frames = draw(random, 1, 200);
    std::vector<float> input = draw_signal(random, spec.in_channels * frames);
    for (std::int64_t t = 0; t < frames; ++t) {
      // 30 and 1e-4 leave some frames just inside what the common scale fits and some just outside.
      const double magnitude =
          std::array{1.0, 1.0, 1.0, 30.0, 1e-4, 1e-7, 1e5, 0.0}[static_cast<std::size_t>(draw(random, 0, 7))];
      for (std::int64_t c = 0; c < spec.in_channels; ++c) {
        input[static_cast<std::size_t>(c * frames + t)] *= static_cast<float>(magnitude);
      }
    }
    const PackedBlock block(layer, {});
    const std::vector<float> together = run(block, input, frames);
    const std::vector<double> expected = reference(layer, input, frames);
    for (std::int64_t t = 0; t < frames; ++t) {
      const std::int64_t first = std::max<std::int64_t>(t - spec.halo_frames(), 0);
      const std::int64_t count = t + 1 - first;
      std::vector<float> field;
      for (std::int64_t c = 0; c < spec.in_channels; ++c) {
        const auto row = input.begin() + c * frames;
        field.insert(field.end(), row + first, row + t + 1);
      }
      const std::vector<float> alone = run(block, field, count);
      std::vector<float> frame;
      std::vector<float> frame_alone;
      std::vector<double> frame_expected;
      for (std::int64_t o = 0; o < spec.out_channels; ++o) {
        frame.push_back(together[static_cast<std::size_t>(o * frames + t)]);
        frame_alone.push_back(alone[static_cast<std::size_t>(o * count + count - 1)]);
        frame_expected.push_back(expected[static_cast<std::size_t>(o * frames + t)]);
      }
      ASSERT_TRUE(same_bits(frame, frame_alone)) << "seed " << seed << ": " << describe(spec) << ", frame " << t;
      ASSERT_LE(relative_l2(frame, frame_expected), 2e-6)
          << "seed " << seed << ": " << describe(spec) << ", frame " << t;
    }
  }
}

// A recording, cut into items at random: each piece reads its halo from the recording itself.
TEST_P(CudaBlock, GivesTheSameBitsHoweverARecordingIsCut) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(2000 + seed);
    const Layer layer = draw_layer(random, draw_spec(random, bounds()));
    const LayerSpec& spec = layer.spec;
    const std::int64_t frames = draw(random, 1, 500);
    const std::vector<float> input = draw_signal(random, spec.in_channels * frames);
    const BlockOptions options = draw_options(random, spec);
    const std::int64_t bytes = element_bytes(options.x);
    const PackedBlock block(layer, options);
    const std::vector<float> expected = run(block, input, frames);

    const DeviceBytes d_x = stored_as(options.x, input);
    for (int i = 0; i < 6; ++i) {
      const std::int64_t longest = i == 0 ? 1 : draw(random, 1, draw(random, 1, 200));
      const DeviceBytes d_y = stored_as(options.y, std::vector<float>(expected.size(), kPoison));
      std::vector<Item> pieces;
      for (std::int64_t first = 0; first < frames; first += pieces.back().frames) {
        const std::int64_t count = std::min(frames - first, draw(random, 1, longest));
        pieces.push_back({d_x.data() + first * bytes, d_y.data() + first * bytes, frames, frames, count, -first,
                          frames - first, 0, count});
      }
      std::shuffle(pieces.begin(), pieces.end(), random);
      const DeviceBytes d_table(pieces);
      Items items;
      items.count = static_cast<std::int64_t>(pieces.size());
      items.table = reinterpret_cast<const Item*>(d_table.data());
      items.max_frames = longest;
      require(launch_block(block, items, nullptr));
      require(cudaDeviceSynchronize());
      ASSERT_TRUE(same_bits(read_as(options.y, d_y), expected))
          << "seed " << seed << ": " << describe(spec) << ", " << block.kernel_name() << ", samples of " << bytes
          << " bytes, pieces of " << longest;
    }
  }
}

TEST_P(CudaBlock, GivesTheSameBitsInABatchOfAnyAlignment) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(3000 + seed);
    const Layer layer = draw_layer(random, draw_spec(random, bounds()));
    const LayerSpec& spec = layer.spec;
    const std::int64_t frames = draw(random, 1, draw(random, 1, 400));
    const std::int64_t count = draw(random, 1, 9);
    const std::int64_t x_stride = frames + draw(random, 0, 5);
    const std::int64_t y_stride = frames + draw(random, 0, 5);
    const std::int64_t offset = draw(random, 0, 3);
    const BlockOptions options = draw_options(random, spec);
    const std::int64_t bytes = element_bytes(options.x);
    const PackedBlock block(layer, options);
    const std::vector<float> x = draw_signal(random, count * spec.in_channels * x_stride + offset);
    const DeviceBytes d_x = stored_as(options.x, x);
    const DeviceBytes d_y =
        stored_as(options.y,
                  std::vector<float>(static_cast<std::size_t>(count * spec.out_channels * y_stride + offset), kPoison));
    Items items;
    items.count = count;
    items.first = {
        d_x.data() + offset * bytes, d_y.data() + offset * bytes, x_stride, y_stride, frames, 0, frames, 0, frames};
    items.x_stride = spec.in_channels * x_stride;
    items.y_stride = spec.out_channels * y_stride;
    require(launch_block(block, items, nullptr));
    require(cudaDeviceSynchronize());
    const std::vector<float> y = read_as(options.y, d_y);
    const float poison = poison_as(options.y);
    for (std::int64_t b = 0; b < count; ++b) {
      std::vector<float> alone;
      for (std::int64_t c = 0; c < spec.in_channels; ++c) {
        const auto row = x.begin() + offset + (b * spec.in_channels + c) * x_stride;
        alone.insert(alone.end(), row, row + frames);
      }
      const std::vector<float> expected = run(block, alone, frames);
      for (std::int64_t o = 0; o < spec.out_channels; ++o) {
        const float* row = y.data() + offset + (b * spec.out_channels + o) * y_stride;
        ASSERT_EQ(std::memcmp(row, expected.data() + o * frames, static_cast<std::size_t>(frames) * 4), 0)
            << "seed " << seed << ": " << describe(spec) << ", item " << b << ", row " << o << ", "
            << block.kernel_name();
        for (std::int64_t t = frames; t < y_stride; ++t) ASSERT_EQ(row[t], poison) << "written past the item";
      }
    }
    for (std::int64_t i = 0; i < offset; ++i) ASSERT_EQ(y[static_cast<std::size_t>(i)], poison);
  }
}

// Dilations of whole chunks bring x through a ring where rows are aligned, and otherwise sample by sample.
TEST_P(CudaBlock, GivesTheSameBitsThroughARingOfChunks) {
  for (std::uint64_t seed = 0; seed < 24; ++seed) {
    Random random(3500 + seed);
    LayerSpec spec;
    spec.name = "layer";
    spec.in_channels = 16 * draw(random, 5, 8);
    spec.out_channels = toss(random) ? spec.in_channels : 16 * draw(random, 1, 12);
    spec.dilation = 32 * draw(random, 1, 2);
    spec.kernel_size = draw(random, 2, 5);
    spec.activation = static_cast<Activation>(draw(random, 0, test::kSoftmax - 1));
    spec.padding = spec.halo_frames() % 2 == 0 && toss(random) ? Padding::kSame : Padding::kCausal;
    spec.residual = spec.in_channels == spec.out_channels && toss(random);
    const Layer layer = draw_layer(random, spec);
    // One run, runs of several tiles, more runs than processors.
    const std::int64_t frames = 4 * draw(random, 16, seed % 3 == 0 ? 30 : 1500);
    const std::int64_t count = seed % 3 == 2 ? draw(random, 40, 160) : draw(random, 1, 5);
    const PackedBlock block(layer, {});
    const std::vector<float> x = draw_signal(random, count * spec.in_channels * (frames + 1));
    const auto run_with = [&](const std::vector<float>& samples, std::int64_t stride) {
      const DeviceBytes d_samples(samples);
      const DeviceBytes d_y(std::vector<float>(static_cast<std::size_t>(count * spec.out_channels * frames), kPoison));
      Items items;
      items.count = count;
      items.first = {d_samples.data(), d_y.data(), stride, frames, frames, 0, frames, 0, frames};
      items.x_stride = spec.in_channels * stride;
      items.y_stride = spec.out_channels * frames;
      require(launch_block(block, items, nullptr));
      require(cudaDeviceSynchronize());
      return d_y.read<float>();
    };
    std::vector<float> aligned;
    for (std::int64_t row = 0; row < count * spec.in_channels; ++row) {
      aligned.insert(aligned.end(), x.begin() + row * (frames + 1), x.begin() + row * (frames + 1) + frames);
    }
    ASSERT_TRUE(same_bits(run_with(aligned, frames), run_with(x, frames + 1)))
        << "seed " << seed << ": " << describe(spec) << ", " << count << " x " << frames << " frames, "
        << block.kernel_name();
  }
}

// 128 channels to 128 with SiLU: aligned rows go through kernels of their own.
TEST_P(CudaBlock, GivesTheSameBitsForTheUsualLayerWhereverItsRowsBegin) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(3700 + seed);
    LayerSpec spec;
    spec.name = "layer";
    spec.in_channels = 128;
    spec.out_channels = 128;
    constexpr std::int64_t kSizes[] = {5, 3, 2, 9, 31};
    spec.kernel_size = kSizes[seed % 5];
    spec.dilation = draw(random, 1, 4);
    spec.residual = toss(random);
    const Layer layer = draw_layer(random, spec);
    BlockOptions options;
    options.math = static_cast<Math>(draw(random, 0, 3));
    options.x = options.y = static_cast<Element>(draw(random, 0, 2));
    if (seed >= 20) options = kAllBfloat16;
    const std::int64_t frames = 4 * draw(random, 1, 300);
    const std::int64_t count = draw(random, 1, 3);
    // Rows of whole 16 bytes in 16 bits, too; and some that are not.
    const std::int64_t stride = (frames + 7) / 8 * 8;
    std::vector<float> x = draw_signal(random, count * 128 * stride);
    const std::int64_t loud = draw(random, 0, stride - 1);
    const std::int64_t quiet = draw(random, 0, stride - 1);
    for (std::int64_t row = 0; row < count * 128; ++row) {
      x[static_cast<std::size_t>(row * stride + loud)] *= 1e3f;
      x[static_cast<std::size_t>(row * stride + quiet)] *= 1e-7f;
    }
    const PackedBlock block(layer, options);
    const auto run_with = [&](std::int64_t row_stride) {
      std::vector<float> rows(static_cast<std::size_t>(count * 128 * row_stride), kPoison);
      for (std::int64_t row = 0; row < count * 128; ++row) {
        std::copy_n(x.begin() + row * stride, frames, rows.begin() + row * row_stride);
      }
      const DeviceBytes d_x = stored_as(options.x, rows);
      const DeviceBytes d_y(
          std::vector<std::uint8_t>(static_cast<std::size_t>(count * 128 * stride * element_bytes(options.y)), 0x5a));
      Items items;
      items.count = count;
      items.first = {d_x.data(), d_y.data(), row_stride, stride, frames, 0, frames, 0, frames};
      items.x_stride = 128 * row_stride;
      items.y_stride = 128 * stride;
      require(launch_block(block, items, nullptr));
      require(cudaDeviceSynchronize());
      return d_y.read<std::uint8_t>();
    };
    ASSERT_EQ(run_with(stride), run_with(stride + 1)) << "seed " << seed << ": " << describe(spec) << ", " << count
                                                      << " x " << frames << " frames, " << block.kernel_name();
  }
}

// So many that every slab and stage is used again: each item's y is what it is alone, of a tile or two a block.
TEST_P(CudaBlock, GivesTheSameBitsInManyTilesOfABlock) {
  struct Shape {
    std::int64_t in_channels;
    std::int64_t out_channels;
    std::int64_t kernel_size;
    std::int64_t dilation;
  };
  // Also of one block of rows, whose tiles the mix's warpgroups share; with an odd number of stages, and with stages of
  // one tile in several passes, one of them takes all.
  for (const Shape& shape : {Shape{128, 128, 5, 2},
                             {128, 128, 3, 1},
                             {128, 128, 9, 1},
                             {128, 128, 5, 8},
                             {16, 16, 5, 2},
                             {48, 48, 3, 2},
                             {96, 96, 5, 1},
                             {256, 256, 5, 2},
                             {128, 64, 5, 2},
                             {128, 64, 5, 64},
                             {128, 64, 9, 32},
                             {128, 64, 15, 8},
                             {80, 64, 7, 32},
                             {144, 64, 5, 64},
                             {128, 192, 5, 64},
                             {512, 64, 5, 2},
                             {512, 64, 1, 1}}) {
    if (GetParam() == 1 && shape.in_channels != 48) continue;  // the generic block has neither
    for (const BlockOptions& options : {BlockOptions{}, BlockOptions{Math::kTf32}, kAllBfloat16}) {
      Random random(3800);
      LayerSpec spec;
      spec.name = "layer";
      spec.in_channels = shape.in_channels - (GetParam() == 1 ? 1 : 0);  // or the generic block
      spec.out_channels = shape.out_channels;
      spec.kernel_size = shape.kernel_size;
      spec.dilation = shape.dilation;
      const Layer layer = draw_layer(random, spec);
      const PackedBlock block(layer, options);
      constexpr std::int64_t kFrames = 296;  // five tiles, which go to the blocks in turn
      constexpr std::size_t kInputs = 3;
      constexpr std::int64_t kCount = 300;
      const std::int64_t bytes = element_bytes(options.x);
      const std::int64_t x_samples = spec.in_channels * kFrames;
      const std::int64_t y_samples = spec.out_channels * kFrames;
      const DeviceBytes d_x(static_cast<std::size_t>(kCount * x_samples * bytes));
      const DeviceBytes d_y(static_cast<std::size_t>(kCount * y_samples * bytes));
      std::vector<std::vector<float>> alone;
      for (std::size_t i = 0; i < kInputs; ++i) {
        const std::vector<float> input = draw_signal(random, x_samples);
        alone.push_back(run(block, input, kFrames));
        const DeviceBytes d_input = stored_as(options.x, input);
        for (auto item = static_cast<std::int64_t>(i); item < kCount; item += kInputs) {
          require(cudaMemcpy(d_x.data() + item * x_samples * bytes, d_input.data(),
                             static_cast<std::size_t>(x_samples * bytes), cudaMemcpyDeviceToDevice));
        }
      }
      Items items;
      items.count = kCount;
      items.first = whole(spec, d_x.data(), d_y.data(), kFrames);
      items.x_stride = x_samples;
      items.y_stride = y_samples;
      require(launch_block(block, items, nullptr));
      require(cudaDeviceSynchronize());
      const std::vector<float> y = read_as(options.y, d_y);
      for (std::int64_t item = 0; item < kCount; ++item) {
        const std::vector<float>& expected = alone[static_cast<std::size_t>(item) % kInputs];
        ASSERT_EQ(std::memcmp(y.data() + item * y_samples, expected.data(), expected.size() * sizeof(float)), 0)
            << describe(spec) << ", " << bytes << " bytes a sample, item " << item << ", " << block.kernel_name();
      }
    }
  }
}

TEST_P(CudaBlock, ReadsAndWritesOnlyTheFramesThatAreReal) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(4000 + seed);
    LayerSpec spec = draw_spec(random, bounds());
    if (spec.activation == Activation::kSoftmax) spec.activation = Activation::kSilu;
    const Layer layer = draw_layer(random, spec);
    const std::int64_t frames = draw(random, 1, 200);
    const std::int64_t margin = 24;
    const std::int64_t stride = frames + 2 * margin;
    std::vector<float> padded(static_cast<std::size_t>(spec.in_channels * stride),
                              std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> input = draw_signal(random, spec.in_channels * frames);
    for (std::int64_t c = 0; c < spec.in_channels; ++c) {
      std::copy_n(input.begin() + c * frames, frames, padded.begin() + c * stride + margin);
    }
    const std::int64_t y_begin = draw(random, 0, frames);
    const std::int64_t y_end = draw(random, y_begin, frames);
    const BlockOptions options = draw_options(random, spec);
    const PackedBlock block(layer, options);
    std::vector<float> expected = run(block, input, frames);
    for (std::int64_t o = 0; o < spec.out_channels; ++o) {
      for (std::int64_t t = 0; t < frames; ++t) {
        if (t < y_begin || t >= y_end) expected[static_cast<std::size_t>(o * frames + t)] = 0;
      }
    }
    const DeviceBytes d_x = stored_as(options.x, padded);
    const DeviceBytes d_y = stored_as(options.y, std::vector<float>(expected.size(), kPoison));
    Items items;
    items.count = 1;
    items.first = {
        d_x.data() + margin * element_bytes(options.x), d_y.data(), stride, frames, frames, 0, frames, y_begin, y_end};
    require(launch_block(block, items, nullptr));
    require(cudaDeviceSynchronize());
    ASSERT_TRUE(same_bits(read_as(options.y, d_y), expected)) << "seed " << seed << ": " << describe(spec);
  }
}

// The copy engine counts frames in 32 bits.
TEST_P(CudaBlock, ReadsNoFrameOfAnItemThatBeginsBehindTwoToThe32) {
  Random random(4100);
  LayerSpec spec;
  spec.name = "layer";
  spec.in_channels = 128;
  spec.out_channels = 128;
  spec.kernel_size = 5;
  spec.dilation = 2;
  const PackedBlock block(draw_layer(random, spec), {});
  constexpr std::int64_t kFrames = 128;
  constexpr std::int64_t kBegin = std::int64_t{1} << 32;
  const DeviceBytes d_x(draw_signal(random, spec.in_channels * kFrames));
  const DeviceBytes d_y(std::vector<float>(static_cast<std::size_t>(spec.out_channels * kFrames), kPoison));
  // Where frame 0 would be; nothing is there.
  auto* x = reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(d_x.data()) - kBegin * sizeof(float));
  Items items;
  items.count = 1;
  items.first = {x, d_y.data(), kFrames, kFrames, kFrames, kBegin, kBegin + kFrames, 0, kFrames};
  require(launch_block(block, items, nullptr));
  require(cudaDeviceSynchronize());
  const std::vector<float> silence(static_cast<std::size_t>(spec.in_channels * kFrames));
  EXPECT_TRUE(same_bits(d_y.read<float>(), run(block, silence, kFrames)));
}

TEST_P(CudaBlock, KeepsANaNOrInfInsideItsReceptiveField) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(5000 + seed);
    const Layer layer = draw_layer(random, draw_spec(random, bounds()));
    const LayerSpec& spec = layer.spec;
    const std::int64_t frames = 152;  // rows that bulk copies can bring, in 16 bits too
    std::vector<float> input = draw_signal(random, spec.in_channels * frames);
    const PackedBlock block(layer, draw_options(random, spec));
    const std::vector<float> clean = run(block, input, frames);
    const std::int64_t bad_frame = draw(random, 0, frames - 1);
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const float bad = std::array{std::numeric_limits<float>::quiet_NaN(), kInfinity,
                                 -kInfinity}[static_cast<std::size_t>(draw(random, 0, 2))];
    input[static_cast<std::size_t>(draw(random, 0, spec.in_channels - 1) * frames + bad_frame)] = bad;
    const std::vector<float> dirty = run(block, input, frames);
    for (std::int64_t o = 0; o < spec.out_channels; ++o) {
      for (std::int64_t t = 0; t < frames; ++t) {
        const auto i = static_cast<std::size_t>(o * frames + t);
        const std::int64_t distance = bad_frame - t + spec.left_frames();
        const bool reached = distance >= 0 && distance <= spec.halo_frames() && (distance % spec.dilation == 0);
        if (!reached && !(spec.residual && t == bad_frame)) {
          ASSERT_EQ(std::memcmp(&dirty[i], &clean[i], 4), 0) << "seed " << seed << ": " << describe(spec);
        }
      }
    }
  }
}

TEST_P(CudaBlock, RoundsToWhatEachPrecisionPromises) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    Random random(6000 + seed);
    LayerSpec spec = draw_spec(random, bounds());
    if (spec.activation == Activation::kSoftmax) spec.activation = Activation::kSilu;
    const Layer layer = draw_layer(random, spec);
    const std::int64_t frames = draw(random, 1, 200);
    const std::vector<float> drawn = draw_signal(random, spec.in_channels * frames);
    for (const Math math : {Math::kFp32, Math::kTf32, Math::kBf16, Math::kFp16}) {
      for (const Element x : {Element::kFloat32, Element::kBfloat16, Element::kFloat16}) {
        for (const Element y : {Element::kFloat32, Element::kBfloat16, Element::kFloat16}) {
          const PackedBlock block(layer, {math, x, y});
          const std::vector<float> input = x == Element::kFloat32 ? drawn : from_16_bits(to_16_bits(drawn, x), x);
          const std::vector<float> output = run(block, input, frames);
          const Terms terms = terms_of(block.options());
          const double mix = terms == Terms::kTwoFloat16 ? 5e-7 : terms == Terms::kFloat16 ? 5e-4 : 0x1p-7;
          const double rounding = y == Element::kFloat32 ? 0 : y == Element::kFloat16 ? 4e-4 : 3e-3;
          ASSERT_LE(relative_l2(output, reference(layer, input, frames)), mix + rounding)
              << "seed " << seed << ": " << describe(spec) << ", " << block.kernel_name();
        }
      }
    }
  }
}

TEST_P(CudaBlock, DoesNothingForNoItemsAndNoFrames) {
  Random random(1);
  const PackedBlock block(draw_layer(random, draw_spec(random, bounds())), {});
  EXPECT_EQ(launch_block(block, {}, nullptr), cudaSuccess);
  Items items;
  items.count = 3;
  EXPECT_EQ(launch_block(block, items, nullptr), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(ChannelMultiples, CudaBlock, testing::Values(1, 16));

}  // namespace
}  // namespace halotap::kernels::cuda
