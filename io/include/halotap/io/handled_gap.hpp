// A gap, and what was done about it. Frames that a session skips leave one too.
#pragma once

#include <cstdint>

#include "halotap/io/source.hpp"
#include "halotap/pipeline/input_policy.hpp"

namespace halotap::io {

// Output frames are counted from 0 as sinks get them, behind the stages. Those from first_frame on, `frames` of them,
// saw more than one side of the gap, or what fills it; some of them may have been written already when a gap is found
// late, and a run may end before the last. Only the model's receptive field counts: what a stage remembers (smooth,
// the times of threshold) goes on beyond it.
struct HandledGap {
  Gap gap = {};
  std::int64_t at_frame = 0;  // of the input, counted from the session's first: the one behind the gap
  pipeline::OnGap action = pipeline::OnGap::kReset;  // what was done, be it that another was asked for
  std::int64_t frames_filled = 0;                    // zeros that took the place of what is missing
  std::int64_t frames_skipped = 0;  // by the session, because they could not be on time: then all that is missing
  std::int64_t first_frame = 0;     // of the output; behind a reset, the new stream's first
  std::int64_t frames = 0;
};

}  // namespace halotap::io
