#include "portaudio/port_audio_options.hpp"

#include <algorithm>
#include <cmath>

#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"

namespace halotap::io {
namespace {

constexpr std::int64_t kMostBlockFrames = 16384;
constexpr double kBlockSeconds = 0.01;
constexpr double kReconnectSeconds = 30;
constexpr std::chrono::milliseconds kQuietLimit{250};
constexpr std::chrono::seconds kFirstQuietLimit{2};
constexpr int kQuietBlocks = 4;

}  // namespace

PortAudioOptions take_port_audio_options(Address& address, double rate_hz, std::int64_t channels) {
  PortAudioOptions options;
  PortAudioStreamSpec& stream = options.stream;
  stream.address = address.text();
  stream.device = address.path();
  stream.rate_hz = rate_hz;
  stream.channels = channels;
  stream.block_frames =
      address.take_integer("block", 1, kMostBlockFrames)
          .value_or(std::clamp<std::int64_t>(std::llround(stream.rate_hz * kBlockSeconds), 1, kMostBlockFrames));
  const std::string latency = address.take("latency").value_or("high");
  if (latency != "low" && latency != "high") {
    throw pipeline::ConfigError(address.text() + ": option latency: expected low or high, got " + in_quotes(latency));
  }
  stream.low_latency = latency == "low";

  const std::chrono::duration<double> block(static_cast<double>(stream.block_frames) / stream.rate_hz);
  const auto blocks = std::chrono::duration_cast<std::chrono::nanoseconds>(kQuietBlocks * block);
  options.keeper.name = address.text();
  options.keeper.quiet_limit = std::max<std::chrono::nanoseconds>(kQuietLimit, blocks);
  options.keeper.first_quiet_limit = std::max<std::chrono::nanoseconds>(kFirstQuietLimit, blocks);
  options.keeper.give_up = std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(address.take_number("reconnect", 0, 1e6).value_or(kReconnectSeconds)));
  return options;
}

pipeline::LatencyTerm device_latency(const PortAudioStreamSpec& spec, std::optional<std::int64_t> stated_frames) {
  pipeline::LatencyTerm term;
  term.place = "device";
  term.kind = pipeline::LatencyKind::kBuffering;
  term.rate_hz = spec.rate_hz;
  term.frames = std::max(stated_frames.value_or(0), spec.block_frames);
  if (stated_frames) {
    term.key = {"uri's block and latency"};
    term.note = "as the device states it";
  } else {
    term.key = {"uri's block", 0, 1};
    term.note = "a block, as the address states it; the device adds to that";
  }
  return term;
}

}  // namespace halotap::io
