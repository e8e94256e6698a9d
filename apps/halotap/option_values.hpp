// The words that options take, read strictly: the whole text or nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/pipeline.hpp"

namespace halotap::apps {

using pipeline::kMaxChunkFrames;
inline constexpr std::int64_t kRandomChunkFrames = 64;  // the longest chunk that random:SEED draws

// "64" or "random:7".
std::optional<pipeline::ChunkSchedule> parse_chunks(std::string_view text);
// "max" (no value inside) or a factor of real time above 0, as "1.0".
std::optional<std::optional<double>> parse_speed(std::string_view text);
// "500ms", "10s", "2min" or "1h", above 0.
std::optional<std::chrono::duration<double>> parse_duration(std::string_view text);
// A number of seconds from 0.001 to 3600.
std::optional<double> parse_seconds(std::string_view text);
// A finite number, at least 0.
std::optional<double> parse_tolerance(std::string_view text);
// "1,2,4,8": each at least 1.
std::optional<std::vector<std::int64_t>> parse_dilations(std::string_view text);

// From the first to the last.
struct CountRange {
  std::int64_t least = 1;
  std::int64_t most = 1;
};
// Decimal digits alone, within the range.
std::optional<std::int64_t> parse_count(std::string_view text, CountRange range);

// Adds the option `name`, whose text `parse` turns into `value`; `metavar` stands for the text in --help. A text that
// `parse` refuses throws ConfigError naming the option, what it takes (`expected`) and what it got.
template <typename Value, typename Parse>
CLI::Option* add_value(CLI::App& app, const std::string& name, Value& value, Parse parse, const std::string& metavar,
                       const std::string& expected, const std::string& help) {
  const auto store = [&value, name, parse, expected](const std::string& text) {
    const auto parsed = parse(text);
    if (!parsed) throw pipeline::ConfigError(name + ": expected " + expected + ", got '" + text + "'");
    value = *parsed;
  };
  return app.add_option_function<std::string>(name, store, help)->type_name(metavar);
}

// Likewise for a whole number.
template <typename Value>
CLI::Option* add_count(CLI::App& app, const std::string& name, Value& value, CountRange range,
                       const std::string& help) {
  return add_value(
      app, name, value, [range](std::string_view text) { return parse_count(text, range); }, "N",
      "a whole number from " + std::to_string(range.least) + " to " + std::to_string(range.most), help);
}

}  // namespace halotap::apps
