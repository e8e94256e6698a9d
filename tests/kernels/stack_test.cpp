#include "halotap/kernels/stack.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <utility>

#include "random_stack.hpp"

namespace halotap::kernels {
namespace {

LayerSpec layer_spec(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t kernel_size,
                     std::int64_t dilation, Padding padding) {
  LayerSpec spec;
  spec.name = name;
  spec.in_channels = in;
  spec.out_channels = out;
  spec.kernel_size = kernel_size;
  spec.dilation = dilation;
  spec.padding = padding;
  return spec;
}

std::string refusal(std::vector<Layer> layers) {
  try {
    Stack stack(std::move(layers));
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

TEST(Stack, SumsWhatItsLayersNeed) {
  test::Random random(3);
  Layer first = test::draw_layer(random, layer_spec("a", 12, 32, 5, 2, Padding::kSame));
  Layer second = test::draw_layer(random, layer_spec("b", 32, 20, 4, 3, Padding::kCausal));
  const std::int64_t parameters = first.weights.parameters() + second.weights.parameters();
  const Stack stack({first, second});
  EXPECT_EQ(stack.in_channels(), 12);
  EXPECT_EQ(stack.out_channels(), 20);
  EXPECT_EQ(stack.receptive_field(), 1 + 8 + 9);
  EXPECT_EQ(stack.lookahead_frames(), 4);
  EXPECT_EQ(stack.macs_per_frame(), 12 * 5 + 12 * 32 + 32 * 4 + 32 * 20);
  EXPECT_EQ(stack.parameters(), parameters);
}

TEST(Layer, CountsNoMacsForAMixThatIsTheIdentity) {
  test::Random random(5);
  Layer layer = test::draw_layer(random, layer_spec("a", 3, 3, 5, 2, Padding::kCausal));
  layer.weights.pw_bias.clear();
  layer.weights.pw_weight = {1, 0, 0, 0, 1, 0, 0, 0, 1};
  EXPECT_FALSE(layer.has_mix());
  EXPECT_EQ(layer.macs_per_frame(), 3 * 5);

  const auto changed = [&layer](const auto& change) {
    Layer other = layer;
    change(other);
    return other;
  };
  const Layer mixes[] = {
      changed([](Layer& other) { other.weights.pw_weight[3] = 0.5; }),
      changed([](Layer& other) { other.weights.pw_weight[8] = 2; }),
      changed([](Layer& other) {
        other.weights.pw_bias = {0, 0, 0.5};
      }),
      changed([](Layer& other) { other.spec.residual = true; }),
  };
  for (const Layer& other : mixes) {
    EXPECT_TRUE(other.has_mix());
    EXPECT_EQ(other.macs_per_frame(), 3 * 5 + 3 * 3);
  }
  const Layer pointwise = changed([](Layer& other) { other.spec.type = LayerType::kPointwise; });
  EXPECT_EQ(pointwise.macs_per_frame(), 3 * 3);
}

TEST(Stack, RefusesLayersThatDoNotFitTogether) {
  test::Random random(4);
  const Layer first = test::draw_layer(random, layer_spec("a", 2, 3, 1, 1, Padding::kCausal));
  const Layer second = test::draw_layer(random, layer_spec("b", 4, 3, 1, 1, Padding::kCausal));
  EXPECT_EQ(refusal({first, second}), "layer 'b': in_channels: expected 3, the out_channels of 'a', got 4");
  EXPECT_EQ(refusal({}), "layers: expected 1 to 4096, got 0");
  EXPECT_NE(refusal({first, first}), "");
}

TEST(Stack, NamesTheLayerWithInvalidWeights) {
  test::Random random(5);
  Layer layer = test::draw_layer(random, layer_spec("a", 2, 3, 1, 1, Padding::kCausal));
  layer.weights.pw_weight.push_back(0);
  EXPECT_EQ(refusal({layer}), "layer 'a': pw.weight: expected 6 numbers, got 7");
}

}  // namespace
}  // namespace halotap::kernels
