#include "input/gap_reach.hpp"

#include <gtest/gtest.h>

namespace halotap::io {
namespace {

// Looks at every output frame's receptive field, one after the other.
FrameRange searched(std::int64_t at_frame, std::int64_t late, std::int64_t filled, std::int64_t receptive_field,
                    std::int64_t lookahead) {
  FrameRange range{-1, -1};
  for (std::int64_t t = 0; t < 200; ++t) {
    bool reached = false;
    const std::int64_t last = t + lookahead;
    const std::int64_t first = std::max<std::int64_t>(last - receptive_field + 1, 0);
    // The gap may be in front of any of these.
    for (std::int64_t gap = std::max<std::int64_t>(at_frame - late, 0); gap <= at_frame; ++gap) {
      if (gap > 0 && first < gap && last >= gap) reached = true;
    }
    if (first < at_frame + filled && last >= at_frame && filled > 0) reached = true;
    if (!reached) continue;
    if (range.first < 0) range.first = t;
    EXPECT_TRUE(range.end < 0 || range.end == t) << "one piece";
    range.end = t + 1;
  }
  return range;
}

TEST(GapReach, IsWhatASearchThroughAllReceptiveFieldsFinds) {
  for (const std::int64_t at_frame : {0, 1, 2, 7, 40}) {
    for (const std::int64_t late : {0, 1, 5}) {
      for (const std::int64_t filled : {0, 1, 9}) {
        for (const std::int64_t receptive_field : {1, 2, 9}) {
          for (std::int64_t lookahead = 0; lookahead < receptive_field; ++lookahead) {
            if (late > at_frame) continue;
            const FrameRange found = reach_of_gap(at_frame, late, filled, receptive_field, lookahead);
            const FrameRange expected = searched(at_frame, late, filled, receptive_field, lookahead);
            if (expected.first < 0) {
              EXPECT_EQ(found.first, found.end);
            } else {
              EXPECT_EQ(found, expected) << at_frame << " " << late << " " << filled << " " << receptive_field << " "
                                         << lookahead << ": " << found.first << " to " << found.end;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace halotap::io
