#include "npy/npy_writer.hpp"

#include <algorithm>
#include <bit>

#include "halotap/pipeline/errors.hpp"
#include "npy/npy_header.hpp"

namespace halotap::io {

namespace {

constexpr std::int64_t kWindowBytes = 4 << 20;
constexpr std::int64_t kFloatBytes = sizeof(float);

static_assert(std::endian::native == std::endian::little, "the header says <f4 and the memory's bytes are written");

std::vector<std::int64_t> shape_of(const SinkSpec& spec, std::int64_t frames) {
  if (spec.arrangement == Arrangement::kFramesChannels) return {frames, spec.channels};
  return {spec.streams, spec.channels, frames};
}

}  // namespace

NpyWriter::NpyWriter(File& file, const SinkSpec& spec, const std::string& temporary_folder)
    : file_(file), spec_(spec), values_(spec.streams * spec.channels) {
  if (spec_.arrangement == Arrangement::kFramesChannels && spec_.streams != 1) {
    throw pipeline::ConfigError(file_.name() + ": an array [frames, channels] holds 1 stream, got " +
                                std::to_string(spec_.streams));
  }
  const std::string header = npy_header(shape_of(spec_, 0));
  data_offset_bytes_ = static_cast<std::int64_t>(header.size());
  file_.write_at(0, header.data(), header.size());
  window_capacity_ = std::max<std::int64_t>(kWindowBytes / (values_ * kFloatBytes), 1);
  if (spec_.arrangement == Arrangement::kStreamsChannelsFrames) {
    if (spec_.frames < 0 || !file_.is_regular()) {
      waiting_ = File::temporary(temporary_folder, file_.name());
    } else {
      row_frames_ = spec_.frames;
    }
  }
}

void NpyWriter::write(const float* samples, std::int64_t frames) {
  frames_written_ += frames;
  if (waiting_) {
    waiting_->write(samples, static_cast<std::size_t>(frames * values_ * kFloatBytes));
    return;
  }
  if (spec_.arrangement == Arrangement::kStreamsChannelsFrames && frames_written_ > row_frames_) {
    throw pipeline::DataError(file_.name() + ": expected " + std::to_string(row_frames_) + " frames, got more");
  }
  place(samples, frames);
}

void NpyWriter::place(const float* samples, std::int64_t frames) {
  while (frames > 0) {
    const std::int64_t held = static_cast<std::int64_t>(window_.size()) / values_;
    const std::int64_t count = std::min(frames, window_capacity_ - held);
    window_.insert(window_.end(), samples, samples + count * values_);
    samples += count * values_;
    frames -= count;
    if (held + count == window_capacity_) place_window();
  }
}

void NpyWriter::place_window() {
  const std::int64_t frames = static_cast<std::int64_t>(window_.size()) / values_;
  if (spec_.arrangement == Arrangement::kFramesChannels) {
    file_.write_at(data_offset_bytes_ + frames_placed_ * values_ * kFloatBytes, window_.data(),
                   window_.size() * sizeof(float));
  } else {
    std::vector<float> row(static_cast<std::size_t>(frames));
    for (std::int64_t value = 0; value < values_; ++value) {
      for (std::int64_t frame = 0; frame < frames; ++frame) {
        row[static_cast<std::size_t>(frame)] = window_[static_cast<std::size_t>(frame * values_ + value)];
      }
      file_.write_at(data_offset_bytes_ + (value * row_frames_ + frames_placed_) * kFloatBytes, row.data(),
                     row.size() * sizeof(float));
    }
  }
  frames_placed_ += frames;
  window_.clear();
}

void NpyWriter::finish() {
  if (waiting_) {
    row_frames_ = frames_written_;
    std::vector<float> frames(static_cast<std::size_t>(std::min(window_capacity_, frames_written_) * values_));
    for (std::int64_t frame = 0; frame < frames_written_;) {
      const std::int64_t count = std::min(window_capacity_, frames_written_ - frame);
      waiting_->read_at(frame * values_ * kFloatBytes, frames.data(),
                        static_cast<std::size_t>(count * values_ * kFloatBytes));
      place(frames.data(), count);
      frame += count;
    }
  }
  place_window();
  if (row_frames_ > frames_written_) close_gaps(frames_written_);
  const std::string header = npy_header(shape_of(spec_, frames_written_));
  file_.write_at(0, header.data(), header.size());
}

// Moves every row of row_frames_ up to the one before it, of `frames`. Front to back: a row's new place never covers
// one that is still to be moved.
void NpyWriter::close_gaps(std::int64_t frames) {
  std::vector<std::byte> part(static_cast<std::size_t>(std::min(frames * kFloatBytes, kWindowBytes)));
  for (std::int64_t value = 0; value < values_; ++value) {
    const std::int64_t from = data_offset_bytes_ + value * row_frames_ * kFloatBytes;
    const std::int64_t to = data_offset_bytes_ + value * frames * kFloatBytes;
    for (std::int64_t done = 0; done < frames * kFloatBytes;) {
      const auto count = std::min(static_cast<std::int64_t>(part.size()), frames * kFloatBytes - done);
      file_.read_at(from + done, part.data(), static_cast<std::size_t>(count));
      file_.write_at(to + done, part.data(), static_cast<std::size_t>(count));
      done += count;
    }
  }
  file_.truncate(data_offset_bytes_ + values_ * frames * kFloatBytes);
}

}  // namespace halotap::io
