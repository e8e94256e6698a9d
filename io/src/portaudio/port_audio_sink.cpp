#include "portaudio/port_audio_sink.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "halotap/pipeline/errors.hpp"
#include "live/live_sink.hpp"
#include "live/playback.hpp"
#include "portaudio/port_audio_options.hpp"

namespace halotap::io {

using pipeline::ConfigError;

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
  const auto playback = std::make_shared<Playback>(stream.channels, ring_frames);
  options.keeper.open = [stream, playback] { return open_playback_stream(stream, playback); };
  options.keeper.blocks = [playback] { return playback->counters().blocks; };
  options.keeper.on_note = spec.on_note;
  auto keeper = std::make_unique<DeviceKeeper>(std::move(options.keeper));

  LiveSinkSpec sink;
  sink.channels = stream.channels;
  sink.block_time = std::chrono::duration<double>(static_cast<double>(stream.block_frames) / stream.rate_hz);
  sink.stop = spec.stop;
  sink.on_note = spec.on_note;
  sink.name = name;
  return std::make_unique<LiveSink>(std::move(sink), playback, std::move(keeper));
}

}  // namespace halotap::io
