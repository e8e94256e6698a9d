// Writes one array in .npy format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "file.hpp"
#include "halotap/io/sink.hpp"

namespace halotap::io {

// Writes float32 in C order, [frames, channels] or [streams, channels, frames]. The latter's rows lie as far apart as
// the frames are many, so frames go to their final places as they come when their number is known and the file can be
// written anywhere. Otherwise, they wait in a temporary file until finish. Memory holds a window of frames. [control]
class NpyWriter {
 public:
  // Writes to the start of `file`, which must outlive the writer; `temporary_folder` is where frames may wait. Throws
  // ConfigError when the spec has several streams in an arrangement of one.
  NpyWriter(File& file, const SinkSpec& spec, const std::string& temporary_folder);

  void write(const float* samples, std::int64_t frames);
  void finish();

 private:
  void place(const float* samples, std::int64_t frames);
  void place_window();
  void close_gaps(std::int64_t frames);

  File& file_;
  SinkSpec spec_;
  std::int64_t values_;  // of a frame, all streams
  std::int64_t data_offset_bytes_;
  std::int64_t row_frames_ = 0;  // length of a row in the file
  std::optional<File> waiting_;  // [frames, streams, channels]
  std::int64_t frames_written_ = 0;
  std::int64_t window_capacity_;    // frames
  std::vector<float> window_;       // [frames, streams, channels], frames that are not in the file yet
  std::int64_t frames_placed_ = 0;  // in the file
};

}  // namespace halotap::io
