// What an audio file may ask for, read or written.
#pragma once

#include <cstdint>

namespace halotap::io {

inline constexpr std::int64_t kMaxAudioChannels = 1024;  // libsndfile's own bound
inline constexpr std::int64_t kMaxAudioRateHz = 1'000'000;

}  // namespace halotap::io
