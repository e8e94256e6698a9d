#include "live/playback.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

namespace halotap::io {
namespace {

std::vector<float> counted(std::int64_t first, std::int64_t count) {
  std::vector<float> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), static_cast<float>(first));
  return result;
}

std::vector<float> block_of(Playback& playback, std::int64_t channels, std::int64_t frames) {
  std::vector<float> samples(static_cast<std::size_t>(frames * channels), -1.0F);
  playback.on_block(samples.data(), frames);
  return samples;
}

TEST(Playback, IsSilentUntilHalfTheRingIsFull) {
  Playback playback(2, 100);
  EXPECT_EQ(playback.write(counted(1, 98).data(), 49), 49);
  EXPECT_EQ(block_of(playback, 2, 10), std::vector<float>(20, 0.0F));
  EXPECT_EQ(playback.write(counted(99, 2).data(), 1), 1);
  EXPECT_EQ(block_of(playback, 2, 10), counted(1, 20));
  EXPECT_EQ(playback.waiting_frames(), 40);
  EXPECT_EQ(playback.counters().frames_played, 10U);
  EXPECT_EQ(playback.counters().frames_silent, 0U) << "nothing was due before";
}

TEST(Playback, TakesWhatFitsAndSaysHowMuch) {
  Playback playback(1, 10);
  EXPECT_EQ(playback.write(counted(1, 7).data(), 7), 7);
  EXPECT_EQ(playback.write(counted(8, 7).data(), 7), 3);
  EXPECT_EQ(block_of(playback, 1, 10), counted(1, 10));
}

TEST(Playback, CountsTheSilenceOfAnUnderrun) {
  Playback playback(1, 10);
  playback.write(counted(1, 6).data(), 6);
  EXPECT_EQ(block_of(playback, 1, 8), (std::vector<float>{1, 2, 3, 4, 5, 6, 0, 0}));
  EXPECT_EQ(playback.counters().frames_silent, 2U);
  playback.write(counted(7, 1).data(), 1);
  EXPECT_EQ(block_of(playback, 1, 2), (std::vector<float>{7, 0})) << "it goes on at once";
  EXPECT_EQ(playback.counters().frames_silent, 3U);
  EXPECT_EQ(playback.counters().frames_played, 7U);
}

TEST(Playback, PlaysAShortSoundWhenAllOfItIsWritten) {
  Playback playback(1, 100);
  playback.write(counted(1, 3).data(), 3);
  EXPECT_EQ(block_of(playback, 1, 4), (std::vector<float>{0, 0, 0, 0}));
  playback.end();
  EXPECT_EQ(block_of(playback, 1, 4), (std::vector<float>{1, 2, 3, 0}));
  EXPECT_EQ(playback.counters().frames_silent, 0U) << "silence behind the end is none";
}

TEST(Playback, PlaysEveryFrameInOrderBetweenTwoThreads) {
  constexpr std::int64_t kFrames = 20000;
  Playback playback(1, 256);
  std::vector<float> played;
  {
    const std::jthread session([&playback] {
      const std::vector<float> sound = counted(1, kFrames);
      for (std::int64_t at = 0; at < kFrames;) {
        const std::int64_t written =
            playback.write(sound.data() + at, std::min<std::int64_t>(kFrames - at, 1 + at % 50));
        if (written == 0) std::this_thread::yield();
        at += written;
      }
      playback.end();
    });
    while (static_cast<std::int64_t>(playback.counters().frames_played) < kFrames) {
      for (const float sample : block_of(playback, 1, 17)) {
        if (sample != 0) played.push_back(sample);
      }
      if (playback.waiting_frames() == 0) std::this_thread::yield();
    }
  }
  EXPECT_EQ(played, counted(1, kFrames));
}

}  // namespace
}  // namespace halotap::io
