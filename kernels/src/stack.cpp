#include "halotap/kernels/stack.hpp"

#include <algorithm>
#include <cstddef>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace halotap::kernels {

bool Layer::has_mix() const {
  if (spec.type != LayerType::kTemporalConv || spec.residual || spec.in_channels != spec.out_channels) return true;
  const auto is_zero = [](double value) { return value == 0; };
  if (!std::all_of(weights.pw_bias.begin(), weights.pw_bias.end(), is_zero)) return true;
  for (std::int64_t o = 0; o < spec.out_channels; ++o) {
    for (std::int64_t c = 0; c < spec.in_channels; ++c) {
      const double identity = o == c ? 1 : 0;
      if (weights.pw_weight[static_cast<std::size_t>(o * spec.in_channels + c)] != identity) return true;
    }
  }
  return false;
}

std::int64_t Layer::macs_per_frame() const {
  const std::int64_t depthwise = spec.type == LayerType::kTemporalConv ? spec.in_channels * spec.kernel_size : 0;
  return depthwise + (has_mix() ? spec.in_channels * spec.out_channels : 0);
}

Stack::Stack(std::vector<Layer> layers) : layers_(std::move(layers)) {
  if (layers_.empty() || static_cast<std::int64_t>(layers_.size()) > kMaxLayers) {
    throw std::invalid_argument("layers: expected 1 to " + std::to_string(kMaxLayers) + ", got " +
                                std::to_string(layers_.size()));
  }
  std::set<std::string> names;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const LayerSpec& spec = layers_[i].spec;
    const auto refuse = [&](const std::string& what) {
      throw std::invalid_argument("layer '" + spec.name + "': " + what);
    };
    if (!names.insert(spec.name).second) refuse("name: expected one of its own, got that of an earlier layer");
    try {
      validate(spec);
      validate(spec, layers_[i].weights);
    } catch (const std::invalid_argument& error) {
      refuse(error.what());
    }
    if (i > 0 && spec.in_channels != layers_[i - 1].spec.out_channels) {
      refuse("in_channels: expected " + std::to_string(layers_[i - 1].spec.out_channels) + ", the out_channels of '" +
             layers_[i - 1].spec.name + "', got " + std::to_string(spec.in_channels));
    }
    receptive_field_ += spec.halo_frames();
    lookahead_frames_ += spec.right_frames();
    macs_per_frame_ += layers_[i].macs_per_frame();
    parameters_ += layers_[i].weights.parameters();
  }
}

}  // namespace halotap::kernels
