// One signal of a run, recorded.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "halotap/io/recorder.hpp"
#include "halotap/pipeline/annotations.hpp"

namespace halotap::io {

// What a track's files are to be like.
struct WavTrackSpec {
  std::string path;  // of the first file
  std::string key;   // of the pipeline file, for messages: "record.file"
  std::int64_t streams = 1;
  std::int64_t channels = 0;
  double rate_hz = 0;
};

// A recorder's input or output: a ring, and a thread that writes it into one file after the other. As Recorder.
class WavTrack {
 public:
  explicit WavTrack(const WavTrackSpec& spec);
  ~WavTrack();
  WavTrack(const WavTrack&) = delete;
  WavTrack& operator=(const WavTrack&) = delete;

  // Throws DataError when the first file is none that can be written; leaves it as it is. [control]
  void check() const;
  // Overwrites it. [control]
  void begin();
  // [worker]
  void push(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // What comes now goes into the next file. One into which nothing comes is left out, and its number with it. [worker]
  void begin_next() noexcept HALOTAP_NONBLOCKING;

  RecorderCounters finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::io
