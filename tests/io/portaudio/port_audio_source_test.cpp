#include "portaudio/port_audio_source.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>

#include "expect_error.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"
#include "live/fake_device.hpp"
#include "portaudio/virtual_devices.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;
using pipeline::DeviceError;

std::vector<float> noise(std::size_t count) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> sample(-1, 1);
  std::vector<float> result(count);
  for (float& value : result) value = sample(random);
  return result;
}

SourceRequest request(std::int64_t channels, double rate_hz) {
  SourceRequest result{channels, {}, rate_hz};
  result.ring_capacity_ms = 20000;  // the devices here deliver at once what a card would in seconds
  return result;
}

// Reads `frames` frames of a device that has them.
std::vector<float> read_frames(Source& source, std::int64_t frames) {
  std::vector<float> samples(static_cast<std::size_t>(frames * source.info().channels));
  std::int64_t done = 0;
  EXPECT_TRUE(comes_true([&] {
    done += source.read(samples.data() + done * source.info().channels, frames - done);
    EXPECT_FALSE(source.take_gap().exists());
    return done == frames;
  }));
  return samples;
}

TEST(PortAudioSource, GivesTheSamplesOfTheDeviceBitForBit) {
  for (const std::int64_t channels : {1, 2, 7}) {
    for (const std::string block : {"64", "480"}) {
      FedDevice device;
      const std::vector<float> sound = noise(static_cast<std::size_t>(channels * 30000));
      device.feed(sound);
      const auto source = open_source("portaudio://fed?block=" + block, request(channels, 48000));
      EXPECT_TRUE(source->info().is_live);
      EXPECT_EQ(source->info().channels, channels);
      EXPECT_EQ(source->info().rate_hz, 48000);
      EXPECT_GT(source->info().latency_frames, 0);
      const std::vector<float> heard = read_frames(*source, 30000);
      EXPECT_EQ(std::memcmp(heard.data(), sound.data(), heard.size() * sizeof(float)), 0) << channels << " " << block;
    }
  }
}

TEST(PortAudioSource, TakesADeviceByNumberAndByName) {
  FedDevice device;
  device.feed(noise(40000));
  for (const std::string name : {"fed", "0", "1", "default", ""}) {
    EXPECT_TRUE(open_source("portaudio://" + name, request(1, 48000))->info().is_live) << name;
  }
  for (const std::string name : {"2", "-1", "fe", "0x0"}) {
    expect_error<DeviceError>([&] { open_source("portaudio://" + name, request(1, 48000)); },
                              {"portaudio://" + name, "'" + name + "'", "0 'fed'", "1 'default'"});
  }
}

TEST(PortAudioSource, TakesRateAndChannelsOfTheModelOrOfTheAddress) {
  FedDevice device;
  EXPECT_EQ(open_source("portaudio://default", {})->info().rate_hz, 48000);
  EXPECT_EQ(open_source("portaudio://default", {})->info().channels, 1);
  EXPECT_EQ(open_source("portaudio://default", {3, {}, 16000})->info().rate_hz, 16000);
  EXPECT_EQ(open_source("portaudio://default", {3, {}, 16000})->info().channels, 3);
  expect_error<DataError>(
      [] {
        open_source("portaudio://default?rate=44100", {1, {}, 16000});
      },
      {"expected 16000 Hz", "got 44100", "resample=true"});
  expect_error<DataError>(
      [] {
        open_source("portaudio://default?channels=2", {1, {}, 16000});
      },
      {"expected 1", "got 2"});
  expect_error<DeviceError>(
      [] {
        open_source("portaudio://default?channels=200", {200, {}, 16000});
      },
      {"expected 200 channels", "has 128"});
}

TEST(PortAudioSource, RefusesOptionsOutOfRange) {
  FedDevice device;
  for (const std::string option :
       {"rate=10", "channels=0", "block=0", "block=20000", "latency=none", "reconnect=-1", "blok=64"}) {
    expect_error<ConfigError>([&] { open_source("portaudio://default?" + option, {}); },
                              {option.substr(0, option.find('='))});
  }
}

