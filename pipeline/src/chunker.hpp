// How long the next chunk is.
#pragma once

#include <cstdint>
#include <optional>

#include "halotap/pipeline/pipeline.hpp"

namespace halotap::pipeline {

// Gives the chunk lengths of a ChunkSchedule in order: its fixed length, or lengths drawn from its seed. A length stays
// the next one until it is taken. [worker]
class Chunker {
 public:
  explicit Chunker(const ChunkSchedule& schedule) : schedule_(schedule), state_(schedule.seed.value_or(0)) { draw(); }

  std::int64_t next_frames() const noexcept { return next_; }
  void take() noexcept { draw(); }

 private:
  void draw() noexcept {
    if (!schedule_.seed) {
      next_ = schedule_.max_frames;
      return;
    }
    // splitmix64 (Steele, Lea, Flood 2014): unlike the standard library's distributions, the same on every platform.
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    mixed ^= mixed >> 31;
    next_ = 1 + static_cast<std::int64_t>(mixed % static_cast<std::uint64_t>(schedule_.max_frames));
  }

  ChunkSchedule schedule_;
  std::uint64_t state_;
  std::int64_t next_ = 0;
};

}  // namespace halotap::pipeline
