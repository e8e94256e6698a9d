#include "resample/resampled_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "expect_error.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"
#include "live/scripted_source.hpp"
#include "read_all.hpp"
#include "session/session_parts.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;

// Samples in memory, [frames, streams, channels].
class MemorySource final : public Source {
 public:
  MemorySource(SourceInfo info, std::vector<float> samples) : info_(std::move(info)), samples_(std::move(samples)) {}

  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    const std::int64_t frame_samples = info_.streams * info_.channels;
    const std::int64_t count = std::min(frames, static_cast<std::int64_t>(samples_.size()) / frame_samples - at_);
    std::copy_n(samples_.begin() + at_ * frame_samples, count * frame_samples, samples);
    at_ += count;
    return count;
  }

 private:
  SourceInfo info_;
  std::vector<float> samples_;
  std::int64_t at_ = 0;
};

double tone(double hz, double seconds) { return 0.8 * std::sin(2 * std::numbers::pi * hz * seconds + 0.3); }

// `frames` frames at `rate_hz`: every channel of every stream has a tone of its own.
std::unique_ptr<Source> tones(double rate_hz, std::int64_t frames, std::int64_t streams = 1, std::int64_t channels = 1,
                              bool length_is_known = true) {
  SourceInfo info;
  info.rate_hz = rate_hz;
  info.streams = streams;
  info.channels = channels;
  info.frames = length_is_known ? frames : -1;
  std::vector<float> samples;
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    for (std::int64_t i = 0; i < streams * channels; ++i) {
      samples.push_back(
          static_cast<float>(tone(997 + 500 * static_cast<double>(i), static_cast<double>(frame) / rate_hz)));
    }
  }
  return std::make_unique<MemorySource>(info, std::move(samples));
}

TEST(ResampledSource, KeepsToneAndTime) {
  constexpr std::int64_t kEdgeFrames = 2000;
  for (const auto& [from_hz, to_hz] : {std::pair{44100.0, 48000.0}, {48000.0, 16000.0}, {8000.0, 44100.0}}) {
    const auto source = resampled(tones(from_hz, static_cast<std::int64_t>(2 * from_hz)), to_hz);
    EXPECT_EQ(source->info().rate_hz, to_hz);
    const std::vector<float> samples = read_all(*source, 333);
    ASSERT_EQ(samples.size(), static_cast<std::size_t>(2 * to_hz));
    double largest = 0;
    for (std::size_t i = kEdgeFrames; i + kEdgeFrames < samples.size(); ++i) {
      largest = std::max(largest, std::abs(samples[i] - tone(997, static_cast<double>(i) / to_hz)));
    }
    EXPECT_LT(largest, 1e-6) << from_hz << " to " << to_hz;
  }
}

TEST(ResampledSource, MakesARoundedNumberOfFrames) {
  struct Case {
    double from_hz, to_hz;
    std::int64_t frames, expected;
  };
  for (const Case& c : {Case{44100, 48000, 44100, 48000}, Case{44100, 48000, 1, 1}, Case{48000, 44100, 80, 74},
                        Case{48000, 16000, 1, 0}, Case{48000, 16000, 2, 1}, Case{16000, 48000, 1024, 3072},
                        Case{16000, 48000, 2048, 6144}, Case{44100, 16000, 0, 0}, Case{1000, 999.5, 100001, 99951}}) {
    for (const bool length_is_known : {true, false}) {
      const auto source = resampled(tones(c.from_hz, c.frames, 1, 1, length_is_known), c.to_hz);
      EXPECT_EQ(source->info().frames, length_is_known ? c.expected : -1);
      EXPECT_EQ(static_cast<std::int64_t>(read_all(*source, 100).size()), c.expected)
          << c.frames << " frames from " << c.from_hz << " to " << c.to_hz;
      float sample = 0;
      EXPECT_EQ(source->read(&sample, 1), 0);
    }
  }
}

TEST(ResampledSource, GivesTheSameBitsHoweverItIsRead) {
  const std::vector<float> expected = read_all(*resampled(tones(44100, 20000, 2, 3), 48000), 21769);
  for (const std::int64_t block_frames : {1, 7, 1024, 1025, 5000}) {
    const std::vector<float> samples = read_all(*resampled(tones(44100, 20000, 2, 3), 48000), block_frames);
    ASSERT_EQ(samples.size(), expected.size());
    EXPECT_EQ(std::memcmp(samples.data(), expected.data(), expected.size() * sizeof(float)), 0) << block_frames;
  }
}

