#include "cuda/pack.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cuda/bfloat16.hpp"
#include "cuda/float16.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cuda {
namespace {

using test::draw;
using test::draw_layer;
using test::Random;

template <typename Number>
Number read(const std::vector<std::byte>& image, std::int64_t offset) {
  Number number;
  std::memcpy(&number, image.data() + offset, sizeof number);
  return number;
}

// The weight of (row, channel) that the image stands for, all terms added and the scale undone.
double unpacked(const std::vector<std::byte>& image, const ImageLayout& layout, std::int64_t row, std::int64_t channel,
                double (*value)(std::uint16_t) = float16_value) {
  double sum = 0;
  for (std::int64_t term = 0; term < layout.terms; ++term) {
    // Written from the matrix instruction's operand table, the other way round than pack.cpp.
    for (std::int64_t lane = 0; lane < 32; ++lane) {
      for (std::int64_t number = 0; number < 8; ++number) {
        if (lane / 4 + (number / 2 % 2) * 8 != row % 16) continue;
        if (lane % 4 * 2 + number % 2 + number / 4 * 8 != channel % 16) continue;
        const std::int64_t tile = row / 16 * (layout.in_padded / 16) + channel / 16;
        sum += value(read<std::uint16_t>(
            image, layout.mix + term * layout.term_bytes() + ((tile * 32 + lane) * 8 + number) * 2));
      }
    }
  }
  return sum * static_cast<double>(read<float>(image, layout.row_scale + row * 4));
}

LayerSpec spec_of(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel_size) {
  LayerSpec spec;
  spec.name = "layer";
  spec.in_channels = in_channels;
  spec.out_channels = out_channels;
  spec.kernel_size = kernel_size;
  spec.activation = Activation::kRelu;  // SiLU moves a factor from the taps to the rows
  return spec;
}

float tap(const std::vector<std::byte>& image, const ImageLayout& layout, std::int64_t channel, std::int64_t k) {
  return read<float>(image, layout.taps + (k * layout.in_padded + channel) * 4);
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(float16_bits(1.0), 0x3c00);
  EXPECT_EQ(float16_bits(-2.0), 0xc000);
  EXPECT_EQ(float16_bits(0.0), 0);
  EXPECT_EQ(float16_bits(65504.0), 0x7bff);
  EXPECT_EQ(float16_bits(65519.9), 0x7bff);
  EXPECT_EQ(float16_bits(65520.0), 0x7c00);
  EXPECT_EQ(float16_bits(std::numeric_limits<double>::infinity()), 0x7c00);
  EXPECT_EQ(float16_bits(1.0 + std::ldexp(1, -11)), 0x3c00);      // halfway, to even
  EXPECT_EQ(float16_bits(1.0 + 3 * std::ldexp(1, -11)), 0x3c02);  // halfway, to even
  EXPECT_EQ(float16_bits(2.0 - std::ldexp(1, -12)), 0x4000);      // carries into the exponent
  EXPECT_EQ(float16_bits(std::ldexp(1, -24)), 1);
  EXPECT_EQ(float16_bits(std::ldexp(1, -25)), 0);
  EXPECT_EQ(float16_bits(std::ldexp(1, -14)), 0x0400);
  EXPECT_EQ(float16_bits(std::ldexp(1, -14) - std::ldexp(1, -26)), 0x0400);
}

TEST(Float16, GivesBackEveryFiniteNumber) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) == 0x7c00) continue;
    ASSERT_EQ(float16_bits(float16_value(static_cast<std::uint16_t>(bits))), bits);
  }
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(bfloat16_bits(1.0), 0x3f80);
  EXPECT_EQ(bfloat16_bits(-2.0), 0xc000);
  EXPECT_EQ(bfloat16_bits(0.0), 0);
  EXPECT_EQ(bfloat16_bits(1.0 + std::ldexp(1, -8)), 0x3f80);                       // halfway, to even
  EXPECT_EQ(bfloat16_bits(1.0 + 3 * std::ldexp(1, -8)), 0x3f82);                   // halfway, to even
  EXPECT_EQ(bfloat16_bits(1.0 + std::ldexp(1, -8) + std::ldexp(1, -40)), 0x3f81);  // not by way of a float32
  EXPECT_EQ(bfloat16_bits(2.0 - std::ldexp(1, -10)), 0x4000);                      // carries into the exponent
  EXPECT_EQ(bfloat16_bits(std::ldexp(1, -126)), 0x0080);
  EXPECT_EQ(bfloat16_bits(std::ldexp(255, 120)), 0x7f7f);
  EXPECT_EQ(bfloat16_bits(std::ldexp(511, 119)), 0x7f80);
  EXPECT_EQ(bfloat16_bits(-std::numeric_limits<double>::infinity()), 0xff80);
  EXPECT_TRUE(std::isnan(bfloat16_value(bfloat16_bits(std::numeric_limits<double>::quiet_NaN()))));
}

