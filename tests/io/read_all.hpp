// A source's frames in one piece.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "halotap/io/source.hpp"

namespace halotap::io {

// Reads to the end, `block_frames` at a time; [frames, streams, channels]. Holds the source to its contract: less than
// asked only at the end, then 0.
template <class Real = float>
std::vector<Real> read_all(Source& source, std::int64_t block_frames = 5) {
  const std::int64_t values = source.info().streams * source.info().channels;
  std::vector<Real> block(static_cast<std::size_t>(block_frames * values));
  std::vector<Real> all;
  for (;;) {
    const std::int64_t count = source.read(block.data(), block_frames);
    all.insert(all.end(), block.begin(), block.begin() + count * values);
    if (count == block_frames) continue;
    EXPECT_EQ(source.read(block.data(), block_frames), 0);
    break;
  }
  if (source.info().frames >= 0) {
    EXPECT_EQ(static_cast<std::int64_t>(all.size()), source.info().frames * values);
  }
  return all;
}

}  // namespace halotap::io