TEST(ResampledSource, KeepsStreamsAndChannelsApart) {
  const std::vector<float> together = read_all(*resampled(tones(44100, 5000, 2, 2), 48000), 100);
  const std::vector<float> alone = read_all(*resampled(tones(44100, 5000), 48000), 100);
  ASSERT_EQ(together.size(), 4 * alone.size());
  for (std::size_t frame = 0; frame < alone.size(); ++frame) {
    ASSERT_EQ(together[4 * frame], alone[frame]) << frame;
  }
}

TEST(ResampledSource, WidensForDouble) {
  const std::vector<float> expected = read_all(*resampled(tones(44100, 10000, 1, 2), 48000), 100);
  const auto source = resampled(tones(44100, 10000, 1, 2), 48000);
  std::vector<double> samples(expected.size() + 2);
  EXPECT_EQ(source->read(samples.data(), static_cast<std::int64_t>(samples.size() / 2)),
            static_cast<std::int64_t>(expected.size() / 2));
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), samples.begin()));
}

TEST(ResampledSource, IsBehindAnAddressThatAsksForIt) {
  SourceRequest request;
  request.rate_hz = 48000;
  const auto source = open_source("synth://sine?rate=44100&frames=441&resample=true", request);
  EXPECT_EQ(source->info().rate_hz, 48000);
  EXPECT_EQ(read_all(*source).size(), 480U);
}

// The samples of a recording of one channel, a piece at a time as a device would deliver them, then a gap.
void deliver(std::vector<LiveEvent>& events, Source& recording, std::int64_t piece_frames) {
  const std::vector<float> samples = read_all(recording);
  for (std::size_t at = 0; at < samples.size(); at += static_cast<std::size_t>(piece_frames)) {
    const std::size_t end = std::min(samples.size(), at + static_cast<std::size_t>(piece_frames));
    events.push_back(
        {{samples.begin() + static_cast<std::ptrdiff_t>(at), samples.begin() + static_cast<std::ptrdiff_t>(end)}, {}});
    events.push_back({});  // now and then there is nothing
  }
  events.push_back({.gap = {.frames_lost = 480, .frames_dropped = 48}});
}

TEST(ResampledSource, GivesOfALiveSourceBetweenTwoGapsWhatARecordingOfItWouldGive) {
  for (const std::int64_t frames : {1024, 5000, 100}) {
    std::vector<LiveEvent> events;
    deliver(events, *tones(48000, 7000), 480);
    deliver(events, *tones(48000, frames), 77);
    const auto source = resampled(std::make_unique<ScriptedSource>(std::move(events), 48000.0), 16000);
    EXPECT_TRUE(source->info().is_live);
    for (const std::int64_t expected_frames : {std::int64_t{7000}, frames}) {
      const std::vector<float> expected = read_all(*resampled(tones(48000, expected_frames), 16000));
      std::vector<float> got;
      std::vector<float> block(50);
      Gap gap;
      for (int reads = 0; !gap.exists() && reads < 100000; ++reads) {
        const std::int64_t count = source->read(block.data(), 50);
        got.insert(got.end(), block.begin(), block.begin() + count);
        gap = source->take_gap();
      }
      EXPECT_EQ(got, expected);
      EXPECT_EQ(gap.frames_lost, 160);
      EXPECT_EQ(gap.frames_dropped, 16);
    }
  }
}

// Output frame m is whole at the instant (m + 1) / rate, give or take a frame of the input.
TEST(ResampledSource, DatesTheFramesOfALiveSourceByTheInstantsThatTheyStandFor) {
  const test::WoundClock clock;
  const pipeline::Instant start = clock.now();
  const auto source = resampled(std::make_unique<ClockedSource>(clock, 44100), 48000);
  EXPECT_FALSE(source->capture_time());
  std::vector<float> samples(1000);
  for (std::int64_t given = 0; given < 48000;) {
    const std::int64_t got = source->read(samples.data(), 1000);
    given += got;
    if (got == 0) continue;
    const double at_s = std::chrono::duration<double>(*source->capture_time() - start).count();
    ASSERT_NEAR(at_s, static_cast<double>(given) / 48000, 1.0 / 44100) << given;
  }
}

