#include "stages/stage_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

#include "fault.hpp"
#include "stages/stage_fault.hpp"

namespace halotap::pipeline {
namespace {

constexpr double kMaxMilliseconds = 3600e3;  // an hour

std::string joined(const std::vector<std::string>& names) {
  constexpr std::size_t kNamesListed = 16;
  std::string list;
  for (std::size_t i = 0; i < names.size() && i < kNamesListed; ++i) list += (i > 0 ? ", " : "") + in_quotes(names[i]);
  return names.size() > kNamesListed ? list + ", ..." : list;
}

}  // namespace

std::string text_of(double number) {
  std::array<char, 32> room;
  return {room.data(), std::to_chars(room.data(), room.data() + room.size(), number).ptr};
}

void require_finite(const char* key, double value) {
  if (!std::isfinite(static_cast<float>(value))) throw StageFault(key, "a finite float32 number", text_of(value));
}

void require_time(const char* key, double milliseconds) {
  // Written so that a NaN is refused too.
  if (!(milliseconds >= 0 && milliseconds <= kMaxMilliseconds)) {
    throw StageFault(key, "milliseconds from 0 to 3600000", text_of(milliseconds));
  }
}

std::int64_t frames_lasting(double milliseconds, double rate_hz) {
  // A time that is a whole number of frames but for rounding errors is not to become one more.
  const double frames = milliseconds * rate_hz / 1e3 * (1 - 1e-12);
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(frames)));
}

std::int64_t channel_number(const char* key, const std::string& channel, const StageFormat& input) {
  const auto name = std::find(input.channel_names.begin(), input.channel_names.end(), channel);
  if (name != input.channel_names.end()) return name - input.channel_names.begin();
  std::int64_t number = 0;
  const char* const end = channel.data() + channel.size();
  const auto [stop, error] = std::from_chars(channel.data(), end, number);
  if (error != std::errc{} || stop != end || number < 0 || number >= input.channels) {
    const std::string names = input.channel_names.empty() ? "" : "one of " + joined(input.channel_names) + " or ";
    throw StageFault(key, names + "a number from 0 to " + std::to_string(input.channels - 1), in_quotes(channel));
  }
  return number;
}

std::vector<std::size_t> samples_of(const char* key, const std::string& channel, const StageFormat& input) {
  const std::int64_t first = channel.empty() ? 0 : channel_number(key, channel, input);
  const std::int64_t step = channel.empty() ? 1 : input.channels;
  std::vector<std::size_t> samples;
  for (std::int64_t i = first; i < input.frame_samples(); i += step) samples.push_back(static_cast<std::size_t>(i));
  return samples;
}

}  // namespace halotap::pipeline
