#include "live/capture.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <thread>
#include <vector>

namespace halotap::io {
namespace {

constexpr double kRateHz = 48000;

// Delivers blocks whose frames count on: frame n of channel c is 10 n + c.
class Producer {
 public:
  Producer(Capture& capture, std::int64_t channels) : capture_(capture), channels_(channels) {}

  void deliver(std::int64_t frames) {
    block_.resize(static_cast<std::size_t>(frames * channels_));
    for (std::int64_t i = 0; i < frames * channels_; ++i) {
      const std::int64_t number = made_ + i / channels_;
      block_[static_cast<std::size_t>(i)] = static_cast<float>(number * 10 + i % channels_);
    }
    made_ += frames;
    capture_.on_block(block_.data(), frames, now_ns(), false);
  }
  void lose(std::int64_t frames) { made_ += frames; }

 private:
  std::int64_t now_ns() const { return static_cast<std::int64_t>(static_cast<double>(made_) / kRateHz * 1e9); }

  Capture& capture_;
  std::int64_t channels_;
  std::int64_t made_ = 0;
  std::vector<float> block_;
};

// The numbers of the frames that come next, all channels checked.
std::vector<std::int64_t> read(Capture& capture, std::int64_t channels, std::int64_t frames) {
  std::vector<float> samples(static_cast<std::size_t>(frames * channels));
  const std::int64_t got = capture.read(samples.data(), frames);
  std::vector<std::int64_t> numbers;
  for (std::int64_t t = 0; t < got; ++t) {
    numbers.push_back(static_cast<std::int64_t>(samples[static_cast<std::size_t>(t * channels)]) / 10);
    for (std::int64_t c = 0; c < channels; ++c) {
      EXPECT_EQ(samples[static_cast<std::size_t>(t * channels + c)], static_cast<float>(numbers.back() * 10 + c));
    }
  }
  return numbers;
}

std::vector<std::int64_t> numbers(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), first);
  return result;
}

TEST(Capture, GivesEveryFrameInOrder) {
  Capture capture(3, kRateHz, 100);
  Producer producer(capture, 3);
  producer.deliver(40);
  EXPECT_EQ(read(capture, 3, 30), numbers(0, 30));
  producer.deliver(17);
  EXPECT_EQ(read(capture, 3, 30), numbers(30, 27));
  EXPECT_EQ(read(capture, 3, 30), numbers(0, 0));
  EXPECT_FALSE(capture.is_at_gap());
  EXPECT_FALSE(capture.take_gap().exists());
  const CaptureCounters counters = capture.counters();
  EXPECT_EQ(counters.blocks, 2U);
  EXPECT_EQ(counters.frames_delivered, 57U);
  EXPECT_EQ(counters.frames_dropped, 0U);
}

TEST(Capture, DropsTheNewestOfAFullRingAndMarksThePlace) {
  Capture capture(2, kRateHz, 100);
  Producer producer(capture, 2);
  producer.deliver(60);
  producer.deliver(60);  // 40 fit
  producer.deliver(60);  // none
  EXPECT_EQ(read(capture, 2, 50), numbers(0, 50));
  producer.deliver(30);
  EXPECT_EQ(read(capture, 2, 500), numbers(50, 50));
  EXPECT_TRUE(capture.is_at_gap());
  EXPECT_EQ(read(capture, 2, 500), numbers(0, 0)) << "nothing is read across a gap";
  const Gap gap = capture.take_gap();
  EXPECT_EQ(gap.frames_dropped, 80);
  EXPECT_EQ(gap.frames_lost, 0);
  EXPECT_FALSE(capture.take_gap().exists());
  EXPECT_EQ(read(capture, 2, 500), numbers(180, 30));
  EXPECT_EQ(capture.counters().frames_delivered, 210U);
  EXPECT_EQ(capture.counters().frames_dropped, 80U);
}