// What has gone in and not come out never exceeds the latency that a live source states.
TEST(ResampledSource, StatesTheFramesItHoldsBackOfALiveSource) {
  for (const auto& [from_hz, to_hz] : {std::pair{48000.0, 16000.0}, {44100.0, 48000.0}}) {
    std::vector<LiveEvent> events;
    std::int64_t delivered = 0;
    const std::vector<float> block(441);
    for (int i = 0; i < 200; ++i) {
      events.push_back({.frames = block, .then = [&delivered] { delivered += 441; }});
      events.push_back({});
    }
    const auto source = resampled(std::make_unique<ScriptedSource>(std::move(events), from_hz), to_hz);
    std::vector<float> room(8192);
    std::int64_t got = 0;
    double most = 0;
    for (int i = 0; i < 1000; ++i) {
      got += source->read(room.data(), 8192);
      most = std::max(most, static_cast<double>(delivered) * to_hz / from_hz - static_cast<double>(got));
    }
    ASSERT_EQ(source->info().latency.size(), 1U);
    const pipeline::LatencyTerm& term = source->info().latency.front();
    EXPECT_EQ(term.place, "resampler");
    EXPECT_EQ(term.kind, pipeline::LatencyKind::kAlgorithmic);
    EXPECT_TRUE(term.is_timed) << "capture_time has it too";
    EXPECT_EQ(term.rate_hz, to_hz);
    EXPECT_LE(most, static_cast<double>(term.frames));
    EXPECT_GT(most, 0.5 * static_cast<double>(term.frames));
  }
}

// Measured: clicks go in, and come out that much later, at the instants that their frames stand for.
TEST(ResampledSource, DelaysAClickOfALiveSourceByNoMoreThanItStates) {
  constexpr std::int64_t kBlock = 7;
  constexpr std::int64_t kClicks = 40;
  constexpr std::int64_t kFirst = 3000;
  constexpr std::int64_t kEvery = 4999;  // wherever they fall in libsoxr's blocks
  for (const auto& [from_hz, to_hz] : {std::pair{48000.0, 16000.0}, {44100.0, 48000.0}}) {
    const double ratio = to_hz / from_hz;
    std::vector<float> clicks(static_cast<std::size_t>(kFirst + kEvery * kClicks + 8000));
    for (std::int64_t click = 0; click < kClicks; ++click) {
      clicks[static_cast<std::size_t>(kFirst + click * kEvery)] = 1;
    }
    std::vector<LiveEvent> events;
    std::int64_t delivered = 0;
    for (std::size_t at = 0; at + kBlock <= clicks.size(); at += kBlock) {
      const auto begin = clicks.begin() + static_cast<std::ptrdiff_t>(at);
      events.push_back({.frames = {begin, begin + kBlock}, .then = [&delivered] { delivered += kBlock; }});
      events.push_back({});
    }
    const auto source = resampled(std::make_unique<ScriptedSource>(std::move(events), from_hz), to_hz);
    std::vector<float> out;
    std::vector<std::int64_t> delivered_at;  // when each frame of `out` came
    std::vector<float> room(8192);
    while (delivered + kBlock <= static_cast<std::int64_t>(clicks.size())) {
      const std::int64_t got = source->read(room.data(), 8192);
      out.insert(out.end(), room.begin(), room.begin() + got);
      delivered_at.insert(delivered_at.end(), static_cast<std::size_t>(got), delivered);
    }

    double longest = 0;
    for (std::int64_t click = 0; click < kClicks; ++click) {
      const std::int64_t frame = kFirst + click * kEvery;
      const std::int64_t expected = std::llround(static_cast<double>(frame) * ratio);
      ASSERT_LT(static_cast<std::size_t>(expected) + 3, out.size());
      const auto near = out.begin() + expected - 3;
      EXPECT_EQ(std::max_element(near, near + 7) - out.begin(), expected) << click;
      const std::int64_t came = delivered_at[static_cast<std::size_t>(expected)] - frame;
      longest = std::max(longest, static_cast<double>(came) * ratio);
    }
    const auto stated = static_cast<double>(source->info().latency.front().frames);
    EXPECT_LE(longest, stated + kBlock * ratio);
    EXPECT_GT(longest, 0.9 * stated);
  }
}

TEST(ResampledSource, HandsBackASourceThatHasTheRate) {
  auto source = tones(16000, 10);
  const Source* const same = source.get();
  EXPECT_EQ(resampled(std::move(source), 16000).get(), same);
}

TEST(ResampledSource, RefusesRatesItCannotReach) {
  expect_error<ConfigError>([] { resampled(tones(16000, 10), 0); }, {"from 16000 to 0 Hz"});
  expect_error<ConfigError>([] { resampled(tones(16000, 10), NAN); }, {"16000"});
  expect_error<ConfigError>([] { resampled(tones(0, 10), 16000); }, {"from 0 to 16000 Hz"});
  expect_error<ConfigError>([] { resampled(tones(1e6, 10), 999); }, {"from 1e+06 to 999 Hz", "1000 times"});
  expect_error<ConfigError>([] { resampled(tones(1, 10), 1001); }, {"from 1 to 1001 Hz", "1000 times"});
  EXPECT_EQ(resampled(tones(1, 10), 1000)->info().frames, 10000);
}

}  // namespace
}  // namespace halotap::io
