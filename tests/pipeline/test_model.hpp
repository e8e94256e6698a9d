// Models made in memory, for tests of the engine and what is above it.
#pragma once

#include <cstdint>

#include "halotap/pipeline/model.hpp"
#include "random_stack.hpp"

namespace halotap::test {

inline pipeline::Model draw_model(Random& random, const StackBounds& bounds = {}) {
  pipeline::Model model;
  model.name = "drawn";
  model.frame_rate_hz = 1000;
  model.stack = draw_stack(random, bounds);
  return model;
}

// Two 'same' layers with biases: 3 channels in, 2 out, lookahead 3 frames.
inline pipeline::Model lookahead_model(std::uint64_t seed) {
  Random random(seed);
  LayerSpec first;
  first.name = "first";
  first.in_channels = 3;
  first.out_channels = 5;
  first.kernel_size = 5;
  first.padding = Padding::kSame;
  LayerSpec second = first;
  second.name = "second";
  second.in_channels = 5;
  second.out_channels = 2;
  second.kernel_size = 3;
  Layer layers[] = {draw_layer(random, first), draw_layer(random, second)};
  layers[0].weights.pw_bias = draw_weights(random, 5, 1.0);
  pipeline::Model model;
  model.name = "lookahead";
  model.frame_rate_hz = 1000;
  model.stack = std::make_shared<const Stack>(std::vector(std::begin(layers), std::end(layers)));
  return model;
}

}  // namespace halotap::test
