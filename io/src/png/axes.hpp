// What stands on the axes of a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace halotap::io {

// Ticks at round numbers: whole multiples of 1, 2 or 5 times a power of ten.
struct Ticks {
  std::vector<double> positions;
  std::vector<std::string> labels;
};

// At most `most` (at least 2) ticks in [low, high], low < high, both finite. [any thread]
Ticks round_ticks(double low, double high, int most);

// The channel axis: a title and one label a channel.
struct ChannelAxis {
  std::string title;
  std::vector<std::string> labels;
};

// Names of the form "<number> <unit>" with one common unit become the numbers, under the title "channel (<unit>)"; any
// other names stand as they are; without names channels are numbered from 0. [any thread]
ChannelAxis channel_axis(const std::vector<std::string>& names, std::int64_t channels);

}  // namespace halotap::io
