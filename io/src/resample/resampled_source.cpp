#include "resample/resampled_source.hpp"

#include <soxr.h>

#include <algorithm>
#include <chrono>
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
    resampler_ = new_resampler();
    input_.resize(static_cast<std::size_t>(kPieceFrames * frame_samples_));
    output_.resize(input_.size());
    if (info_.is_live) {
      // Timed, for capture_time dates frames by what they stand for.
      info_.latency.push_back({.place = "resampler",
                               .frames = frames_held_back(),
                               .rate_hz = rate_hz,
                               .is_timed = true,
                               .key = {"uri's rate and resample"}});
    }
  }

  const SourceInfo& info() const override { return info_; }

  // At a gap of a live source a recording ends, and the next one begins.
  Gap take_gap() override {
    if (!gap_.exists() || output_at_ < output_frames_ || frames_made_ < total_frames_) {
      return {};
    }
    Gap gap = std::exchange(gap_, {});
    gap.frames_lost = frames_after(gap.frames_lost);
    gap.frames_dropped = frames_after(gap.frames_dropped);
    gap.frames_late = frames_after(gap.frames_late);
    resampler_ = new_resampler();
    input_at_ = kPieceFrames;
    frames_read_ = 0;
    frames_made_ = 0;
    source_ended_ = false;
    return gap;
  }

  // Output frame m stands for the instant m / rate_hz of its recording, so the filter's delay counts as waiting.
  std::optional<pipeline::Instant> capture_time() const override {
    const std::int64_t given = frames_made_ - (output_frames_ - output_at_);
    if (!last_read_ || given == 0) return std::nullopt;
    const double behind_s =
        static_cast<double>(frames_read_ - 1) / from_hz_ - static_cast<double>(given - 1) / info_.rate_hz;
    return *last_read_ - std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(behind_s));
  }
  // In frames of the output; those in the filter are not among them.
  Waiting waiting() const override {
    const Waiting waiting = source_->waiting();
    return {frames_after(waiting.frames), frames_after(waiting.capacity_frames)};
  }

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

  using Resampler = std::unique_ptr<soxr, Deleter>;

  Resampler new_resampler() const {
    soxr_error_t error = nullptr;
    const soxr_io_spec_t io_spec = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
    const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_VHQ | SOXR_LINEAR_PHASE, 0);
    const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
    Resampler resampler(soxr_create(from_hz_, info_.rate_hz, static_cast<unsigned>(frame_samples_), &error, &io_spec,
                                    &quality, &runtime));
    if (error != nullptr || !resampler) {
      throw ConfigError(step_text(from_hz_, info_.rate_hz) + ": " + soxr_strerror(error));
    }
    return resampler;
  }

  // What the filter and the pieces hold back at most, in frames of output: tried out over some seconds of silence.
  std::int64_t frames_held_back() const {
    constexpr int kPieces = 128;
    const Resampler resampler = new_resampler();
    const std::vector<float> silence(input_.size());
    std::vector<float> room(output_.size());
    double most = 0;
    std::int64_t frames_in = 0;
    std::int64_t frames_out = 0;
    for (int piece = 0; piece < kPieces; ++piece) {
      // Just before this piece is whole, its frames are in and nothing of it is out.
      most = std::max(most, static_cast<double>(frames_in + kPieceFrames) * info_.rate_hz / from_hz_ -
                                static_cast<double>(frames_out));
      for (std::int64_t at = 0; at < kPieceFrames;) {
        std::size_t taken = 0;
        std::size_t made = 0;
        soxr_process(resampler.get(), silence.data(), static_cast<std::size_t>(kPieceFrames - at), &taken, room.data(),
                     kPieceFrames, &made);
        at += static_cast<std::int64_t>(taken);
        frames_out += static_cast<std::int64_t>(made);
        if (taken == 0 && made == 0) {
          break;
        }
      }
      frames_in += kPieceFrames;
    }
    return std::llround(std::ceil(most));
  }

  // Makes a piece of input whole, with zeros behind the end. False while a live source has not delivered it.
  bool read_input() {
    if (!source_ended_) {
      const std::int64_t got =
          source_->read(&input_[static_cast<std::size_t>(filled_ * frame_samples_)], kPieceFrames - filled_);
      if (got > 0) last_read_ = source_->capture_time();
      frames_read_ += got;
      filled_ += got;
      if (filled_ < kPieceFrames) {
        gap_ = source_->take_gap();
        if (info_.is_live && !gap_.exists()) {
          return false;
        }
        source_ended_ = true;
        total_frames_ = frames_after(frames_read_);
      }
    }
    // Past its end the recording is zeros: they push the filter's tail out.
    std::fill(input_.begin() + filled_ * frame_samples_, input_.end(), 0.0F);
    filled_ = 0;
    input_at_ = 0;
    return true;
  }

  // Makes at least one more frame of output; false at the end, and while a live source has not delivered enough.
  bool refill() {
    output_at_ = 0;
    output_frames_ = 0;
    while (output_frames_ == 0) {
      if (source_ended_ && frames_made_ >= total_frames_) {
        return false;
      }
      if (input_at_ == kPieceFrames && !read_input()) {
        return false;
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
  Resampler resampler_;
  std::vector<float> input_;   // [kPieceFrames, streams, channels]
  std::vector<float> output_;  // likewise
  std::int64_t filled_ = 0;    // frames of a piece that is not whole yet
  std::int64_t input_at_ = kPieceFrames;
  std::int64_t output_at_ = 0;
  std::int64_t output_frames_ = 0;
  std::int64_t frames_read_ = 0;
  std::optional<pipeline::Instant> last_read_;  // when the last of them was captured
  std::int64_t frames_made_ = 0;
  bool source_ended_ = false;
  std::int64_t total_frames_ = 0;  // known once the source has ended
  Gap gap_;                        // which ended a live source's recording
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
