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
#include "in_quotes.hpp"
#include "live/drift_corrector.hpp"
#include "live/live_sink.hpp"
#include "live/playback.hpp"
#include "portaudio/port_audio_options.hpp"

namespace halotap::io {

using pipeline::ConfigError;

namespace {

// How late the session or the device may be without a break in the sound.
constexpr double kReserveMs = 40;
constexpr double kMostReserveMs = 10'000;

// Whether drift is to be corrected.
bool take_drift(Address& address) {
  const std::string drift = address.take("drift").value_or("refuse");
  if (drift != "refuse" && drift != "correct") {
    throw ConfigError(address.text() + ": option drift: expected refuse or correct, got " + in_quotes(drift));
  }
  return drift == "correct";
}

// The session waits for room, so the ring is full as a rule.
pipeline::LatencyTerm full_ring(const PortAudioStreamSpec& stream, std::int64_t ring_frames) {
  pipeline::LatencyTerm ring;
  ring.place = "playback";
  ring.kind = pipeline::LatencyKind::kBuffering;
  ring.frames = ring_frames;
  ring.rate_hz = stream.rate_hz;
  ring.note = "a full ring in front of the device";
  return ring;
}

pipeline::LatencyTerm resampler_latency(const PortAudioStreamSpec& stream, std::int64_t delay_frames) {
  pipeline::LatencyTerm resampler;
  resampler.place = "resampler";
  resampler.frames = delay_frames;
  resampler.rate_hz = stream.rate_hz;
  resampler.key = {"uri's drift"};
  return resampler;
}

pipeline::LatencyTerm reserve_latency(const PortAudioStreamSpec& stream, std::int64_t reserve_frames) {
  pipeline::LatencyTerm reserve;
  reserve.place = "playback";
  reserve.kind = pipeline::LatencyKind::kBuffering;
  reserve.frames = reserve_frames;
  reserve.rate_hz = stream.rate_hz;
  reserve.key = {"uri's reserve_ms", 0, 1e3 / stream.rate_hz};
  return reserve;
}

// A device that was left alone.
class UnopenedSink final : public Sink {
 public:
  UnopenedSink(std::vector<pipeline::LatencyTerm> latency, bool sets_pace)
      : latency_(std::move(latency)), sets_pace_(sets_pace) {}
  void write(const float*, std::int64_t) override { assert(false); }
  bool sets_pace() const override { return sets_pace_; }
  std::vector<pipeline::LatencyTerm> latency() const override { return latency_; }
  void finish() override {}

 private:
  std::vector<pipeline::LatencyTerm> latency_;
  bool sets_pace_;
};

}  // namespace

std::unique_ptr<Sink> open_port_audio_sink(Address& address, const SinkSpec& spec) {
  const std::string& name = address.text();
  if (spec.streams != 1) {
    throw ConfigError(name + ": a sound device plays 1 stream, got " + std::to_string(spec.streams));
  }
  if (!(spec.rate_hz > 0)) throw ConfigError(name + ": a sound device needs a rate, and the result has none");
  const bool may_correct = take_drift(address);
  const std::optional<double> reserve_ms = address.take_number("reserve_ms", 0, kMostReserveMs);
  if (reserve_ms && !may_correct) throw ConfigError(name + ": option reserve_ms goes with drift=correct");
  if (spec.source_is_live && !may_correct) {
    throw ConfigError(name + ": a live source and a sound device as sink run on two clocks, which drift apart: " +
                      "?drift=correct resamples what is played; or write to a file");
  }
  // A recording has no clock: its frames come when the device wants them.
  const bool correct = spec.source_is_live;
  PortAudioOptions options = take_port_audio_options(address, spec.rate_hz, spec.channels);
  const PortAudioStreamSpec& stream = options.stream;

  std::int64_t ring_frames =
      std::max<std::int64_t>(std::llround(spec.ring_capacity_ms / 1e3 * stream.rate_hz), 4 * stream.block_frames);
  std::shared_ptr<Playback> playback;
  std::unique_ptr<DriftCorrector> corrector;
  std::vector<pipeline::LatencyTerm> latency;
  if (correct) {
    const std::int64_t reserve_frames = std::llround(reserve_ms.value_or(kReserveMs) / 1e3 * stream.rate_hz);
    // Twice the reserve may wait before it is too long, and a device may take its blocks by pairs.
    ring_frames = std::max(ring_frames, 3 * reserve_frames + 4 * stream.block_frames);
    playback = std::make_shared<Playback>(stream.channels, ring_frames, reserve_frames);
    try {
      corrector = std::make_unique<DriftCorrector>(
          DriftCorrector::Spec{stream.channels, stream.rate_hz, reserve_frames}, playback);
    } catch (const ConfigError& error) {
      throw ConfigError(name + ": drift=correct: " + error.what());
    }
    latency = {resampler_latency(stream, corrector->delay_frames()), reserve_latency(stream, reserve_frames)};
  } else {
    playback = std::make_shared<Playback>(stream.channels, ring_frames);
    latency = {full_ring(stream, ring_frames)};
  }
  if (!spec.open_device) {
    latency.push_back(device_latency(stream, std::nullopt));
    return std::make_unique<UnopenedSink>(std::move(latency), !correct);
  }

  const auto latency_frames = std::make_shared<std::atomic<std::int64_t>>(0);
  options.keeper.open = [stream, playback, latency_frames] {
    return open_playback_stream(stream, playback, *latency_frames);
  };
  options.keeper.blocks = [playback] { return playback->counters().blocks; };
  options.keeper.on_reopen = [playback] { playback->on_reopen(); };
  options.keeper.on_note = spec.on_note;
  auto keeper = std::make_unique<DeviceKeeper>(std::move(options.keeper));

  latency.push_back(device_latency(stream, *latency_frames));
  LiveSinkSpec sink;
  sink.channels = stream.channels;
  sink.block_time = std::chrono::duration<double>(static_cast<double>(stream.block_frames) / stream.rate_hz);
  sink.stop = spec.stop;
  sink.on_note = spec.on_note;
  sink.name = name;
  sink.latency = std::move(latency);
  return std::make_unique<LiveSink>(std::move(sink), playback, std::move(corrector), std::move(keeper));
}

}  // namespace halotap::io
