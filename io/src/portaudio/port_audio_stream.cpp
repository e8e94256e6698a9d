#include "portaudio/port_audio_stream.hpp"

#include <portaudio.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "halotap/pipeline/errors.hpp"
#include "in_quotes.hpp"
#include "live/capture.hpp"
#include "live/playback.hpp"
#include "portaudio/port_audio.hpp"

namespace halotap::io {
namespace {

using pipeline::DeviceError;

constexpr double kSameRate = 1e-4;  // some devices give back 47999.9 Hz

enum class Direction { kInput, kOutput };

std::int64_t monotonic_ns() noexcept HALOTAP_NONBLOCKING {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int channels_of(const PaDeviceInfo& info, Direction direction) {
  return direction == Direction::kInput ? info.maxInputChannels : info.maxOutputChannels;
}

// The number of the device that `wanted` names. In a turn.
PaDeviceIndex find_device(const PortAudioStreamSpec& spec, Direction direction) {
  const std::string what = direction == Direction::kInput ? "input" : "output";
  std::string names;
  std::optional<PaDeviceIndex> found;
  for (PaDeviceIndex device = 0; device < Pa_GetDeviceCount(); ++device) {
    const PaDeviceInfo& info = *Pa_GetDeviceInfo(device);
    if (channels_of(info, direction) == 0) continue;
    names += (names.empty() ? "" : ", ") + std::to_string(device) + " " + in_quotes(info.name);
    if (!found && spec.device == info.name) found = device;
  }
  if (names.empty()) throw DeviceError(spec.address + ": there is no sound " + what + " device on this machine");
  if (found) return *found;
  if (spec.device.empty() || spec.device == "default") {
    const PaDeviceIndex device =
        direction == Direction::kInput ? Pa_GetDefaultInputDevice() : Pa_GetDefaultOutputDevice();
    if (device != paNoDevice) return device;
    throw DeviceError(spec.address + ": there is no default sound " + what + " device; there are " + names);
  }
  PaDeviceIndex number = -1;
  const char* const end = spec.device.data() + spec.device.size();
  const auto [stop, error] = std::from_chars(spec.device.data(), end, number);
  if (error == std::errc{} && stop == end && number >= 0 && number < Pa_GetDeviceCount() &&
      channels_of(*Pa_GetDeviceInfo(number), direction) > 0) {
    return number;
  }
  throw DeviceError(spec.address + ": there is no sound " + what + " device " + in_quotes(spec.device) +
                    "; there are " + names);
}

class PortAudioStream final : public DeviceStream {
 public:
  PortAudioStream(const PortAudioStreamSpec& spec, Direction direction, PaStreamCallback* callback, void* behind)
      : address_(spec.address), direction_(direction) {
    const PortAudio::Turn turn;
    const PaDeviceIndex device = find_device(spec, direction);
    const PaDeviceInfo& info = *Pa_GetDeviceInfo(device);
    if (spec.channels > channels_of(info, direction)) {
      throw DeviceError(address_ + ": expected " + std::to_string(spec.channels) + " channels, the device has " +
                        std::to_string(channels_of(info, direction)));
    }
    PaStreamParameters parameters{};
    parameters.device = device;
    parameters.channelCount = static_cast<int>(spec.channels);
    parameters.sampleFormat = paFloat32;
    const bool input = direction == Direction::kInput;
    if (spec.low_latency) {
      parameters.suggestedLatency = input ? info.defaultLowInputLatency : info.defaultLowOutputLatency;
    } else {
      parameters.suggestedLatency = input ? info.defaultHighInputLatency : info.defaultHighOutputLatency;
    }
    // No noise is added, and an input is not clipped: what the device delivers is what is read. An output of whole
    // numbers is clipped: without that, what is too loud would wrap around.
    const PaStreamFlags flags = input ? paClipOff | paDitherOff : paDitherOff;
    const PaError error =
        Pa_OpenStream(&stream_, input ? &parameters : nullptr, input ? nullptr : &parameters, spec.rate_hz,
                      static_cast<unsigned long>(spec.block_frames), flags, callback, behind);
    if (error == paInvalidSampleRate) refuse_rate(spec, direction, info.defaultSampleRate);
    check(error, "cannot be opened");
    const PaStreamInfo* const opened = Pa_GetStreamInfo(stream_);
    if (std::abs(opened->sampleRate / spec.rate_hz - 1) > kSameRate) {
      const double rate_hz = opened->sampleRate;
      Pa_CloseStream(stream_);
      refuse_rate(spec, direction, rate_hz);
    }
    latency_frames_ = std::llround((input ? opened->inputLatency : opened->outputLatency) * spec.rate_hz);
  }

  ~PortAudioStream() override {
    try {
      const PortAudio::Turn turn;
      // An input is stopped at once; what an output was given is played to its end.
      direction_ == Direction::kInput ? Pa_AbortStream(stream_) : Pa_StopStream(stream_);
      Pa_CloseStream(stream_);
    } catch (const DeviceError&) {
      // Another stream's call hangs; this stream is left as it is.
    }
  }
  PortAudioStream(const PortAudioStream&) = delete;
  PortAudioStream& operator=(const PortAudioStream&) = delete;

  void start() override {
    const PortAudio::Turn turn;
    check(Pa_StartStream(stream_), "cannot be started");
  }

  // Without a turn: it only reads the stream's own state, and must not wait for another stream's end.
  bool is_active() override { return Pa_IsStreamActive(stream_) == 1; }

  std::int64_t latency_frames() const { return latency_frames_; }

 private:
  [[noreturn]] static void refuse_rate(const PortAudioStreamSpec& spec, Direction direction, double has_hz) {
    const std::string has = std::to_string(std::llround(has_hz));
    throw DeviceError(spec.address + ": the device does not run at " + std::to_string(std::llround(spec.rate_hz)) +
                      " Hz, but at " + has + " Hz" +
                      (direction == Direction::kInput ? "; ?rate=" + has + "&resample=true takes that and converts it"
                                                      : std::string()));
  }

  void check(PaError error, const std::string& what) const {
    if (error != paNoError) throw DeviceError(address_ + ": " + what + ": " + PortAudio::reason_of(error));
  }

  PortAudio library_;  // while the stream is there
  std::string address_;
  Direction direction_;
  PaStream* stream_ = nullptr;
  std::int64_t latency_frames_ = 0;
};

class CaptureStream final : public DeviceStream {
 public:
  CaptureStream(const PortAudioStreamSpec& spec, std::shared_ptr<Capture> capture)
      : capture_(std::move(capture)), stream_(spec, Direction::kInput, on_block, capture_.get()) {}

  void start() override { stream_.start(); }
  bool is_active() override { return stream_.is_active(); }
  std::int64_t latency_frames() const { return stream_.latency_frames(); }

 private:
  static int on_block(const void* input, void*, unsigned long frames, const PaStreamCallbackTimeInfo*,
                      PaStreamCallbackFlags flags, void* behind) noexcept HALOTAP_NONBLOCKING {
    const std::int64_t count = input == nullptr ? 0 : static_cast<std::int64_t>(frames);
    static_cast<Capture*>(behind)->on_block(static_cast<const float*>(input), count, monotonic_ns(),
                                            (flags & (paInputOverflow | paInputUnderflow)) != 0);
    return paContinue;
  }

  std::shared_ptr<Capture> capture_;  // outlives the callbacks
  PortAudioStream stream_;
};

class PlaybackStream final : public DeviceStream {
 public:
  PlaybackStream(const PortAudioStreamSpec& spec, std::shared_ptr<Playback> playback)
      : playback_(std::move(playback)), stream_(spec, Direction::kOutput, on_block, playback_.get()) {}

  void start() override { stream_.start(); }
  bool is_active() override { return stream_.is_active(); }
  std::int64_t latency_frames() const { return stream_.latency_frames(); }

 private:
  static int on_block(const void*, void* output, unsigned long frames, const PaStreamCallbackTimeInfo*,
                      PaStreamCallbackFlags flags, void* behind) noexcept HALOTAP_NONBLOCKING {
    static_cast<Playback*>(behind)->on_block(static_cast<float*>(output), static_cast<std::int64_t>(frames),
                                             monotonic_ns(), (flags & paOutputUnderflow) != 0);
    return paContinue;
  }

  std::shared_ptr<Playback> playback_;  // outlives the callbacks
  PortAudioStream stream_;
};

}  // namespace

std::unique_ptr<DeviceStream> open_playback_stream(const PortAudioStreamSpec& spec,
                                                   const std::shared_ptr<Playback>& playback,
                                                   std::atomic<std::int64_t>& latency_frames) {
  auto stream = std::make_unique<PlaybackStream>(spec, playback);
  latency_frames = stream->latency_frames();
  return stream;
}

std::unique_ptr<DeviceStream> open_capture_stream(const PortAudioStreamSpec& spec,
                                                  const std::shared_ptr<Capture>& capture,
                                                  std::atomic<std::int64_t>& latency_frames) {
  auto stream = std::make_unique<CaptureStream>(spec, capture);
  latency_frames = stream->latency_frames();
  return stream;
}

}  // namespace halotap::io
