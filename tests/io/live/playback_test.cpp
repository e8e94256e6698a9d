#include "live/playback.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
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
  playback.on_block(samples.data(), frames, 0, false);
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

// Whoever writes cannot wait: what comes while the reserve's time passes is then left in the ring.
TEST(Playback, BeginsAReserveAfterTheFirstFrameOfALiveSource) {
  Playback playback(2, 100, 15);
  EXPECT_EQ(block_of(playback, 2, 10), std::vector<float>(20, 0.0F));
  playback.write(counted(1, 20).data(), 10);
  EXPECT_EQ(block_of(playback, 2, 10), std::vector<float>(20, 0.0F));
  playback.write(counted(21, 20).data(), 10);
  std::vector<float> expected(10, 0.0F);
  for (const float sample : counted(1, 10)) expected.push_back(sample);
  EXPECT_EQ(block_of(playback, 2, 10), expected);
  EXPECT_EQ(playback.waiting_frames(), 15);
  EXPECT_EQ(playback.counters().is_playing, 1U);
  EXPECT_EQ(playback.counters().beginnings, 1U);
  EXPECT_EQ(playback.counters().frames_silent, 0U) << "nothing was due before";
}

TEST(Playback, WaitsForTheReserveOfADeviceThatTakesManyBlocksAtOnce) {
  Playback playback(1, 100, 20);
  playback.write(counted(1, 5).data(), 5);
  for (int block = 0; block < 8; ++block) EXPECT_EQ(block_of(playback, 1, 10), std::vector<float>(10, 0.0F));
  playback.write(counted(6, 15).data(), 15);
  EXPECT_EQ(block_of(playback, 1, 10), counted(1, 10));
}

TEST(Playback, BeginsLikewiseBehindAnUnderrunOfALiveSource) {
  Playback playback(1, 100, 10);
  playback.write(counted(1, 14).data(), 14);
  block_of(playback, 1, 10);
  block_of(playback, 1, 10);
  EXPECT_EQ(block_of(playback, 1, 6), (std::vector<float>{11, 12, 13, 14, 0, 0}));
  EXPECT_EQ(playback.counters().is_playing, 0U);
  EXPECT_EQ(block_of(playback, 1, 5), std::vector<float>(5, 0.0F));
  playback.write(counted(15, 30).data(), 30);
  EXPECT_EQ(block_of(playback, 1, 10), std::vector<float>(10, 0.0F));
  EXPECT_EQ(block_of(playback, 1, 2), counted(15, 2));
  const PlaybackCounters counters = playback.counters();
  EXPECT_EQ(counters.frames_silent, 2U + 5U + 10U);
  EXPECT_EQ(counters.underruns, 1U);
  EXPECT_EQ(counters.beginnings, 2U);
  EXPECT_EQ(counters.frames_played, 16U);
}

TEST(Playback, CountsAnUnderrunOnceHoweverLongItIs) {
  Playback playback(1, 10);
  playback.write(counted(1, 6).data(), 6);
  for (int block = 0; block < 5; ++block) block_of(playback, 1, 4);
  playback.write(counted(7, 4).data(), 4);
  for (int block = 0; block < 5; ++block) block_of(playback, 1, 4);
  EXPECT_EQ(playback.counters().underruns, 2U);
}

TEST(Playback, GivesUpTheOldestWhenToldTo) {
  Playback playback(1, 100, 0);
  playback.write(counted(1, 50).data(), 50);
  EXPECT_EQ(block_of(playback, 1, 4), counted(1, 4));
  playback.discard(10);
  playback.discard(20);
  EXPECT_EQ(block_of(playback, 1, 4), counted(35, 4));
  playback.discard(1000);
  EXPECT_EQ(block_of(playback, 1, 4), std::vector<float>(4, 0.0F));
  EXPECT_EQ(playback.counters().frames_discarded, 42U);
  EXPECT_EQ(playback.counters().frames_played, 8U);
}

TEST(Playback, PlaysNothingThatCameForALostDeviceOfALiveSource) {
  for (const bool is_live : {false, true}) {
    Playback playback(1, 20, is_live ? std::optional<std::int64_t>(5) : std::nullopt);
    playback.write(counted(1, 20).data(), 20);
    block_of(playback, 1, 10);
    playback.write(counted(21, 10).data(), 10);
    playback.on_reopen();
    if (is_live) {
      EXPECT_EQ(block_of(playback, 1, 5), std::vector<float>(5, 0.0F));
      EXPECT_EQ(playback.waiting_frames(), 0);
      playback.write(counted(31, 10).data(), 10);
      EXPECT_EQ(block_of(playback, 1, 6), (std::vector<float>{0, 0, 0, 0, 0, 31}));
      EXPECT_EQ(playback.counters().underruns, 0U);
    } else {
      EXPECT_EQ(block_of(playback, 1, 5), counted(11, 5)) << "a recording goes on where it was";
    }
  }
}

TEST(Playback, PlaysOutTheRestOfALiveSourceAtOnce) {
  Playback playback(1, 100, 50);
  playback.write(counted(1, 3).data(), 3);
  EXPECT_EQ(block_of(playback, 1, 2), (std::vector<float>{0, 0}));
  playback.end();
  EXPECT_EQ(block_of(playback, 1, 4), (std::vector<float>{1, 2, 3, 0}));
  EXPECT_EQ(playback.counters().frames_silent, 0U);
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
