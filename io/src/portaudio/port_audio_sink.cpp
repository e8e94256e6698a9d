#include "portaudio/port_audio_sink.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halotap/pipeline/errors.hpp"
#include "live/live_sink.hpp"
#include "live/playback.hpp"
#include "portaudio/port_audio_options.hpp"

namespace halotap::io {

using pipeline::ConfigError;

namespace {

// The session waits for room, so the ring is full as a rule.
std::vector<pipeline::LatencyTerm> latency_of(const PortAudioStreamSpec& stream, std::int64_t ring_frames,
                                              std::optional<std::int64_t> stated_frames) {
  pipeline::LatencyTerm ring;
  ring.place = "playback";
  ring.kind = pipeline::LatencyKind::kBuffering;
  ring.frames = ring_frames;
  ring.rate_hz = stream.rate_hz;
  ring.note = "a full ring in front of the device";
  return {ring, device_latency(stream, stated_frames)};
}

// A device that was left alone.
class UnopenedSink final : public Sink {
 public:
  explicit UnopenedSink(std::vector<pipeline::LatencyTerm> latency) : latency_(std::move(latency)) {}
  void write(const float*, std::int64_t) override { assert(false); }
  bool sets_pace() const override { return true; }
  std::vector<pipeline::LatencyTerm> latency() const override { return latency_; }
  void finish() override {}

 private:
  std::vector<pipeline::LatencyTerm> latency_;
};

}  // namespace

std::unique_ptr<Sink> open_port_audio_sink(Address& address, const SinkSpec& spec) {
  const std::string& name = address.text();
  if (spec.streams != 1) {
    throw ConfigError(name + ": a sound device plays 1 stream, got " + std::to_string(spec.streams));
  }
  if (!(spec.rate_hz > 0)) throw ConfigError(name + ": a sound device needs a rate, and the result has none");
  PortAudioOptions options = take_port_audio_options(address, spec.rate_hz, spec.channels);
  const PortAudioStreamSpec& stream = options.stream;

  const std::int64_t ring_frames =
      std::max<std::int64_t>(std::llround(spec.ring_capacity_ms / 1e3 * stream.rate_hz), 4 * stream.block_frames);
  if (!spec.open_device) return std::make_unique<UnopenedSink>(latency_of(stream, ring_frames, std::nullopt));
  const auto playback = std::make_shared<Playback>(stream.channels, ring_frames);
  const auto latency_frames = std::make_shared<std::atomic<std::int64_t>>(0);
  options.keeper.open = [stream, playback, latency_frames] {
    return open_playback_stream(stream, playback, *latency_frames);
  };
  options.keeper.blocks = [playback] { return playback->counters().blocks; };
  options.keeper.on_note = spec.on_note;
  auto keeper = std::make_unique<DeviceKeeper>(std::move(options.keeper));

  LiveSinkSpec sink;
  sink.channels = stream.channels;
  sink.block_time = std::chrono::duration<double>(static_cast<double>(stream.block_frames) / stream.rate_hz);
  sink.stop = spec.stop;
  sink.on_note = spec.on_note;
  sink.name = name;
  sink.latency = latency_of(stream, ring_frames, *latency_frames);
  return std::make_unique<LiveSink>(std::move(sink), playback, std::move(keeper));
}

}  // namespace halotap::io
