#include "sndfile/sndfile_sink.hpp"

#include <sndfile.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

#include "halotap/pipeline/errors.hpp"
#include "output_file.hpp"
#include "sndfile/limits.hpp"
#include "sndfile/reason.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;

// Samples that a RIFF file can hold: its size is 32 bits, and 4 KiB are far more than the header takes.
constexpr std::int64_t kMaxRiffSamples = (std::int64_t{std::numeric_limits<std::uint32_t>::max()} - 4096) / 4;

class SndfileSink final : public Sink {
 public:
  SndfileSink(const std::string& path, const SinkSpec& spec)
      : output_(path),
        is_riff_(spec.frames >= 0 && spec.frames <= kMaxRiffSamples / spec.channels),
        room_frames_(is_riff_ ? kMaxRiffSamples / spec.channels : std::numeric_limits<std::int64_t>::max()) {
    if (::lseek(output_.file().descriptor(), 0, SEEK_CUR) < 0) {
      throw ConfigError(path + ": WAV is written to a file, not to a pipe: its header is completed at the end");
    }
    SF_INFO format{};
    format.samplerate = static_cast<int>(spec.rate_hz);
    format.channels = static_cast<int>(spec.channels);
    format.format = (is_riff_ ? SF_FORMAT_WAV : SF_FORMAT_RF64) | SF_FORMAT_FLOAT;
    handle_.reset(sf_open_fd(output_.file().descriptor(), SFM_WRITE, &format, SF_FALSE));
    if (!handle_) {
      fail(nullptr);
    }
    if (is_riff_) {
      // The peak chunk holds the time of writing: the same result would not give the same bytes. RF64 has none by
      // itself, and there this command would add one.
      sf_command(handle_.get(), SFC_SET_ADD_PEAK_CHUNK, nullptr, SF_FALSE);
    } else {
      sf_command(handle_.get(), SFC_RF64_AUTO_DOWNGRADE, nullptr, SF_TRUE);
    }
  }

  void write(const float* samples, std::int64_t frames) override {
    if (frames > room_frames_) {
      throw DataError(output_.file().name() + ": more frames than were announced do not fit in a WAV file of 4 GiB");
    }
    room_frames_ -= frames;
    // The count is what tells of a full disk; closing the handle reports success all the same.
    if (sf_writef_float(handle_.get(), samples, frames) != frames) {
      fail(handle_.get());
    }
  }

  void finish() override {
    sf_command(handle_.get(), SFC_UPDATE_HEADER_NOW, nullptr, 0);
    if (sf_error(handle_.get()) != SF_ERR_NO_ERROR) {
      fail(handle_.get());
    }
    if (sf_close(handle_.release()) != 0) {
      fail(nullptr);
    }
    output_.finish();
  }

 private:
  struct Closer {
    void operator()(SNDFILE* handle) const { sf_close(handle); }
  };

  [[noreturn]] void fail(SNDFILE* handle) {
    throw DataError(output_.file().name() + ": cannot be written: " + reason_of(handle));
  }

  OutputFile output_;
  bool is_riff_;
  std::int64_t room_frames_;  // until the size no longer fits in the header
  std::unique_ptr<SNDFILE, Closer> handle_;
};

}  // namespace

std::unique_ptr<Sink> open_sndfile_sink(Address& address, const SinkSpec& spec) {
  const std::string& name = address.text();
  if (spec.streams != 1) {
    throw ConfigError(name + ": a WAV file holds 1 stream, got " + std::to_string(spec.streams));
  }
  if (spec.channels < 1 || spec.channels > kMaxAudioChannels) {
    throw ConfigError(name + ": a WAV file holds 1 to " + std::to_string(kMaxAudioChannels) + " channels, got " +
                      std::to_string(spec.channels));
  }
  if (!(spec.rate_hz >= 1 && spec.rate_hz <= kMaxAudioRateHz) || spec.rate_hz != std::floor(spec.rate_hz)) {
    std::ostringstream rate;
    rate.precision(17);
    rate << spec.rate_hz;
    throw ConfigError(name + ": a WAV file's rate is a whole number of Hz from 1 to " +
                      std::to_string(kMaxAudioRateHz) + ", got " + rate.str());
  }
  return std::make_unique<SndfileSink>(address.path(), spec);
}

}  // namespace halotap::io
