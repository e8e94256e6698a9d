// A progress bar for long work.
#pragma once

#include <chrono>
#include <cstdint>

namespace halotap::apps {

// Draws on standard error when that is a terminal and the work has taken longer than half a second; erases itself when
// destroyed, so that only results and messages stay.
class ProgressBar {
 public:
  // `frames` is the length of the work, -1 when not known.
  ProgressBar(std::int64_t frames, double rate_hz);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(std::int64_t frames_done);

 private:
  std::int64_t frames_;
  double rate_hz_;
  bool terminal_;
  std::chrono::steady_clock::time_point started_;
};

}  // namespace halotap::apps
