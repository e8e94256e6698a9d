// A whole network: layers in order, validated once, then immutable.
#pragma once

#include <cstdint>
#include <vector>

#include "halotap/kernels/layer.hpp"

namespace halotap::kernels {

struct Layer {
  LayerSpec spec;
  LayerWeights weights;

  // False for a temporal_conv whose mix is the identity, without bias or residual, as in a bank of filters: its output
  // is the activated depthwise sum, and a backend may leave the mix out. That changes no finite number; a NaN or an Inf
  // then stays in its channel, where zero times it would reach all. [any thread]
  bool has_mix() const;
  // Multiply-accumulates an output frame costs, a mix that is left out not counted. [any thread]
  std::int64_t macs_per_frame() const;
};

// Layers in order. Immutable after construction, so that executors and threads share one.
class Stack {
 public:
  // Throws std::invalid_argument, naming the layer, when there is none, there are more than kMaxLayers, one is invalid
  // (see validate), two share a name, or one's in_channels differs from its predecessor's out_channels. [control]
  explicit Stack(std::vector<Layer> layers);

  // In the order data passes through them; channels of the first's input and the last's output. [any thread]
  const std::vector<Layer>& layers() const { return layers_; }
  std::int64_t in_channels() const { return layers_.front().spec.in_channels; }
  std::int64_t out_channels() const { return layers_.back().spec.out_channels; }

  // Frames of input that reach one output frame: 1 + sum of halo_frames. [any thread]
  std::int64_t receptive_field() const { return receptive_field_; }
  // Frames of future input an output frame needs: sum of right_frames. [any thread]
  std::int64_t lookahead_frames() const { return lookahead_frames_; }
  // Numbers in all weights, batch norm statistics included. [any thread]
  std::int64_t parameters() const { return parameters_; }
  // Multiply-accumulates an output frame costs. [any thread]
  std::int64_t macs_per_frame() const { return macs_per_frame_; }

 private:
  std::vector<Layer> layers_;
  std::int64_t receptive_field_ = 1;
  std::int64_t lookahead_frames_ = 0;
  std::int64_t parameters_ = 0;
  std::int64_t macs_per_frame_ = 0;
};

}  // namespace halotap::kernels
