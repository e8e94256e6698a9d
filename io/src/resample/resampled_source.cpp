#include "resample/resampled_source.hpp"

#include <soxr.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "halotap/pipeline/errors.hpp"

namespace halotap::io {
namespace {

using pipeline::ConfigError;
using pipeline::DataError;

// Far beyond it libsoxr is no use: a step of 1e6 down takes it 16 s, one of 1e9 up crashes it.
constexpr int kMaxRatio = 1000;

std::string step_text(double from_hz, double to_hz) {
  std::ostringstream text;
  text << "resampling from " << from_hz << " to " << to_hz << " Hz";
  return text.str();
}

class ResampledSource final : public Source {
 public:
  ResampledSource(std::unique_ptr<Source> source, double rate_hz)
      : source_(std::move(source)), info_(source_->info()), from_hz_(info_.rate_hz) {
    info_.rate_hz = rate_hz;
    if (info_.frames >= 0) {
      info_.frames = frames_after(info_.frames);
    }
    frame_samples_ = info_.streams * info_.channels;
    soxr_error_t error = nullptr;
    const soxr_io_spec_t io_spec = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_VHQ | SOXR_LINEAR_PHASE, 0);
    const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
    resampler_.reset(
        soxr_create(from_hz_, rate_hz, static_cast<unsigned>(frame_samples_), &error, &io_spec, &quality, &runtime));
    if (error != nullptr || !resampler_) {
      throw ConfigError(step_text(from_hz_, rate_hz) + ": " + soxr_strerror(error));
    }
    input_.resize(static_cast<std::size_t>(kPieceFrames * frame_samples_));
    output_.resize(input_.size());
  }

  const SourceInfo& info() const override { return info_; }

  using Source::read;
  std::int64_t read(float* samples, std::int64_t frames) override {
    std::int64_t done = 0;
    while (done < frames) {
      if (output_at_ == output_frames_ && !refill()) {
        break;
      }
      const std::int64_t piece = std::min(frames - done, output_frames_ - output_at_);
      std::copy_n(&output_[static_cast<std::size_t>(output_at_ * frame_samples_)], piece * frame_samples_,
                  samples + done * frame_samples_);
      output_at_ += piece;
      done += piece;
    }
    return done;
  }

 private:
  // libsoxr gets and gives at most this many frames a call. Always the same pieces, so that its internal blocks fall at
  // the same frames whatever the caller asks for.
  static constexpr std::int64_t kPieceFrames = 1024;

  struct Deleter {
    void operator()(soxr_t resampler) const { soxr_delete(resampler); }
  };

  std::int64_t frames_after(std::int64_t frames) const {
    return std::llround(static_cast<double>(frames) * info_.rate_hz / from_hz_);
  }

  void read_input() {
    const std::int64_t got = source_ended_ ? 0 : source_->read(input_.data(), kPieceFrames);
    frames_read_ += got;
    if (!source_ended_ && got < kPieceFrames) {
      source_ended_ = true;
      total_frames_ = frames_after(frames_read_);
    }
    // Past its end the recording is zeros: they push the filter's tail out.
    std::fill(input_.begin() + got * frame_samples_, input_.end(), 0.0F);
    input_at_ = 0;
  }

  // Makes at least one more frame of output; false at the end.
  bool refill() {
    output_at_ = 0;
    output_frames_ = 0;
    while (output_frames_ == 0) {
      if (source_ended_ && frames_made_ >= total_frames_) {
        return false;
      }
      if (input_at_ == kPieceFrames) {
        read_input();
      }
      std::size_t taken = 0;
      std::size_t made = 0;
      const soxr_error_t error =
          soxr_process(resampler_.get(), &input_[static_cast<std::size_t>(input_at_ * frame_samples_)],
                       static_cast<std::size_t>(kPieceFrames - input_at_), &taken, output_.data(), kPieceFrames, &made);
      if (error != nullptr) {
        throw DataError(step_text(from_hz_, info_.rate_hz) + ": " + soxr_strerror(error));
      }
      input_at_ += static_cast<std::int64_t>(taken);
      output_frames_ = static_cast<std::int64_t>(made);
      if (source_ended_) {
        output_frames_ = std::min(output_frames_, total_frames_ - frames_made_);
      }
      frames_made_ += output_frames_;
    }
    return true;
  }

  std::unique_ptr<Source> source_;
  SourceInfo info_;
  double from_hz_;
  std::int64_t frame_samples_ = 0;
  std::unique_ptr<soxr, Deleter> resampler_;
  std::vector<float> input_;   // [kPieceFrames, streams, channels]
  std::vector<float> output_;  // likewise
  std::int64_t input_at_ = kPieceFrames;
  std::int64_t output_at_ = 0;
  std::int64_t output_frames_ = 0;
  std::int64_t frames_read_ = 0;
  std::int64_t frames_made_ = 0;
  bool source_ended_ = false;
  std::int64_t total_frames_ = 0;  // known once the source has ended
};

}  // namespace

std::unique_ptr<Source> resampled(std::unique_ptr<Source> source, double rate_hz) {
  const double from_hz = source->info().rate_hz;
  if (!(from_hz > 0) || !(rate_hz > 0) || !std::isfinite(from_hz) || !std::isfinite(rate_hz)) {
    throw ConfigError(step_text(from_hz, rate_hz) + ": expected two positive rates");
  }
  if (from_hz > kMaxRatio * rate_hz || rate_hz > kMaxRatio * from_hz) {
    throw ConfigError(step_text(from_hz, rate_hz) + ": expected at most " + std::to_string(kMaxRatio) +
                      " times up or down");
  }
  if (from_hz == rate_hz) {
    return source;
  }
  return std::make_unique<ResampledSource>(std::move(source), rate_hz);
}

}  // namespace halotap::io
