// The picture of a recording: channels over time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "png/time_bins.hpp"

namespace halotap::io {

struct HeatMap {
  std::string name;                        // of what is shown, the title's start
  std::int64_t streams = 1;                // one panel each, the first on top
  std::int64_t channels = 1;               // the first at the bottom of its panel
  double rate_hz = 0;                      // 0: time is counted in frames
  std::vector<std::string> channel_names;  // empty for none
};

// What stands after the name: streams, channels, length, and how many values are not finite. [any thread]
std::string summary_of(const HeatMap& map, const TimeBins& bins);

// Draws `bins`, whose rows are [streams, channels], and returns a PNG file's bytes. Values that are all >= 0 are shown
// in decibels below the largest, down to -60; otherwise the scale is linear and 0 is in its middle. Values that are
// not finite get a colour of their own.
//
// Throws std::runtime_error with cairo's reason when that fails (memory, no font). [control]
std::string draw_heat_map(const HeatMap& map, const TimeBins& bins);

}  // namespace halotap::io
