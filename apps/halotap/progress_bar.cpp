#include "progress_bar.hpp"

#include <unistd.h>

#include <algorithm>

#include "message.hpp"

namespace halotap::apps {
namespace {

constexpr std::chrono::milliseconds kPatience{500};
constexpr int kCells = 40;

}  // namespace

ProgressBar::ProgressBar(std::int64_t frames, double rate_hz)
    : frames_(frames),
      rate_hz_(rate_hz),
      terminal_(isatty(STDERR_FILENO) != 0),
      started_(std::chrono::steady_clock::now()) {}

ProgressBar::~ProgressBar() { show_status({}); }

void ProgressBar::update(std::int64_t frames_done) {
  if (!terminal_ || std::chrono::steady_clock::now() - started_ < kPatience) return;
  std::string line;
  if (frames_ > 0) {
    const double fraction = std::clamp(static_cast<double>(frames_done) / static_cast<double>(frames_), 0.0, 1.0);
    const int full = static_cast<int>(fraction * kCells);
    line += '[' + std::string(full, '#') + std::string(kCells - full, '.') + "] ";
    line += std::to_string(static_cast<int>(fraction * 100)) + " % ";
  }
  line += std::to_string(frames_done) + " frames";
  if (rate_hz_ > 0) line += ", " + format_number(static_cast<double>(frames_done) / rate_hz_, 4) + " s";
  show_status(line);
}

}  // namespace halotap::apps
