#include "portaudio/port_audio_source.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "live/capture.hpp"
#include "live/live_source.hpp"
#include "portaudio/port_audio_options.hpp"

namespace halotap::io {
namespace {

constexpr double kRateHz = 48000;
constexpr double kLeastRateHz = 1000;
constexpr double kMostRateHz = 768000;
constexpr std::int64_t kMostChannels = 1024;

// A device that was left alone.
class UnopenedSource final : public Source {
 public:
  explicit UnopenedSource(SourceInfo info) : info_(std::move(info)) {}
  const SourceInfo& info() const override { return info_; }
  using Source::read;
  std::int64_t read(float*, std::int64_t) override { return 0; }

 private:
  SourceInfo info_;
};

}  // namespace

std::unique_ptr<Source> open_port_audio_source(Address& address, const SourceRequest& request) {
  const double rate_hz =
      address.take_number("rate", kLeastRateHz, kMostRateHz).value_or(request.rate_hz > 0 ? request.rate_hz : kRateHz);
  const std::int64_t channels =
      address.take_integer("channels", 1, kMostChannels).value_or(std::max<std::int64_t>(request.channels, 1));
  PortAudioOptions options = take_port_audio_options(address, rate_hz, channels);
  const PortAudioStreamSpec& stream = options.stream;
  const std::chrono::duration<double> block_time(static_cast<double>(stream.block_frames) / stream.rate_hz);
  SourceInfo info;
  info.channels = stream.channels;
  info.rate_hz = stream.rate_hz;
  info.is_live = true;
  if (!request.open_device) {
    info.latency = {device_latency(stream, std::nullopt), ring_latency(block_time)};
    return std::make_unique<UnopenedSource>(std::move(info));
  }
  // Two blocks at least: one that is being read, one that arrives.
  const std::int64_t ring_frames =
      std::max(std::llround(request.ring_capacity_ms / 1e3 * stream.rate_hz), 2LL * stream.block_frames);
  const auto capture = std::make_shared<Capture>(stream.channels, stream.rate_hz, ring_frames);
  const auto latency_frames = std::make_shared<std::atomic<std::int64_t>>(0);
  options.keeper.open = [stream, capture, latency_frames] {
    return open_capture_stream(stream, capture, *latency_frames);
  };
  options.keeper.blocks = [capture] { return capture->counters().blocks; };
  options.keeper.on_reopen = [capture] { capture->on_reopen(); };
  options.keeper.on_note = request.on_note;
  auto keeper = std::make_unique<DeviceKeeper>(std::move(options.keeper));

  info.latency = {device_latency(stream, *latency_frames), ring_latency(block_time)};
  return std::make_unique<LiveSource>(std::move(info), capture, std::move(keeper), stream.address, block_time);
}

}  // namespace halotap::io