TEST(PortAudioSource, ConvertsTheRateWhenAskedTo) {
  FedDevice device;
  const std::int64_t direct_latency = open_source("portaudio://default?rate=48000", {})->info().latency_frames;
  const auto source = open_source("portaudio://default?rate=48000&resample=true", request(1, 16000));
  EXPECT_EQ(source->info().rate_hz, 16000);
  EXPECT_GT(source->info().latency_frames, direct_latency / 3) << "the filter's delay is counted";
}

class PulseTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!server_.missing().empty()) GTEST_SKIP() << server_.missing();
  }
  // A WAV of two channels of float, which the server hands on as it is.
  std::string wav_of(const std::vector<float>& samples) {
    SinkSpec spec;
    spec.channels = 2;
    spec.rate_hz = 48000;
    spec.frames = static_cast<std::int64_t>(samples.size() / 2);
    const std::unique_ptr<Sink> sink = open_sink(folder_.file("sound.wav"), spec);
    sink->write(samples.data(), spec.frames);
    sink->finish();
    return folder_.file("sound.wav");
  }

  PulseServer server_;
  test::ScratchFolder folder_;
};

TEST_F(PulseTest, AWavPlayedInComesOutBitForBit) {
  const std::vector<float> sound = noise(2 * 9600);  // 0.2 s, no sample 0
  const std::string wav = wav_of(sound);
  const auto source = open_source("portaudio://pulse", request(2, 48000));
  std::vector<float> heard;
  std::thread player([&] { server_.play(wav); });
  std::vector<float> block(2 * 4800);
  std::size_t begin = 0;
  EXPECT_TRUE(comes_true([&] {
    const std::int64_t got = source->read(block.data(), 4800);
    heard.insert(heard.end(), block.begin(), block.begin() + 2 * got);
    while (begin < heard.size() && heard[begin] == 0) ++begin;
    return heard.size() >= begin + sound.size();
  }));
  player.join();
  ASSERT_GE(heard.size(), begin + sound.size());
  EXPECT_EQ(std::memcmp(heard.data() + begin, sound.data(), sound.size() * sizeof(float)), 0);
}

TEST_F(PulseTest, DatesFramesOnTheMonotonicClock) {
  const pipeline::Instant before = pipeline::monotonic_clock().now();
  const auto source = open_source("portaudio://pulse", request(2, 48000));
  EXPECT_FALSE(source->capture_time());
  std::vector<float> block(2 * 480);
  std::int64_t frames = 0;
  EXPECT_TRUE(comes_true([&] {
    const std::int64_t got = source->read(block.data(), 480);
    frames += got;
    if (got > 0) {
      EXPECT_GT(*source->capture_time(), before);
      // The reader's line in time may be off by 50 us.
      EXPECT_LE(*source->capture_time(), pipeline::monotonic_clock().now() + std::chrono::milliseconds(1));
    }
    return frames > 9600;
  }));
}

// What the source says of its device, from a thread of its own.
class Notes {
 public:
  void add(const std::string& note) {
    const std::lock_guard lock(mutex_);
    text_ += note + "\n";
  }
  bool has(const std::string& words) const {
    const std::lock_guard lock(mutex_);
    return text_.find(words) != std::string::npos;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

TEST_F(PulseTest, OpensTheDeviceAgainOfAServerThatWasKilledOrHung) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const auto notes = std::make_shared<Notes>();
    SourceRequest wanted = request(1, 48000);
    wanted.on_note = [notes](const std::string& note) { notes->add(note); };
    const auto source = open_source("portaudio://pulse", wanted);
    std::vector<float> block(48000);
    ASSERT_TRUE(comes_true([&] { return source->read(block.data(), 48000) > 0; }));
    server_.signal(signal);
    Gap missing;
    const auto read_until = [&](const auto& condition) {
      return comes_true([&] {
        source->read(block.data(), 48000);
        missing += source->take_gap();
        return condition();
      });
    };
    EXPECT_TRUE(read_until([&] { return notes->has("lost: "); })) << signal;
    signal == SIGKILL ? server_.start() : server_.signal(SIGCONT);
    EXPECT_TRUE(read_until([&] { return missing.is_reopening; })) << signal;
    EXPECT_GT(missing.frames_lost, 0) << signal;
    EXPECT_TRUE(notes->has("is back")) << signal;
  }
}

}  // namespace
}  // namespace halotap::io