TEST(Bfloat16, GivesBackEveryNumber) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bfloat16_value(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(bfloat16_bits(static_cast<double>(value)), bits);
    }
  }
}

TEST(PackImage, KeepsEveryWeightTo22Bits) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    const LayerSpec spec = spec_of(draw(random, 1, 70), draw(random, 1, 150), 1);
    Layer layer = draw_layer(random, spec);
    const double magnitude = std::ldexp(1.0, static_cast<int>(draw(random, -60, 60)));
    for (double& weight : layer.weights.pw_weight) weight *= magnitude;
    const ImageLayout layout = image_layout(spec, Terms::kTwoFloat16);
    const auto image = pack_image(layer, Terms::kTwoFloat16);
    for (std::int64_t row = 0; row < spec.out_channels; ++row) {
      double largest = 0;
      for (std::int64_t c = 0; c < spec.in_channels; ++c) {
        largest =
            std::max(largest, std::abs(layer.weights.pw_weight[static_cast<std::size_t>(row * spec.in_channels + c)]));
      }
      for (std::int64_t c = 0; c < spec.in_channels; ++c) {
        const double weight = layer.weights.pw_weight[static_cast<std::size_t>(row * spec.in_channels + c)];
        const double bound = std::abs(weight) * std::ldexp(1, -23) + largest * std::ldexp(1, -39);
        ASSERT_LE(std::abs(unpacked(image, layout, row, c) - weight), bound) << "seed " << seed;
      }
    }
  }
}

TEST(PackImage, KeepsElevenBitsInFloat16AndEightInBfloat16) {
  struct Case {
    Terms terms;
    double (*value)(std::uint16_t);
    int bits;
  };
  for (const auto& [terms, value, bits] :
       {Case{Terms::kFloat16, float16_value, 11},
        Case{Terms::kBfloat16, [](std::uint16_t bits) { return static_cast<double>(bfloat16_value(bits)); }, 8}}) {
    Random random(1);
    const LayerSpec spec = spec_of(33, 65, 3);
    const Layer layer = draw_layer(random, spec);
    const ImageLayout layout = image_layout(spec, terms);
    ASSERT_EQ(layout.terms, 1);
    const auto image = pack_image(layer, terms);
    for (std::int64_t row = 0; row < 65; ++row) {
      for (std::int64_t c = 0; c < 33; ++c) {
        const double weight = layer.weights.pw_weight[static_cast<std::size_t>(row * 33 + c)];
        ASSERT_NEAR(unpacked(image, layout, row, c, value), weight, std::abs(weight) * std::ldexp(1, -bits) + 1e-8);
      }
    }
  }
}

TEST(PackImage, PadsWithZeros) {
  Random random(2);
  const LayerSpec spec = spec_of(17, 3, 2);
  const ImageLayout layout = image_layout(spec, Terms::kTwoFloat16);
  EXPECT_EQ(layout.in_padded, 32);
  EXPECT_EQ(layout.out_padded, 64);
  const auto image = pack_image(draw_layer(random, spec), Terms::kTwoFloat16);
  for (std::int64_t row = 0; row < 64; ++row) {
    for (std::int64_t c = 0; c < 32; ++c) {
      if (row < 3 && c < 17) continue;
      ASSERT_EQ(unpacked(image, layout, row, c), 0);
    }
  }
  for (std::int64_t c = 17; c < 32; ++c) {
    EXPECT_EQ(tap(image, layout, c, 0), 0);
    EXPECT_EQ(tap(image, layout, c, 1), 0);
    EXPECT_EQ(read<float>(image, layout.tap_bias + c * 4), 0);
  }
  for (std::int64_t row = 3; row < 64; ++row) EXPECT_EQ(read<float>(image, layout.mix_bias + row * 4), 0);
}

