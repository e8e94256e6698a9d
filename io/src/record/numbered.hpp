// The names of a recording's files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace halotap::io {

inline constexpr std::string_view kRecordingExtension = ".wav";

// "a.wav", "a.2.wav", "a.3.wav", ...; `recording` is the first. [any thread]
inline std::string numbered(const std::string& recording, std::int64_t number) {
  if (number == 1) return recording;
  return recording.substr(0, recording.size() - kRecordingExtension.size()) + "." + std::to_string(number) +
         std::string(kRecordingExtension);
}

// Whether `name` is one of those of a recording, but for the first. [any thread]
inline bool is_numbered(const std::string& recording, const std::string& name) {
  if (recording.size() < kRecordingExtension.size()) return false;
  const std::string front = recording.substr(0, recording.size() - kRecordingExtension.size()) + ".";
  if (name.size() <= front.size() + kRecordingExtension.size() || name.substr(0, front.size()) != front) return false;
  if (name.substr(name.size() - kRecordingExtension.size()) != kRecordingExtension) return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(front.size()),
                     name.end() - static_cast<std::ptrdiff_t>(kRecordingExtension.size()),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace halotap::io
