// Whole runs over virtual devices, from the sound library's callback to the sink; under RealtimeSanitizer too.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

#include "halotap/io/endpoint.hpp"
#include "halotap/io/session.hpp"
#include "live/fake_device.hpp"
#include "live/scripted_source.hpp"
#include "portaudio/virtual_devices.hpp"
#include "session/session_parts.hpp"

namespace halotap::io {
namespace {

using pipeline::OnGap;
using pipeline::OnInvalid;

std::vector<float> noise(std::size_t count) {
  std::mt19937 random(11);
  std::uniform_real_distribution<float> sample(-1, 1);
  std::vector<float> result(count);
  for (float& value : result) value = sample(random);
  return result;
}

SourceRequest microphone() {
  SourceRequest request{1, {}, 48000};
  request.ring_capacity_ms = 20000;  // the devices here deliver at once what a card would in seconds
  return request;
}

struct Outcome {
  SessionReport report;
  Recording recording;
};

Outcome run(Source& source, const pipeline::Model& model, std::int64_t chunk_frames, const SessionSpec& spec) {
  pipeline::Pipeline pipeline(model, pipeline_spec(chunk_frames));
  std::vector<Recording> recordings(1);
  SessionReport report = run_session(source, pipeline, sinks_into(recordings, model.stack->out_channels()), spec);
  return {std::move(report), std::move(recordings[0])};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(LiveRun, GivesTheBitsThatItsReplayGives) {
  constexpr std::int64_t kFrames = 9600;
  const pipeline::Model cochlea =
      pipeline::load_model(std::filesystem::path(HALOTAP_SOURCE_DIR) / "configs" / "cochlea" / "model.yaml");
  FedDevice device;
  const std::vector<float> sound = noise(kFrames);
  device.feed(sound);
  const auto source = open_source("portaudio://fed?block=240", microphone());
  SessionSpec spec;
  spec.max_frames = kFrames;
  const Outcome live = run(*source, cochlea, 240, spec);
  EXPECT_EQ(live.report.gaps, 0);

  ScriptedSource recording({{.frames = sound}}, 48000, false);
  EXPECT_TRUE(same_bits(live.recording.samples, run(recording, cochlea, 1000, {}).recording.samples));
}

// The bytes of 16-bit samples, read as float: NaNs, infinities and magnitudes up to 3e38 reach the callback.
TEST(LiveRun, SurvivesSamplesOfAnotherFormat) {
  constexpr std::size_t kFrames = 20000;
  std::mt19937 random(4);
  std::vector<std::int16_t> wrong(2 * kFrames);
  for (std::int16_t& sample : wrong) sample = static_cast<std::int16_t>(random());
  std::vector<float> sound(kFrames);
  std::memcpy(sound.data(), wrong.data(), kFrames * sizeof(float));
  for (std::size_t i = kFrames - 100; i < kFrames; ++i) sound[i] = 0.25F;  // the cable is plugged in rightly again
  std::uint64_t nan = 0;
  std::uint64_t too_large = 0;
  for (const float sample : sound) {
    nan += std::isnan(sample) ? 1 : 0;
    too_large += std::abs(sample) > 1e30F && std::isfinite(sample) ? 1 : 0;
  }
  ASSERT_GT(nan, 10u);
  ASSERT_GT(too_large, 1000u);

  for (const OnInvalid on_invalid : {OnInvalid::kPass, OnInvalid::kHold, OnInvalid::kZero}) {
    FedDevice device;
    device.feed(sound);
    const auto source = open_source("portaudio://fed?block=240", microphone());
    SessionSpec spec;
    spec.max_frames = kFrames;
    spec.input.on_invalid = on_invalid;
    const Outcome live = run(*source, look_ahead_model(1), 64, spec);
    EXPECT_EQ(live.report.invalid.nan, nan);
    EXPECT_EQ(live.report.invalid.too_large, too_large);
    ASSERT_EQ(live.recording.samples.size(), kFrames);
    std::size_t spoilt = 0;
    for (const float sample : live.recording.samples) spoilt += std::abs(sample) <= 1e30F ? 0 : 1;
    EXPECT_EQ(spoilt > 0, on_invalid == OnInvalid::kPass);
    // Clean again within the receptive field of five frames.
    for (std::size_t i = kFrames - 95; i < kFrames - 2; ++i) ASSERT_EQ(live.recording.samples[i], 0.25F) << i;
  }
}

// A server that stops for longer than the watchdog waits, and goes on: the run goes on too, and what saw both sides is
// marked.
TEST(LiveRun, GoesOnWhenTheSoundServerWasStoppedAndContinued) {
  PulseServer server;
  if (!server.missing().empty()) GTEST_SKIP() << server.missing();
  std::atomic<bool> is_lost{false};
  SourceRequest request = microphone();
  request.on_note = [&is_lost](const std::string& note) {
    if (note.find("lost: ") != std::string::npos) is_lost = true;
  };
  const auto source = open_source("portaudio://pulse", request);
  std::atomic<bool> stop{false};
  std::atomic<bool> begun{false};
  SessionSpec spec;
  spec.stop = &stop;
  spec.input.on_gap = OnGap::kMark;
  std::int64_t frames_at_gap = -1;
  spec.on_gap = [&](const HandledGap& gap) {
    if (gap.gap.is_reopening) frames_at_gap = gap.at_frame;
  };
  spec.on_progress = [&](std::int64_t frames) {
    begun = frames > 0;
    if (frames_at_gap >= 0 && frames > frames_at_gap + 4800) stop = true;
  };
  std::thread meanwhile([&] {
    EXPECT_TRUE(comes_true([&] { return begun.load(); }));
    server.signal(SIGSTOP);
    EXPECT_TRUE(comes_true([&] { return is_lost.load(); }));
    server.signal(SIGCONT);
    if (!comes_true([&] { return stop.load(); })) {
      ADD_FAILURE() << "no frames came again";
      stop = true;
    }
  });
  const Outcome live = run(*source, look_ahead_model(1), 64, spec);
  meanwhile.join();
  EXPECT_GT(live.report.missing.frames_lost, 4800);
  EXPECT_EQ(live.report.frames_in, live.report.frames_out);
  const auto& gaps = live.recording.gaps;
  ASSERT_FALSE(gaps.empty());
  EXPECT_EQ(gaps.back().action, OnGap::kMark);
  EXPECT_EQ(gaps.back().frames, 4 + gaps.back().gap.frames_late);
  EXPECT_TRUE(live.recording.finished);
}

// The session hangs for less than its ring holds, which costs nothing, and then for three times as long: the newest
// frames of that time are dropped, and told at their place.
TEST(LiveRun, TellsWhatStallsOfTheSessionCost) {
  PulseServer server;
  if (!server.missing().empty()) GTEST_SKIP() << server.missing();
  SourceRequest request = microphone();
  request.ring_capacity_ms = 500;
  const auto source = open_source("portaudio://pulse?block=480", request);
  std::atomic<bool> stop{false};
  SessionSpec spec;
  spec.stop = &stop;
  std::vector<HandledGap> told;
  // What the device itself loses on a busy machine is another matter.
  spec.on_gap = [&told](const HandledGap& gap) {
    if (gap.gap.frames_dropped > 0) told.push_back(gap);
  };
  int stalls = 0;
  std::int64_t frames_at_stall = 0;
  spec.on_progress = [&](std::int64_t frames) {
    if (stalls > 0 && frames < frames_at_stall + 9600) return;
    if (stalls == 1) {
      EXPECT_TRUE(told.empty()) << "50 ms are in the ring";
    }
    if (stalls == 2) stop = true;
    if (stop) return;
    frames_at_stall = frames;
    std::this_thread::sleep_for(std::chrono::milliseconds(stalls++ == 0 ? 50 : 1500));
  };
  const Outcome live = run(*source, look_ahead_model(1), 64, spec);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_GT(told[0].gap.frames_dropped, 24000);
  EXPECT_EQ(told[0].gap.frames_dropped, live.report.missing.frames_dropped);
  EXPECT_GE(told[0].at_frame, frames_at_stall + 19200) << "behind what the ring held";
  EXPECT_EQ(live.report.frames_in, live.report.frames_out);
}

}  // namespace
}  // namespace halotap::io
