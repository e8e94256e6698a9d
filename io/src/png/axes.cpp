#include "png/axes.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string_view>

namespace halotap::io {

namespace {

struct Measure {
  std::string_view number;
  std::string_view unit;
};

// "150 Hz" taken apart.
std::optional<Measure> parse_measure(std::string_view name) {
  const std::size_t space = name.find(' ');
  if (space == std::string_view::npos || space + 1 == name.size()) return std::nullopt;
  const std::string_view number = name.substr(0, space);
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(value)) return std::nullopt;
  return Measure{number, name.substr(space + 1)};
}

}  // namespace

Ticks round_ticks(double low, double high, int most) {
  const double least_step = (high - low) / (most - 1);
  const int exponent = static_cast<int>(std::floor(std::log10(least_step)));
  double step = 0;
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    step = factor * std::pow(10.0, exponent);
    if (step >= least_step * (1 - 1e-9)) break;
  }
  // The range's own ends count as inside in spite of rounding.
  const double first = std::ceil(low / step - 1e-9);
  const double last = std::floor(high / step + 1e-9);
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
  const double largest = std::max(std::abs(low), std::abs(high));
  const bool plain = decimals <= 4 && largest < 1e6;
  const int digits = 2 + static_cast<int>(std::log10(largest / step));  // tell neighbours apart
  Ticks ticks;
  for (double i = first; i <= last; ++i) {
    const double position = i == 0 ? 0.0 : i * step;  // no "-0"
    char label[64];
    std::snprintf(label, sizeof label, plain ? "%.*f" : "%.*g", plain ? decimals : digits, position);
    ticks.positions.push_back(position);
    ticks.labels.emplace_back(label);
  }
  return ticks;
}

ChannelAxis channel_axis(const std::vector<std::string>& names, std::int64_t channels) {
  ChannelAxis axis{"channel", names};
  if (names.empty()) {
    for (std::int64_t channel = 0; channel < channels; ++channel) axis.labels.push_back(std::to_string(channel));
    return axis;
  }
  std::vector<std::string> numbers;
  std::string_view unit;
  for (const std::string& name : names) {
    const auto measure = parse_measure(name);
    if (!measure || (!numbers.empty() && measure->unit != unit)) return axis;
    unit = measure->unit;
    numbers.emplace_back(measure->number);
  }
  return {"channel (" + std::string(unit) + ")", numbers};
}

}  // namespace halotap::io
