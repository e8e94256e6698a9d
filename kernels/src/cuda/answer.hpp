// Waiting for a device that may never answer.
#pragma once

#include <charconv>
#include <cstdint>
#include <cstring>

#include "halotap/kernels/executor.hpp"

namespace halotap::kernels::cuda {

// Asks `is_done` until it says so; false when it has not within `limit_ns`. It is asked once more behind the limit, so
// that a host which was stopped in between does not take that for the device's silence. Without a clock there is no
// limit. [worker]
template <typename IsDone>
bool answers(NowNs now_ns, std::int64_t limit_ns, const IsDone& is_done) noexcept {
  const std::int64_t begun = now_ns != nullptr ? now_ns() : 0;
  for (;;) {
    const bool is_over = now_ns != nullptr && now_ns() - begun > limit_ns;
    if (is_done()) return true;
    if (is_over) return false;
  }
}

// "no answer within 100 ms" and `note` behind it, which is short: what Executor::failure has to say, made without
// allocating.
class NoAnswer {
 public:
  const char* text(std::int64_t limit_ns, const char* note = "") noexcept {
    constexpr char kBegin[] = "no answer within ";
    constexpr char kEnd[] = " ms";
    char* at = text_ + sizeof kBegin - 1;
    std::memcpy(text_, kBegin, sizeof kBegin);
    at = std::to_chars(at, at + kMostDigits, limit_ns / 1000000).ptr;
    std::memcpy(at, kEnd, sizeof kEnd);
    at += sizeof kEnd - 1;
    std::strncpy(at, note, static_cast<std::size_t>(text_ + sizeof text_ - 1 - at));
    return text_;
  }

 private:
  static constexpr std::int64_t kMostDigits = 20;
  char text_[128] = {};
};

}  // namespace halotap::kernels::cuda