TEST(Capture, TellsWhatTheClockMissesInFrontOfTheFramesBehindIt) {
  Capture capture(1, kRateHz, 100000);
  Producer producer(capture, 1);
  for (int block = 0; block < 50; ++block) producer.deliver(480);
  producer.lose(9600);
  producer.deliver(480);
  producer.deliver(480);
  EXPECT_EQ(read(capture, 1, 100000), numbers(0, 24000));
  const Gap gap = capture.take_gap();
  EXPECT_NEAR(static_cast<double>(gap.frames_lost), 9600, 1);
  EXPECT_EQ(gap.frames_late, 0);
  EXPECT_EQ(read(capture, 1, 100000), numbers(24000 + 9600, 960));
}

TEST(Capture, TellsALossAsSoonAsItIsKnownWhenTheReaderIsPastIt) {
  Capture capture(1, kRateHz, 100000);
  Producer producer(capture, 1);
  for (int block = 0; block < 50; ++block) producer.deliver(480);
  producer.lose(9600);
  producer.deliver(480);
  EXPECT_EQ(read(capture, 1, 100000).size(), 24480U);
  producer.deliver(480);
  EXPECT_TRUE(capture.is_at_gap());
  const Gap gap = capture.take_gap();
  EXPECT_NEAR(static_cast<double>(gap.frames_lost), 9600, 1);
  EXPECT_EQ(gap.frames_late, 480) << "the block behind it was read before it was known";
}

std::int64_t ms(double milliseconds) { return static_cast<std::int64_t>(milliseconds * 1e6); }

// 480 frames, 10 ms.
void deliver(Capture& capture, std::int64_t now_ns) {
  static const std::vector<float> block(480);
  capture.on_block(block.data(), 480, now_ns, false);
}

std::int64_t captured_after_reading(Capture& capture, std::int64_t frames) {
  std::vector<float> samples(static_cast<std::size_t>(frames));
  EXPECT_EQ(capture.read(samples.data(), frames), frames);
  return capture.captured_ns();
}

// A block that comes late, and those that come at once behind it, were captured when they should have been.
TEST(Capture, DatesFramesByTheirCountAndNotByALateBlock) {
  Capture capture(1, kRateHz, 100000);
  for (int block = 1; block <= 10; ++block) deliver(capture, ms(10 * block));
  for (int block = 11; block <= 16; ++block) deliver(capture, ms(160));
  EXPECT_NEAR(captured_after_reading(capture, 480), ms(10), 2);
  EXPECT_NEAR(captured_after_reading(capture, 240), ms(15), 2);
  EXPECT_NEAR(captured_after_reading(capture, 240), ms(20), 2);
  EXPECT_NEAR(captured_after_reading(capture, 9 * 480), ms(110), 2);
  EXPECT_NEAR(captured_after_reading(capture, 5 * 480), ms(160), 2);
}

TEST(Capture, DatesFramesFromTheLeastLateBlock) {
  Capture capture(1, kRateHz, 100000);
  deliver(capture, ms(17));  // 7 ms late
  deliver(capture, ms(20));
  deliver(capture, ms(34));
  EXPECT_NEAR(captured_after_reading(capture, 3 * 480), ms(30), 2);
}

TEST(Capture, DatesFramesAnewBehindALoss) {
  Capture capture(1, kRateHz, 100000);
  for (int block = 1; block <= 50; ++block) deliver(capture, ms(10 * block));
  for (int block = 71; block <= 73; ++block) deliver(capture, ms(10 * block));  // 20 blocks never came
  EXPECT_NEAR(captured_after_reading(capture, 50 * 480), ms(500), 2);
  EXPECT_NEAR(static_cast<double>(capture.take_gap().frames_lost), 9600, 1);
  EXPECT_NEAR(captured_after_reading(capture, 480), ms(710), ms(0.03));
  EXPECT_NEAR(captured_after_reading(capture, 2 * 480), ms(730), ms(0.03));
}

TEST(Capture, DatesFramesAnewBehindADropAndAReopening) {
  Capture capture(1, kRateHz, 960);
  for (int block = 1; block <= 5; ++block) deliver(capture, ms(10 * block));  // room for two
  EXPECT_NEAR(captured_after_reading(capture, 960), ms(20), 2);
  deliver(capture, ms(60));
  EXPECT_EQ(capture.take_gap().frames_dropped, 3 * 480);
  EXPECT_NEAR(captured_after_reading(capture, 480), ms(60), 2);
  capture.on_reopen();
  deliver(capture, ms(5000));
  EXPECT_TRUE(capture.take_gap().is_reopening);
  EXPECT_NEAR(captured_after_reading(capture, 480), ms(5000), ms(0.03));
}

