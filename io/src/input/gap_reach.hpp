// Which results a gap reaches.
#pragma once

#include <algorithm>
#include <cstdint>

namespace halotap::io {

struct FrameRange {
  std::int64_t first = 0;
  std::int64_t end = 0;  // behind the last

  friend bool operator==(const FrameRange&, const FrameRange&) = default;
};

// The engine's output frames that depend on frames from both sides of a gap, or on one of the `filled` frames that were
// put into it. Output frame t depends on the receptive_field input frames up to t + lookahead. The gap is in front of
// input frame `at_frame`, or up to `late` frames before that: where exactly is not known. Empty where nothing came
// before and nothing was filled. [any thread]
inline FrameRange reach_of_gap(std::int64_t at_frame, std::int64_t late, std::int64_t filled,
                               std::int64_t receptive_field, std::int64_t lookahead) {
  if (receptive_field == 1) late = 0;  // such a result sees one frame, on whichever side that is
  const std::int64_t earliest = std::max<std::int64_t>(at_frame - late, std::min<std::int64_t>(at_frame, 1));
  const std::int64_t first = std::max<std::int64_t>(earliest - lookahead, 0);
  if (at_frame == 0 && filled == 0) return {first, first};
  return {first, std::max(at_frame + filled + receptive_field - 1 - lookahead, first)};
}

}  // namespace halotap::io
