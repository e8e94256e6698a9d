#include "option_values.hpp"

#include <charconv>
#include <cmath>

namespace halotap::apps {
namespace {

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<double> parse_positive(std::string_view text) {
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) && *number > 0 ? number : std::nullopt;
}

}  // namespace

std::optional<pipeline::ChunkSchedule> parse_chunks(std::string_view text) {
  constexpr std::string_view kRandom = "random:";
  if (text.substr(0, kRandom.size()) == kRandom) {
    const auto seed = parse_number<std::uint64_t>(text.substr(kRandom.size()));
    if (!seed) return std::nullopt;
    return pipeline::ChunkSchedule{kRandomChunkFrames, seed};
  }
  const auto frames = parse_count(text, {1, kMaxChunkFrames});
  if (!frames) return std::nullopt;
  return pipeline::ChunkSchedule{*frames, std::nullopt};
}

std::optional<std::optional<double>> parse_speed(std::string_view text) {
  if (text == "max") return std::optional<double>();
  const auto speed = parse_positive(text);
  if (!speed) return std::nullopt;
  return speed;
}

std::optional<std::chrono::duration<double>> parse_duration(std::string_view text) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  // "ms" before "s": the first suffix that fits is taken.
  for (const Unit unit : {Unit{"ms", 1e-3}, Unit{"s", 1}, Unit{"min", 60}, Unit{"h", 3600}}) {
    if (text.size() <= unit.name.size() || text.substr(text.size() - unit.name.size()) != unit.name) continue;
    const auto number = parse_positive(text.substr(0, text.size() - unit.name.size()));
    if (!number) return std::nullopt;
    return std::chrono::duration<double>(*number * unit.seconds);
  }
  return std::nullopt;
}

std::optional<double> parse_seconds(std::string_view text) {
  const auto number = parse_number<double>(text);
  return number && *number >= 0.001 && *number <= 3600 ? number : std::nullopt;
}

std::optional<double> parse_tolerance(std::string_view text) {
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) && *number >= 0 ? number : std::nullopt;
}

std::optional<std::int64_t> parse_count(std::string_view text, CountRange range) {
  const auto count = parse_number<std::int64_t>(text);
  return count && *count >= range.least && *count <= range.most ? count : std::nullopt;
}

std::optional<std::vector<std::int64_t>> parse_dilations(std::string_view text) {
  std::vector<std::int64_t> dilations;
  while (true) {
    const std::size_t comma = text.find(',');
    const auto dilation = parse_number<std::int64_t>(text.substr(0, comma));
    if (!dilation || *dilation < 1) return std::nullopt;
    dilations.push_back(*dilation);
    if (comma == std::string_view::npos) return dilations;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace halotap::apps
