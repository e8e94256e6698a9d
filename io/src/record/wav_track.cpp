#include "record/wav_track.hpp"

#include <fcntl.h>
#include <sndfile.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <thread>
#include <vector>

#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/ring.hpp"
#include "live/gap_queue.hpp"
#include "realtime/thread_name.hpp"
#include "record/numbered.hpp"
#include "sndfile/limits.hpp"
#include "sndfile/reason.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;

constexpr double kRingSeconds = 2;
// How long frames wait, and with that how many are lost when the program is killed.
constexpr std::chrono::milliseconds kWriteEvery{50};

struct Closer {
  void operator()(SNDFILE* handle) const { sf_close(handle); }
};
using Handle = std::unique_ptr<SNDFILE, Closer>;

}  // namespace

struct WavTrack::Impl {
  explicit Impl(const WavTrackSpec& spec)
      : path(spec.path),
        channels(spec.channels),
        rate_hz(static_cast<int>(spec.rate_hz)),
        capacity(static_cast<std::int64_t>(kRingSeconds * spec.rate_hz) + 1),
        ring(channels, capacity),
        room(static_cast<std::size_t>(capacity * channels)) {}

  // From here on the thread's, once it runs, until it has ended.

  void begin_file() {
    const std::string name = numbered(path, number);
    // Nobody has looked at what it may be a link to: a new file takes its place.
    if (number > 1) unlink(name.c_str());
    SF_INFO format{};
    format.samplerate = rate_hz;
    format.channels = static_cast<int>(channels);
    format.format = SF_FORMAT_RF64 | SF_FORMAT_FLOAT;  // a WAV of any length; plain WAV when it ends below 4 GiB
    handle.reset(sf_open(name.c_str(), SFM_WRITE, &format));
    if (!handle) throw DataError(name + ": cannot be written: " + reason_of(nullptr));
    sf_command(handle.get(), SFC_RF64_AUTO_DOWNGRADE, nullptr, SF_TRUE);
    sf_command(handle.get(), SFC_SET_UPDATE_HEADER_AUTO, nullptr, SF_TRUE);
    files.push_back(name);
  }

  void run() {
    for (bool last = false; !last;) {
      // acquire, with finish's release: what was pushed before is in the ring
      last = ended.load(std::memory_order_acquire);
      if (error.empty()) {
        try {
          write_waiting();
        } catch (const DataError& failure) {
          error = failure.what();
          has_failed.store(true, std::memory_order_relaxed);  // carries nothing but itself
        }
      }
      if (!last) std::this_thread::sleep_for(kWriteEvery);
    }
    handle.reset();
  }

  void write_waiting() {
    for (;;) {
      // In this order: a file's end in front of a frame seen here is in the queue.
      std::int64_t count = ring.readable_frames();
      const PlacedGap* const next = gaps.front();
      if (next != nullptr) count = std::min(count, next->at_frame - frames_taken);
      if (count > 0) {
        if (!handle) begin_file();
        ring.pop(room.data(), count);
        frames_taken += count;
        // The count is what tells of a full disk.
        const auto written = static_cast<std::int64_t>(sf_writef_float(handle.get(), room.data(), count));
        frames_written += written;
        if (written != count) throw DataError(files.back() + ": cannot be written: " + reason_of(handle.get()));
      }
      if (next == nullptr || next->at_frame > frames_taken) return;
      gaps.pop();
      handle.reset();
      ++number;
    }
  }

  const std::string path;
  const std::int64_t channels;
  const int rate_hz;
  const std::int64_t capacity;
  pipeline::Ring ring;
  GapQueue gaps;
  std::atomic<bool> ended{false};
  std::atomic<bool> has_failed{false};

  // The producer's.
  std::int64_t frames_in = 0;
  std::int64_t frames_pushed = 0;
  std::int64_t beginnings_waiting = 0;  // of files, until they are queued

  // The thread's.
  std::vector<float> room;
  Handle handle;
  std::int64_t number = 1;  // the file's
  std::vector<std::string> files;
  std::int64_t frames_taken = 0;
  std::int64_t frames_written = 0;
  std::string error;

  std::thread thread;
};

WavTrack::WavTrack(const WavTrackSpec& spec) {
  const std::string what = spec.path + ": " + spec.key + ": ";
  if (spec.path.size() <= kRecordingExtension.size() ||
      spec.path.substr(spec.path.size() - kRecordingExtension.size()) != kRecordingExtension) {
    throw ConfigError(what + "expected a file name that ends in .wav");
  }
  if (spec.streams != 1) throw ConfigError(what + "a WAV file holds 1 stream, got " + std::to_string(spec.streams));
  if (spec.channels > kMaxAudioChannels) {
    throw ConfigError(what + "a WAV file holds 1 to " + std::to_string(kMaxAudioChannels) + " channels, got " +
                      std::to_string(spec.channels));
  }
  if (!(spec.rate_hz >= 1 && spec.rate_hz <= kMaxAudioRateHz) || spec.rate_hz != std::floor(spec.rate_hz)) {
    std::ostringstream rate;
    rate << spec.rate_hz;
    throw ConfigError(what + "a WAV file's rate is a whole number of Hz from 1 to " + std::to_string(kMaxAudioRateHz) +
                      ", got " + rate.str());
  }
  impl_ = std::make_unique<Impl>(spec);
}

WavTrack::~WavTrack() {
  impl_->ended.store(true, std::memory_order_release);
  if (impl_->thread.joinable()) impl_->thread.join();
}

void WavTrack::check() const {
  const std::string& path = impl_->path;
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  const bool exists = std::filesystem::exists(status);
  // Opening a pipe would wait for somebody to read it.
  if (exists && !std::filesystem::is_regular_file(status)) {
    throw DataError(path + ": cannot be written: it is no regular file");
  }
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) throw DataError(path + ": cannot be written: " + std::generic_category().message(errno));
  close(descriptor);
  if (!exists) unlink(path.c_str());
}

void WavTrack::begin() {
  impl_->begin_file();
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
  name_thread(impl_->thread, "halotap-record");
}

void WavTrack::push(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  impl.frames_in += frames;
  while (impl.beginnings_waiting > 0 && impl.gaps.push({impl.frames_pushed, {}})) --impl.beginnings_waiting;
  // Where the next file's beginning cannot be told, the frames are dropped.
  if (impl.beginnings_waiting > 0) return;
  const bool failed = impl.has_failed.load(std::memory_order_relaxed);
  const std::int64_t accepted = failed ? 0 : std::min(frames, impl.ring.writable_frames());
  impl.ring.push(samples, accepted);
  impl.frames_pushed += accepted;
  // Behind frames that are missing a recording cannot go on.
  if (accepted < frames) impl.beginnings_waiting = 1;
}

void WavTrack::begin_next() noexcept HALOTAP_NONBLOCKING { ++impl_->beginnings_waiting; }

RecorderCounters WavTrack::finish() {
  Impl& impl = *impl_;
  impl.ended.store(true, std::memory_order_release);
  impl.thread.join();
  if (!impl.error.empty()) throw DataError(impl.error);
  return {impl.frames_in, impl.frames_written, impl.frames_in - impl.frames_written, impl.files};
}

}  // namespace halotap::io
