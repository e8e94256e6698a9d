#include "halotap/kernels/reference.hpp"

#include <gtest/gtest.h>

#include "random_stack.hpp"

namespace halotap::kernels {
namespace {

Layer identity_conv(std::vector<double> taps, Padding padding) {
  Layer layer;
  layer.spec.name = "conv";
  layer.spec.in_channels = 1;
  layer.spec.out_channels = 1;
  layer.spec.kernel_size = static_cast<std::int64_t>(taps.size());
  layer.spec.padding = padding;
  layer.spec.activation = Activation::kIdentity;
  layer.weights.dw_weight = std::move(taps);
  layer.weights.pw_weight = {1};
  return layer;
}

TEST(Reference, GivesTheLastTapTheNewestFrameOfACausalLayer) {
  const Stack stack({identity_conv({1, 10, 100}, Padding::kCausal)});
  const std::vector<float> x{1, 2, 3, 4};
  EXPECT_EQ(run_reference(stack, x, 4), (std::vector<double>{100, 210, 321, 432}));
}

TEST(Reference, CentresTheTapsOfASameLayer) {
  const Stack stack({identity_conv({1, 10, 100}, Padding::kSame)});
  const std::vector<float> x{1, 2, 3, 4};
  EXPECT_EQ(run_reference(stack, x, 4), (std::vector<double>{210, 321, 432, 43}));
}

TEST(Reference, PadsEveryLayerWithZerosNotWithItsPredecessorsBias) {
  Layer biased = identity_conv({0}, Padding::kCausal);
  biased.weights.pw_bias = {1};  // 1 at every frame of the recording, nothing outside
  Layer sum = identity_conv({1, 1, 1}, Padding::kSame);
  sum.spec.name = "sum";
  const Stack stack({biased, sum});
  const std::vector<float> x{5, 5, 5, 5};
  EXPECT_EQ(run_reference(stack, x, 4), (std::vector<double>{2, 3, 3, 2}));
}

TEST(Reference, StartsFromTheFillAsIfItHadAlwaysBeenThere) {
  const Stack stack({identity_conv({1, 10, 100}, Padding::kCausal)});
  const std::vector<float> x{1, 2};
  const float frame = 7;
  EXPECT_EQ(run_reference(stack, x, 2, {FillKind::kHoldFirst, nullptr}), (std::vector<double>{111, 211}));
  EXPECT_EQ(run_reference(stack, x, 2, {FillKind::kFrame, &frame}), (std::vector<double>{177, 217}));
}

}  // namespace
}  // namespace halotap::kernels
