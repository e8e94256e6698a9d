#include "sndfile/sndfile_source.hpp"

#include <sndfile.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "file.hpp"
#include "halotap/pipeline/errors.hpp"
#include "sndfile/container_check.hpp"
#include "sndfile/limits.hpp"
#include "sndfile/reason.hpp"

namespace halotap::io {
namespace {

using pipeline::DataError;

std::string format_name(int format) {
  SF_FORMAT_INFO entry{};
  entry.format = format;
  if (sf_command(nullptr, SFC_GET_FORMAT_INFO, &entry, sizeof entry) == 0 && entry.name != nullptr) {
    return entry.name;
  }
  return "an unknown one";
}

// Bytes of one uncompressed sample in a file; 0 for compressed codings.
std::int64_t sample_bytes(int format) {
  switch (format & SF_FORMAT_SUBMASK) {
    case SF_FORMAT_PCM_S8:
    case SF_FORMAT_PCM_U8:
      return 1;
    case SF_FORMAT_PCM_16:
      return 2;
    case SF_FORMAT_PCM_24:
      return 3;
    case SF_FORMAT_PCM_32:
    case SF_FORMAT_FLOAT:
      return 4;
    case SF_FORMAT_DOUBLE:
      return 8;
    default:
      return 0;
  }
}

class SndfileSource final : public Source {
 public:
  explicit SndfileSource(const std::string& path) : file_(File::open_regular(path)) {
    if (file_.size_bytes() == 0) {
      throw DataError(path + ": expected WAV, FLAC or OGG, got an empty file");
    }
    const std::optional<std::int64_t> claimed_bytes = check_wav_chunks(file_);
    check_ogg_pages(file_);
    SF_INFO opened{};
    handle_.reset(sf_open_fd(file_.descriptor(), SFM_READ, &opened, SF_FALSE));
    if (!handle_) {
      throw DataError(file_.name() + ": cannot be read as WAV, FLAC or OGG: " + reason_of(nullptr));
    }
    check_format(opened);
    if (claimed_bytes) {
      check_claim(opened, *claimed_bytes);
    }
    info_.channels = opened.channels;
    info_.rate_hz = opened.samplerate;
    // FLAC's header may leave the length open; libsndfile then gives the largest count that it has.
    info_.frames = opened.frames == SF_COUNT_MAX ? -1 : static_cast<std::int64_t>(opened.frames);
  }

  const SourceInfo& info() const override { return info_; }
  std::int64_t read(float* samples, std::int64_t frames) override {
    return read_frames(sf_readf_float, samples, frames);
  }
  std::int64_t read(double* samples, std::int64_t frames) override {
    return read_frames(sf_readf_double, samples, frames);
  }

 private:
  struct Closer {
    void operator()(SNDFILE* handle) const { sf_close(handle); }
  };

  void check_format(const SF_INFO& opened) const {
    const int container = opened.format & SF_FORMAT_TYPEMASK;
    const int coding = opened.format & SF_FORMAT_SUBMASK;
    const bool is_wav = container == SF_FORMAT_WAV || container == SF_FORMAT_WAVEX || container == SF_FORMAT_RF64;
    const bool is_ogg = container == SF_FORMAT_OGG;
    if (!is_wav && !is_ogg && container != SF_FORMAT_FLAC) {
      throw DataError(file_.name() + ": expected WAV, FLAC or OGG, got " + format_name(container));
    }
    const bool is_known_ogg = is_ogg && (coding == SF_FORMAT_VORBIS || coding == SF_FORMAT_OPUS);
    if (!is_known_ogg && sample_bytes(opened.format) == 0) {
      throw DataError(file_.name() +
                      ": expected samples in PCM of 8, 16, 24 or 32 bits, float, double, Vorbis or Opus, got " +
                      format_name(coding));
    }
    if (opened.channels < 1 || opened.channels > kMaxAudioChannels) {
      throw DataError(file_.name() + ": channels: expected 1 to " + std::to_string(kMaxAudioChannels) + ", got " +
                      std::to_string(opened.channels));
    }
    if (opened.samplerate < 1 || opened.samplerate > kMaxAudioRateHz) {
      throw DataError(file_.name() + ": rate: expected 1 to " + std::to_string(kMaxAudioRateHz) + " Hz, got " +
                      std::to_string(opened.samplerate));
    }
  }

  void check_claim(const SF_INFO& opened, std::int64_t claimed_bytes) const {
    const std::int64_t frame_bytes = sample_bytes(opened.format) * opened.channels;
    if (claimed_bytes % frame_bytes != 0) {
      throw DataError(file_.name() + ": data chunk: expected whole frames of " + std::to_string(frame_bytes) +
                      " bytes, got " + std::to_string(claimed_bytes) + " bytes");
    }
    if (claimed_bytes / frame_bytes != opened.frames) {
      throw DataError(file_.name() + ": data chunk: expected " + std::to_string(claimed_bytes / frame_bytes) +
                      " frames, as its size says, got " + std::to_string(opened.frames));
    }
  }

  template <typename Sample>
  std::int64_t read_frames(sf_count_t (*read_some)(SNDFILE*, Sample*, sf_count_t), Sample* samples,
                           std::int64_t frames) {
    const auto got = static_cast<std::int64_t>(read_some(handle_.get(), samples, frames));
    frames_read_ += got;
    if (got == frames) {
      return got;
    }
    if (sf_error(handle_.get()) != SF_ERR_NO_ERROR) {
      throw DataError(file_.name() + ": frame " + std::to_string(frames_read_) +
                      ": cannot be decoded: " + reason_of(handle_.get()));
    }
    if (info_.frames >= 0 && frames_read_ != info_.frames) {
      throw DataError(file_.name() + ": expected " + std::to_string(info_.frames) +
                      " frames, as the header says, got " + std::to_string(frames_read_));
    }
    return got;
  }

  File file_;
  std::unique_ptr<SNDFILE, Closer> handle_;
  SourceInfo info_;
  std::int64_t frames_read_ = 0;
};

}  // namespace

std::unique_ptr<Source> open_sndfile_source(Address& address, const SourceRequest&) {
  return std::make_unique<SndfileSource>(address.path());
}

}  // namespace halotap::io
