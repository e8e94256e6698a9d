// Keeps what went into a run, so that it can be run again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halotap/io/source.hpp"
#include "halotap/pipeline/annotations.hpp"

namespace halotap::io {

// frames_in = frames_written + frames_dropped, once finished.
struct RecorderCounters {
  std::int64_t frames_in = 0;
  std::int64_t frames_written = 0;
  std::int64_t frames_dropped = 0;  // the disk was too slow, or full
  std::vector<std::string> files;   // one, and one more each time the run began again
};

// Writes the input of a run as WAV of 32-bit float, on a thread of its own: a slow disk costs frames of the recording,
// counted, and none of the run. Behind a gap where the run begins again a new file begins: FILE.wav,
// FILE.2.wav, ... Each of them, replayed, gives the bits that the run gave there.
//
// A file is written under its own name, over an older one, and its header follows twenty times a second: when the
// program is killed, what was written until then can be read. construct -> begin -> push, begin_next -> finish. One
// thread. [control]
class Recorder {
 public:
  // Touches no file. Throws ConfigError for a source of several streams or without a rate of whole Hz, a path that does
  // not end in .wav and a build without libsndfile.
  Recorder(const std::string& path, const SourceInfo& info);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Creates the first file. Throws DataError when it cannot be written.
  void begin();
  // Takes frames, [frames, channels]; drops and counts what finds no room. [worker]
  void push(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // A gap: what comes now goes into the next file. [worker]
  void begin_next() noexcept HALOTAP_NONBLOCKING;

  // Writes what waits and closes the file. Throws DataError when the disk failed; what was written before stays.
  RecorderCounters finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::io
