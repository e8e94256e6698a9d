#include "cpu/layer_kernels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "halotap/kernels/executor.hpp"
#include "random_stack.hpp"

namespace halotap::kernels::cpu {
namespace {

// Runs `x` through one pointwise layer of weight one: the activation alone.
std::vector<float> activate(Activation activation, const std::vector<float>& x) {
  Layer layer;
  layer.spec.name = "act";
  layer.spec.type = LayerType::kPointwise;
  layer.spec.in_channels = 1;
  layer.spec.out_channels = 1;
  layer.spec.activation = activation;
  layer.weights.pw_weight = {1};
  const auto frames = static_cast<std::int64_t>(x.size());
  const auto executor = make_cpu_executor(std::make_shared<const Stack>(std::vector{layer}), {1, frames});
  std::vector<float> y(x.size());
  SlotChunk chunk{0, planar(x.data(), 1, frames), planar(y.data(), 1, frames), 0};
  executor->process({&chunk, 1}, 0);
  return y;
}

double exact(Activation activation, double z) {
  switch (activation) {
    case Activation::kSilu:
      return z / (1 + std::exp(-z));
    case Activation::kGelu:
      return 0.5 * z * std::erfc(-z / std::sqrt(2.0));
    case Activation::kTanh:
      return std::tanh(z);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-z));
    default:
      return z;
  }
}

class SmoothActivation : public testing::TestWithParam<Activation> {};

TEST_P(SmoothActivation, IsWithinAFewUlpOfTheExactFunction) {
  std::vector<float> x;
  for (float z = -60; z <= 60; z += 0.0137f) x.push_back(z);
  for (float z = 1e-6f; z < 30; z *= 1.07f) {
    x.push_back(z);
    x.push_back(-z);
  }
  const std::vector<float> y = activate(GetParam(), x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(GetParam(), static_cast<double>(x[i]));
    if (std::abs(expected) < 1e-30) {
      EXPECT_LE(std::abs(y[i]), 1e-30f) << "at " << x[i];
      continue;
    }
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - expected) / std::abs(expected));
  }
  EXPECT_LE(worst, 3.6e-7) << to_string(GetParam());  // 3 ulp of 2^-23
}

TEST_P(SmoothActivation, TakesTheLargestNumbersAndKeepsNaN) {
  const float huge = std::numeric_limits<float>::max();
  const std::vector<float> y = activate(GetParam(), {huge, -huge, 1e10f, -1e10f, std::nanf(""), 0.0f});
  const bool bounded = GetParam() == Activation::kTanh || GetParam() == Activation::kSigmoid;
  EXPECT_EQ(y[0], bounded ? 1.0f : huge);
  EXPECT_NEAR(y[1], GetParam() == Activation::kTanh ? -1.0f : 0.0f, 1e-30f);
  EXPECT_EQ(y[2], bounded ? 1.0f : 1e10f);
  EXPECT_NEAR(y[3], GetParam() == Activation::kTanh ? -1.0f : 0.0f, 1e-30f);
  EXPECT_TRUE(std::isnan(y[4]));
  EXPECT_EQ(y[5], GetParam() == Activation::kSigmoid ? 0.5f : 0.0f);
}

INSTANTIATE_TEST_SUITE_P(All, SmoothActivation,
                         testing::Values(Activation::kSilu, Activation::kGelu, Activation::kTanh, Activation::kSigmoid),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

TEST(Relu, KeepsNaNAndInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  for (const Activation activation : {Activation::kRelu, Activation::kLeakyRelu}) {
    const std::vector<float> y = activate(activation, {std::nanf(""), inf, -2.0f, 3.0f});
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_EQ(y[1], inf);
    EXPECT_EQ(y[2], activation == Activation::kRelu ? 0.0f : -2.0f * 0.01f);
    EXPECT_EQ(y[3], 3.0f);
  }
}

TEST(Softmax, IsNaNForAFrameWithAnInfinity) {
  const float inf = std::numeric_limits<float>::infinity();
  Layer layer;
  layer.spec.name = "softmax";
  layer.spec.type = LayerType::kPointwise;
  layer.spec.in_channels = 1;
  layer.spec.out_channels = 3;
  layer.spec.activation = Activation::kSoftmax;
  layer.weights.pw_weight = {1, 2, 3};
  const auto executor = make_cpu_executor(std::make_shared<const Stack>(std::vector{layer}), {1, 3});
  const std::vector<float> x = {-inf, 0.5f, inf};
  std::vector<float> y(9);
  SlotChunk chunk{0, planar(x.data(), 1, std::int64_t{3}), interleaved(y.data(), 3, std::int64_t{3}), 0};
  executor->process({&chunk, 1}, 0);
  for (std::size_t o = 0; o < 3; ++o) {
    EXPECT_TRUE(std::isnan(y[o])) << o;
    EXPECT_TRUE(std::isfinite(y[3 + o])) << o;
    EXPECT_TRUE(std::isnan(y[6 + o])) << o;
  }
}

TEST(RowStride, IsTheNextWholeCacheLineAboveEightChannelsAndTheNextPowerOfTwoBelow) {
  EXPECT_EQ(row_stride(1), 1);
  EXPECT_EQ(row_stride(3), 4);
  EXPECT_EQ(row_stride(8), 8);
  EXPECT_EQ(row_stride(9), 16);
  EXPECT_EQ(row_stride(16), 16);
  EXPECT_EQ(row_stride(54), 64);
}

}  // namespace
}  // namespace halotap::kernels::cpu