TEST(PackImage, FoldsBatchNormAndGivesPointwiseOneTapOfOne) {
  Random random(3);
  LayerSpec spec = spec_of(5, 4, 3);
  Layer layer = draw_layer(random, spec);
  layer.weights.batch_norm = BatchNorm{{2, 2, 2, 2, 2}, {1, 1, 1, 1, 1}, {0, 0, 0, 0, 0}, {3, 3, 3, 3, 3}, 1.0};
  const ImageLayout layout = image_layout(spec, Terms::kTwoFloat16);
  const auto image = pack_image(layer, Terms::kTwoFloat16);
  for (std::int64_t c = 0; c < 5; ++c) {
    for (std::int64_t k = 0; k < 3; ++k) {
      EXPECT_FLOAT_EQ(tap(image, layout, c, k),
                      static_cast<float>(layer.weights.dw_weight[static_cast<std::size_t>(c * 3 + k)]));
    }
  }
  spec.type = LayerType::kPointwise;
  spec.kernel_size = 1;
  const auto pointwise = pack_image(draw_layer(random, spec), Terms::kTwoFloat16);
  const ImageLayout one_tap = image_layout(spec, Terms::kTwoFloat16);
  for (std::int64_t c = 0; c < 5; ++c) EXPECT_EQ(read<float>(pointwise, one_tap.taps + c * 4), 1);
}

TEST(PackImage, MovesAFactorOfSiluFromTheTapsToTheRowsAndInBfloat16HalvesTheTapsAlone) {
  struct Case {
    Terms terms;
    float taps;
    float rows;
  };
  for (const auto& [terms, taps, rows] :
       {Case{Terms::kTwoFloat16, 1.4426950409f, 0.69314718056f}, Case{Terms::kBfloat16, 0.5f, 1.0f}}) {
    Random random(4);
    LayerSpec spec = spec_of(20, 6, 3);
    Layer layer = draw_layer(random, spec);
    const ImageLayout layout = image_layout(spec, terms);
    const auto plain = pack_image(layer, terms);
    layer.spec.activation = Activation::kSilu;
    const auto silu = pack_image(layer, terms);
    for (std::int64_t c = 0; c < 20; ++c) {
      EXPECT_FLOAT_EQ(tap(silu, layout, c, 1), tap(plain, layout, c, 1) * taps);
      EXPECT_FLOAT_EQ(read<float>(silu, layout.tap_bias + c * 4), read<float>(plain, layout.tap_bias + c * 4) * taps);
    }
    for (std::int64_t row = 0; row < 6; ++row) {
      EXPECT_FLOAT_EQ(read<float>(silu, layout.row_scale + row * 4),
                      read<float>(plain, layout.row_scale + row * 4) * rows);
    }
  }
}

TEST(PackImage, ScalesToBelowOneInBfloat16) {
  Random random(5);
  const LayerSpec spec = spec_of(16, 16, 1);
  const auto image = pack_image(draw_layer(random, spec), Terms::kBfloat16);
  float largest = 0;
  for (std::int64_t i = 0; i < 16 * 16; ++i) {
    largest = std::max(largest, std::abs(bfloat16_value(read<std::uint16_t>(image, i * 2))));
  }
  EXPECT_GE(largest, 0.5f);
  EXPECT_LE(largest, 1.0f);  // 1 by rounding
}

TEST(PackImage, ScalesToTheTopOfFloat16) {
  for (const double largest : {1e-30, 0.7, 1.0, 1.999, 3e38}) {
    const double values[] = {-largest, largest / 7};
    const double scaled = scale_to_float16(values, 2) * largest;
    EXPECT_GE(scaled, 16384);
    EXPECT_LT(scaled, 32768);
  }
  const double zeros[] = {0.0};
  EXPECT_EQ(scale_to_float16(zeros, 1), 1);
}

}  // namespace
}  // namespace halotap::kernels::cuda
