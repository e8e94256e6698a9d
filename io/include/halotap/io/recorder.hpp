// Keeps what went into a run, so that it can be run again, and what came out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halotap/io/source.hpp"
#include "halotap/pipeline/annotations.hpp"
#include "halotap/pipeline/stage.hpp"

namespace halotap::io {

// Where to. Empty: not kept.
struct RecorderSpec {
  std::string input;
  std::string output;
};

// Of the input or the output. frames_in = frames_written + frames_dropped, once finished.
struct RecorderCounters {
  std::int64_t frames_in = 0;
  std::int64_t frames_written = 0;
  std::int64_t frames_dropped = 0;  // the disk was too slow, or full
  std::vector<std::string> files;   // in the order in which they were begun
};

struct RecorderReport {
  RecorderCounters input;
  RecorderCounters output;
};

// Writes the input of a run, and its output behind the stages, as WAV of 32-bit float, each on a thread of its own: a
// slow disk costs frames of the recording, counted, and none of the run. Behind a gap where
// the run begins again new files begin: FILE.wav, FILE.2.wav, ... A file of the input, replayed, gives the bits of the
// output's file of the same number, as long as no frames were dropped.
//
// A file is written under its own name, over an older one, and its header follows twenty times a second: when the
// program is killed, what was written until then can be read. construct -> begin -> push_input, push_output, begin_next
// -> finish. One thread. [control]
class Recorder {
 public:
  // Touches no file. Throws ConfigError for a path that does not end in .wav, for several streams, more channels than a
  // WAV file takes or a rate of other than whole Hz of what is to be kept, and in a build without libsndfile.
  Recorder(const RecorderSpec& spec, const SourceInfo& input, const pipeline::StageFormat& output);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // Creates the first files, or overwrites them. Throws DataError when one cannot be written; then neither is touched.
  void begin();
  // Take frames, [frames, channels]; drop and count what finds no room. [worker]
  void push_input(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  void push_output(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // A gap: what comes now goes into the next files. [worker]
  void begin_next() noexcept HALOTAP_NONBLOCKING;

  // Writes what waits and closes the files. Throws DataError when the disk failed; what was written before stays.
  RecorderReport finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::io
