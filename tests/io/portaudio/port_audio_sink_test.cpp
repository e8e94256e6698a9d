#include "portaudio/port_audio_sink.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "expect_error.hpp"
#include "halotap/io/endpoint.hpp"
#include "halotap/pipeline/errors.hpp"
#include "portaudio/virtual_devices.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DeviceError;

SinkSpec sound(std::int64_t channels) {
  SinkSpec spec;
  spec.channels = channels;
  spec.rate_hz = 48000;
  return spec;
}

TEST(PortAudioSink, SaysWhatAFrameWaitsForInRingAndDevice) {
  const KeptDevice device;
  for (const bool open : {true, false}) {
    SinkSpec spec = sound(1);
    spec.ring_capacity_ms = 100;
    spec.open_device = open;
    const auto sink = open_sink("portaudio://kept?block=240", spec);
    EXPECT_TRUE(sink->sets_pace());
    const std::vector<pipeline::LatencyTerm> latency = sink->latency();
    ASSERT_EQ(latency.size(), 2U);
    EXPECT_EQ(latency[0].frames, 4800) << "the ring is full as a rule";
    EXPECT_GE(latency[1].frames, 240);
    EXPECT_EQ(latency[1].key.name, open ? "uri's block and latency" : "uri's block");
  }
}

TEST(PortAudioSink, PlaysWhatIsWrittenBitForBit) {
  for (const std::int64_t channels : {1, 3}) {
    KeptDevice device;
    std::vector<float> samples(static_cast<std::size_t>(channels * 9600));
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<float>(i + 1) * 1e-5F;
    SinkSpec spec = sound(channels);
    // The device plays at once what a card would play in seconds: all must be there when it begins.
    spec.ring_capacity_ms = 1000;
    const auto sink = open_sink("portaudio://kept?block=240", spec);
    EXPECT_TRUE(sink->sets_pace());
    sink->write(samples.data(), 4800);
    sink->write(samples.data() + channels * 4800, 4800);
    sink->finish();
    EXPECT_EQ(device.played(samples.size()), samples) << channels;
  }
}

TEST(PortAudioSink, RefusesWhatItCannotPlay) {
  FedDevice device;
  SinkSpec spec = sound(1);
  spec.streams = 2;
  expect_error<ConfigError>([&] { open_sink("portaudio://fed", spec); }, {"portaudio://fed", "1 stream", "got 2"});
  spec = sound(1);
  spec.rate_hz = 0;
  expect_error<ConfigError>([&] { open_sink("portaudio://fed", spec); }, {"portaudio://fed", "rate"});
  expect_error<DeviceError>([] { open_sink("portaudio://fed", sound(200)); }, {"expected 200 channels", "has 128"});
  expect_error<DeviceError>([] { open_sink("portaudio://nix", sound(1)); }, {"output device 'nix'", "0 'fed'"});
  expect_error<ConfigError>([] { open_sink("portaudio://default?rate=48000", sound(1)); }, {"'rate'", "block"});
}

TEST(PortAudioSink, RefusesOptionsOfDriftThatItCannotFollow) {
  FedDevice device;
  expect_error<ConfigError>([] { open_sink("portaudio://default?drift=yes", sound(1)); },
                            {"drift", "refuse or correct", "'yes'"});
  expect_error<ConfigError>([] { open_sink("portaudio://default?reserve_ms=20", sound(1)); },
                            {"reserve_ms", "drift=correct"});
  expect_error<ConfigError>([] { open_sink("portaudio://default?drift=correct&reserve_ms=-1", sound(1)); },
                            {"reserve_ms", "-1"});
}

TEST(PortAudioSink, CorrectsDriftOnlyWhereASourceHasAClockOfItsOwn) {
  FedDevice device;
  SinkSpec spec = sound(1);
  for (const bool is_live : {false, true}) {
    spec.source_is_live = is_live;
    const auto sink = open_sink("portaudio://default?drift=correct&reserve_ms=20", spec);
    EXPECT_EQ(sink->sets_pace(), !is_live);
    EXPECT_EQ(sink->played()->corrects_drift, is_live);
    spec.open_device = false;
    EXPECT_EQ(open_sink("portaudio://default?drift=correct", spec)->sets_pace(), !is_live);
    spec.open_device = true;
  }
  expect_error<ConfigError>([&] { open_sink("portaudio://default", spec); },
                            {"portaudio://default", "two clocks", "drift=correct"});
}

}  // namespace
}  // namespace halotap::io
