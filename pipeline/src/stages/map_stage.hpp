// Every sample by itself: what affine and log have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "halotap/pipeline/stage.hpp"
#include "stages/stage_values.hpp"

namespace halotap::pipeline {

// Gives `map(x)` for every sample of the channel, of all when it is empty, and the others as they are. Has no state.
template <typename Map>
class MapStage final : public Stage {
 public:
  MapStage(std::string channel, Map map) : channel_(std::move(channel)), map_(std::move(map)) {}

  StageOutput prepare(const StageFormat& input) override {
    samples_ = samples_of("channel", channel_, input);
    frame_samples_ = input.frame_samples();
    return {.channels = input.channels, .channel_names = input.channel_names};
  }

  bool process(const float* frame, float* result, EventList&) noexcept HALOTAP_NONBLOCKING override {
    std::copy_n(frame, frame_samples_, result);
    for (const std::size_t i : samples_) result[i] = static_cast<float>(map_(static_cast<double>(frame[i])));
    return true;
  }

  void reset() noexcept HALOTAP_NONBLOCKING override {}

 private:
  std::string channel_;
  Map map_;
  std::vector<std::size_t> samples_;  // that it changes
  std::int64_t frame_samples_ = 0;
};

// A maker of that stage.
template <typename Map>
StageMaker map_stage(const std::string& channel, const Map& map) {
  return [channel, map] { return std::make_unique<MapStage<Map>>(channel, map); };
}

}  // namespace halotap::pipeline
