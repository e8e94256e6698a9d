#include "portaudio/port_audio_source.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "expect_error.hpp"
#include "halotap/io/devices.hpp"
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
      ASSERT_EQ(source->info().latency.size(), 2U);
      EXPECT_EQ(source->info().latency[0].note, "as the device states it");
      EXPECT_GE(source->info().latency[0].frames, std::stoll(block));
      EXPECT_EQ(source->info().latency[1].place, "ring");
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
  for (const std::string name : {"2", "-1", "fe", "0x0", "-"}) {
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
      {"expected 1", "got 2", "?channels=1"});
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
  const auto source = open_source("portaudio://default?rate=48000&resample=true", request(1, 16000));
  EXPECT_EQ(source->info().rate_hz, 16000);
  ASSERT_EQ(source->info().latency.size(), 3U);
  EXPECT_EQ(source->info().latency[0].rate_hz, 48000);
  EXPECT_EQ(source->info().latency[2].place, "resampler");
  EXPECT_GT(source->info().latency[2].frames, 0);
}

// No device is there at all.
TEST(PortAudioSource, SaysWhatItsAddressStatesWhenTheDeviceIsLeftAlone) {
  for (const std::int64_t block : {1, 17, 4096}) {
    SourceRequest asked = request(2, 48000);
    asked.open_device = false;
    const auto source =
        open_source("portaudio://nowhere?rate=44100&resample=true&block=" + std::to_string(block), asked);
    EXPECT_TRUE(source->info().is_live);
    EXPECT_EQ(source->info().channels, 2);
    EXPECT_EQ(source->info().rate_hz, 48000);
    ASSERT_EQ(source->info().latency.size(), 3U);
    EXPECT_EQ(source->info().latency[0].frames, block);
    EXPECT_EQ(source->info().latency[0].rate_hz, 44100);
    EXPECT_EQ(source->info().latency[0].key.name, "uri's block");
    float sample = 0;
    EXPECT_EQ(source->read(&sample, 1), 0);
  }
}

// PortAudio itself would end the program, or say nothing.
TEST(PortAudioSource, SaysWhatIsWrongWithALSAsConfiguration) {
  const test::ScratchFolder folder;
  setenv("JACK_NO_START_SERVER", "1", 1);
  const std::string none = "no sound device was found: ALSA has no card";
  for (const auto& [text, problem] :
       std::vector<std::pair<std::string, std::string>>{{"", none},
                                                        {"pcm.null { type null }\npcm.hw { type hw card 0 }\n", none},
                                                        {"pcm.x {", "ALSA's configuration cannot be read"},
                                                        {"pcm.!default { type null }\n", ""}}) {
    setenv("ALSA_CONFIG_PATH", folder.write("asound.conf", text).c_str(), 1);
    const std::string got = list_audio_devices().problem;
    EXPECT_EQ(got.substr(0, problem.size()), problem) << text;
    EXPECT_EQ(got.empty(), problem.empty()) << got;
  }
  unsetenv("ALSA_CONFIG_PATH");
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

#ifdef HALOTAP_HAVE_SOXR
// What comes in goes out, through two devices with a clock each; both are the server's and die with it.
TEST_F(PulseTest, ASourceAndASinkOnTwoClocksPlayOnAndRecoverFromAServerThatWasKilled) {
  const auto notes = std::make_shared<Notes>();
  const auto on_note = [notes](const std::string& note) { notes->add(note); };
  SourceRequest wanted = request(2, 48000);
  wanted.on_note = [on_note](const std::string& note) { on_note("source " + note); };
  const auto source = open_source("portaudio://pulse", wanted);
  SinkSpec spec;
  spec.channels = 2;
  spec.rate_hz = 48000;
  spec.source_is_live = true;
  spec.on_note = [on_note](const std::string& note) { on_note("sink " + note); };
  const auto sink = open_sink("portaudio://pulse?drift=correct", spec);
  std::vector<float> block(2 * 4800);
  const auto pass_on_until = [&](const auto& condition) {
    return comes_true([&] {
      const std::int64_t got = source->read(block.data(), 4800);
      source->take_gap();
      sink->write(block.data(), got);
      return condition();
    });
  };
  ASSERT_TRUE(pass_on_until([&] { return sink->played()->frames_played > 24000; }));
  server_.signal(SIGKILL);
  EXPECT_TRUE(pass_on_until([&] {
    return notes->has("source portaudio://pulse: lost") && notes->has("sink portaudio://pulse?drift=correct: lost");
  }));
  server_.start();
  EXPECT_TRUE(pass_on_until([&] {
    return notes->has("source portaudio://pulse: is back") &&
           notes->has("sink portaudio://pulse?drift=correct: is back");
  }));
  const std::uint64_t played = sink->played()->frames_played;
  EXPECT_TRUE(pass_on_until([&] { return sink->played()->frames_played > played + 24000; }));
  sink->finish();
  const PlayedCounters counters = *sink->played();
  EXPECT_NEAR(
      static_cast<double>(counters.frames_in + counters.frames_added) - static_cast<double>(counters.frames_removed),
      static_cast<double>(counters.frames_played + counters.frames_dropped + counters.frames_discarded), 5);
}
#endif

class JackTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!server_.missing().empty()) GTEST_SKIP() << server_.missing();
  }

  JackServer server_;
};

