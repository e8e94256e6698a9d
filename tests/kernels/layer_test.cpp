#include "halotap/kernels/layer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "random_stack.hpp"

namespace halotap::kernels {
namespace {

LayerSpec temporal_conv(std::int64_t kernel_size, std::int64_t dilation, Padding padding) {
  LayerSpec spec;
  spec.name = "conv";
  spec.in_channels = 3;
  spec.out_channels = 3;
  spec.kernel_size = kernel_size;
  spec.dilation = dilation;
  spec.padding = padding;
  return spec;
}

// The message of what `body` throws, or nothing.
template <typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

TEST(LayerSpec, PutsAllOfTheHaloBeforeACausalFrame) {
  const LayerSpec spec = temporal_conv(5, 2, Padding::kCausal);
  EXPECT_EQ(spec.halo_frames(), 8);
  EXPECT_EQ(spec.left_frames(), 8);
  EXPECT_EQ(spec.right_frames(), 0);
}

TEST(LayerSpec, SplitsTheHaloAroundASameFrame) {
  const LayerSpec spec = temporal_conv(7, 3, Padding::kSame);
  EXPECT_EQ(spec.left_frames(), 9);
  EXPECT_EQ(spec.right_frames(), 9);
}

TEST(LayerSpec, IsRefusedOutsideItsBounds) {
  EXPECT_EQ(refusal([] { validate(temporal_conv(5, 2, Padding::kCausal)); }), "");
  const auto with = [](auto change) {
    LayerSpec spec = temporal_conv(5, 2, Padding::kCausal);
    change(spec);
    return refusal([&] { validate(spec); });
  };
  EXPECT_EQ(with([](LayerSpec& s) { s.in_channels = 0; }), "in_channels: expected 1 to 16384, got 0");
  EXPECT_EQ(with([](LayerSpec& s) { s.out_channels = 1 << 20; }), "out_channels: expected 1 to 16384, got 1048576");
  EXPECT_EQ(with([](LayerSpec& s) { s.kernel_size = -1; }), "kernel_size: expected 1 to 65536, got -1");
  EXPECT_EQ(with([](LayerSpec& s) { s.dilation = 0; }), "dilation: expected 1 to 16777216, got 0");
  EXPECT_EQ(with([](LayerSpec& s) { s.dilation = kMaxHaloFrames; }),
            "(kernel_size-1)*dilation: expected 0 to 16777216, got 67108864");
  EXPECT_NE(with([](LayerSpec& s) { s.activation = Activation::kSoftmax; }), "");
  EXPECT_NE(with([](LayerSpec& s) {
              s.residual = true;
              s.out_channels = 4;
            }),
            "");
}

TEST(LayerSpec, RefusesSamePaddingThatCannotBeSplitEvenly) {
  EXPECT_EQ(refusal([] { validate(temporal_conv(4, 3, Padding::kSame)); }),
            "(kernel_size-1)*dilation with padding same: expected an even number, got 9");
  EXPECT_EQ(refusal([] { validate(temporal_conv(4, 2, Padding::kSame)); }), "");
}

TEST(LayerSpec, RefusesTapsDilationAndResidualOnAPointwiseLayer) {
  LayerSpec spec = temporal_conv(1, 1, Padding::kCausal);
  spec.type = LayerType::kPointwise;
  EXPECT_EQ(refusal([&] { validate(spec); }), "");
  spec.kernel_size = 3;
  EXPECT_NE(refusal([&] { validate(spec); }), "");
  spec.kernel_size = 1;
  spec.dilation = 2;
  EXPECT_NE(refusal([&] { validate(spec); }), "");
  spec.dilation = 1;
  spec.residual = true;
  EXPECT_NE(refusal([&] { validate(spec); }), "");
}

TEST(LayerWeights, AreRefusedWithTheWrongLengthOrANumberThatIsNotFinite) {
  test::Random random(1);
  const LayerSpec spec = temporal_conv(3, 1, Padding::kCausal);
  const LayerWeights good = test::draw_layer(random, spec).weights;
  const auto with = [&](auto change) {
    LayerWeights weights = good;
    change(weights);
    return refusal([&] { validate(spec, weights); });
  };
  EXPECT_EQ(with([](LayerWeights&) {}), "");
  EXPECT_EQ(with([](LayerWeights& w) { w.dw_weight.pop_back(); }), "dw.weight: expected 9 numbers, got 8");
  EXPECT_EQ(with([](LayerWeights& w) { w.pw_weight[4] = std::nan(""); }),
            "pw.weight[4]: expected a finite number that float32 holds, got nan");
  EXPECT_NE(with([](LayerWeights& w) { w.pw_bias = {1, std::numeric_limits<double>::infinity(), 1}; }), "");
  EXPECT_EQ(with([](LayerWeights& w) {
              w.dw_bias = {1, 1e300, 1};
            }),
            "dw.bias[1]: expected a finite number that float32 holds, got 1e+300");
  EXPECT_EQ(with([](LayerWeights& w) {
              w.batch_norm = BatchNorm{{1, 1, 1}, {0, 0, 0}, {0, 0, 0}, {1, -1, 1}, 1e-5};
            }),
            "bn.running_var[1]: expected 0 or more, got -1");
  EXPECT_NE(with([](LayerWeights& w) { w.batch_norm = BatchNorm{{1, 1}, {0, 0}, {0, 0}, {1, 1}, 1e-5}; }), "");
  EXPECT_NE(with([](LayerWeights& w) {
              w.batch_norm = BatchNorm{{1e38, 1, 1}, {0, 0, 0}, {0, 0, 0}, {0, 1, 1}, 1e-30};
            }),
            "");
}

TEST(FoldBatchNorm, GivesWeightsThatNormaliseByThemselves) {
  test::Random random(2);
  const LayerSpec spec = temporal_conv(3, 1, Padding::kCausal);
  LayerWeights weights = test::draw_layer(random, spec).weights;
  weights.dw_bias = {0.5, -1, 2};
  weights.batch_norm = BatchNorm{{2, 3, -1}, {0.1, 0.2, 0.3}, {1, -1, 0.5}, {4, 0.25, 1}, 1e-3};
  const FoldedDepthwise folded = fold_batch_norm(spec, weights);
  const double x[3] = {0.3, -0.7, 1.1};
  for (std::size_t c = 0; c < 3; ++c) {
    double plain = weights.dw_bias[c];
    double direct = folded.bias[c];
    for (std::size_t k = 0; k < 3; ++k) {
      plain += weights.dw_weight[c * 3 + k] * x[k];
      direct += folded.weight[c * 3 + k] * x[k];
    }
    const BatchNorm& norm = *weights.batch_norm;
    const double expected =
        (plain - norm.running_mean[c]) / std::sqrt(norm.running_var[c] + norm.eps) * norm.weight[c] + norm.bias[c];
    EXPECT_NEAR(direct, expected, 1e-14) << "channel " << c;
  }
}

TEST(LayerWords, AreSpeltAsInModelFiles) {
  EXPECT_EQ(to_string(Activation::kLeakyRelu), "leaky_relu");
  EXPECT_EQ(to_string(Padding::kSame), "same");
  EXPECT_EQ(to_string(LayerType::kTemporalConv), "temporal_conv");
}

}  // namespace
}  // namespace halotap::kernels
