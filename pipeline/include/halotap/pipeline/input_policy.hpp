// What becomes of input that is missing or invalid.
#pragma once

#include <string_view>

namespace halotap::pipeline {

// What a gap does to the stream.
enum class OnGap {
  kReset,  // it ends in front of the gap and begins again behind it
  kMark,   // it goes on, and the results that saw both sides are named
  kFill,   // zeros take the place of what is missing, and the results that saw them are named; a gap that is too long
           // to fill resets
};

// What becomes of an invalid sample: NaN, infinite, or of a magnitude above kMaxMagnitude. It is counted in any case.
enum class OnInvalid {
  kPass,  // nothing
  kHold,  // it becomes the same channel's sample of the frame before; 0 where a stream begins
  kZero,  // it becomes 0
};

// Beyond it the products of a layer may overflow.
inline constexpr float kMaxMagnitude = 1e30F;

struct InputPolicy {
  OnGap on_gap = OnGap::kReset;
  OnInvalid on_invalid = OnInvalid::kPass;
};

// As files spell them ("reset", "pass"). [any thread]
std::string_view to_string(OnGap on_gap);
std::string_view to_string(OnInvalid on_invalid);

}  // namespace halotap::pipeline