// 500 ppm make 300 ms of ten minutes.
TEST(Capture, KeepsDatingFramesOfAClockThatDrifts) {
  for (const double drift : {-500e-6, 500e-6}) {
    Capture capture(1, kRateHz, 100000);
    for (int block = 1; block <= 60000; ++block) {
      const std::int64_t now_ns = ms(10 * block * (1 + drift));
      deliver(capture, now_ns);
      ASSERT_NEAR(captured_after_reading(capture, 480), now_ns, ms(1)) << block;
    }
  }
}

// A clock that drifts has many lines in time. Gaps find room all the same when nobody reads for long.
TEST(Capture, LeavesRoomForGapsWhereNobodyReads) {
  Capture capture(1, kRateHz, 10000 * 480);
  const auto at = [](std::int64_t block) { return ms(10 * static_cast<double>(block) * 1.0005); };
  for (int block = 1; block <= 9000; ++block) deliver(capture, at(block));
  for (int block = 9021; block <= 9023; ++block) deliver(capture, at(block));
  EXPECT_EQ(capture.counters().frames_dropped, 0U);
  captured_after_reading(capture, 9000 * 480);
  EXPECT_NEAR(static_cast<double>(capture.take_gap().frames_lost), 9600, 50);
  EXPECT_NEAR(captured_after_reading(capture, 3 * 480), at(9023), ms(1));
}

TEST(Capture, SaysThatTheDeviceWasReopened) {
  Capture capture(1, kRateHz, 10000);
  Producer producer(capture, 1);
  producer.deliver(480);
  capture.on_reopen();
  producer.lose(4800);
  producer.deliver(480);
  EXPECT_EQ(read(capture, 1, 10000), numbers(0, 480));
  const Gap gap = capture.take_gap();
  EXPECT_TRUE(gap.is_reopening);
  EXPECT_NEAR(static_cast<double>(gap.frames_lost), 4800, 1);
  EXPECT_EQ(read(capture, 1, 10000).size(), 480U);
}

TEST(Capture, LosesNoGapHoweverManyThereAre) {
  Capture capture(1, kRateHz, 8);
  Producer producer(capture, 1);
  std::int64_t seen = 0;
  std::int64_t missing = 0;
  const auto read_all = [&](std::int64_t most) {
    seen += static_cast<std::int64_t>(read(capture, 1, most).size());
    missing += capture.take_gap().frames_dropped;
  };
  for (int block = 0; block < 1000; ++block) {
    producer.deliver(5);
    if (block % 10 == 0) read_all(1);  // more gaps than places for them
  }
  for (int i = 0; i < 1000; ++i) read_all(100);
  producer.deliver(5);  // brings the gap in front of it
  for (int i = 0; i < 100; ++i) read_all(100);
  EXPECT_EQ(seen + missing, 5005);
}

// The value of each frame is its number: between two that follow each other is what the gap there says.
TEST(Capture, PutsEveryGapAtItsPlaceBetweenTwoThreads) {
  constexpr std::int64_t kBlocks = 20000;
  Capture capture(1, kRateHz, 64);
  Producer producer(capture, 1);
  std::int64_t total = 0;
  for (std::int64_t block = 0; block < kBlocks; ++block) total += 1 + block % 31;
  std::int64_t next = 0;
  const auto read_on = [&] {
    for (const std::int64_t number : read(capture, 1, 40)) ASSERT_EQ(number, next++);
    next += capture.take_gap().frames_dropped;
  };
  {
    const std::jthread device([&producer] {
      for (std::int64_t block = 0; block < kBlocks; ++block) producer.deliver(1 + block % 31);
    });
    while (capture.counters().blocks < kBlocks && !HasFatalFailure()) read_on();
  }
  for (int i = 0; i < 200; ++i) read_on();
  producer.deliver(1);  // brings the gap in front of it
  for (int i = 0; i < 2; ++i) read_on();
  EXPECT_EQ(next, total + 1);
}

}  // namespace
}  // namespace halotap::io