TEST_F(JackTest, DeliversAsManyFramesAsTheClockSays) {
  using Clock = std::chrono::steady_clock;
  const auto source = open_source("portaudio://system?channels=2&block=256", request(2, 48000));
  std::vector<float> block(2 * 4800, 1.0F);
  std::int64_t frames = 0;
  Gap missing;
  const auto read_on = [&] {
    const std::int64_t got = source->read(block.data(), 4800);
    EXPECT_TRUE(std::all_of(block.begin(), block.begin() + 2 * got, [](float sample) { return sample == 0; }));
    frames += got;
    missing += source->take_gap();
    return got;
  };
  ASSERT_TRUE(comes_true([&] { return read_on() > 0; }));
  const Clock::time_point began = Clock::now();
  const std::int64_t frames_before = frames + missing.frames_lost;
  ASSERT_TRUE(comes_true([&] { return read_on(), frames > 48000; }));
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  // A busy system costs a server that is not real-time some; those must have been noticed, but for the last second's.
  const double accounted = static_cast<double>(frames + missing.frames_lost - frames_before);
  EXPECT_LT(accounted, (seconds + 0.1) * 48000);
  EXPECT_GT(accounted, (seconds - 0.5) * 48000);
  EXPECT_EQ(missing.frames_dropped, 0);
}

// Under JACK every call hangs once the server is gone, and so would this program: another one does it.
TEST_F(JackTest, LeavesAServerBehindThatWasKilledOrHung) {
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const pid_t child = fork();
    if (child == 0) {
      auto source = open_source("portaudio://system?reconnect=0", request(1, 48000));
      std::vector<float> block(4800);
      const auto is_lost = [&] {
        try {
          source->read(block.data(), 4800);
          return false;
        } catch (const DeviceError&) {
          return true;
        }
      };
      if (!comes_true([&] { return source->read(block.data(), 4800) > 0; })) _exit(1);
      server_.signal(signal);
      if (!comes_true(is_lost)) _exit(2);
      const auto began = std::chrono::steady_clock::now();
      source.reset();
      _exit(std::chrono::steady_clock::now() - began < std::chrono::seconds(2) ? 0 : 3);
    }
    int status = -1;
    const bool ended = comes_true([&] { return waitpid(child, &status, WNOHANG) == child; });
    if (!ended) kill(child, SIGKILL);
    EXPECT_TRUE(ended) << "it hangs; signal " << signal;
    EXPECT_TRUE(WIFEXITED(status)) << signal;
    EXPECT_EQ(WEXITSTATUS(status), 0) << signal;
    if (signal == SIGKILL) server_.start();
  }
}

}  // namespace
}  // namespace halotap::io
