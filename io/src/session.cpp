#include "halotap/io/session.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>

#include "halotap/pipeline/errors.hpp"

namespace halotap::io {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using pipeline::ConfigError;

constexpr std::int64_t kMaxBlockFrames = 4096;
constexpr std::int64_t kMaxBlockSamples = std::int64_t{1} << 20;  // 4 MB, however many streams and channels
// Paced frames come in blocks as short as a device's, so that a chunk is computed at most this long after its last
// frame was made.
constexpr double kPacedBlockSeconds = 0.001;
constexpr double kLongestSleepSeconds = 0.05;  // how late a stop may be noticed
constexpr double kProgressSeconds = 0.1;

class Session {
 public:
  Session(Source& source, pipeline::Pipeline& pipeline, const std::vector<std::unique_ptr<Sink>>& sinks,
          const SessionSpec& spec)
      : source_(source), pipeline_(pipeline), sinks_(sinks), spec_(spec) {
    const SourceInfo& info = source_.info();
    check(info);
    frame_samples_ = info.streams * info.channels;
    block_frames_ = std::clamp(kMaxBlockSamples / frame_samples_, std::int64_t{1}, kMaxBlockFrames);
    if (spec_.speed) {
      frames_per_second_ = info.rate_hz * *spec_.speed;
      const double paced_frames = std::max(1.0, frames_per_second_ * kPacedBlockSeconds);
      block_frames_ = static_cast<std::int64_t>(std::min(paced_frames, static_cast<double>(block_frames_)));
    }
    block_.resize(static_cast<std::size_t>(block_frames_ * frame_samples_));
  }

  SessionReport run() {
    if (spec_.recorder != nullptr) spec_.recorder->begin();
    if (source_.info().is_live) {
      run_live();
    } else {
      run_recording();
    }
    report_.stopped = stop_asked();
    drain();
    try {
      finish_outputs();
    } catch (const pipeline::DataError& error) {
      if (!source_failure_) throw;
      throw pipeline::DeviceError(*source_failure_ + "; " + error.what());
    }
    show_progress(0);
    if (source_failure_) throw pipeline::DeviceError(*source_failure_);
    report_.elapsed = Clock::now() - start_;
    report_.ring = pipeline_.ring_counters();
    report_.engine = pipeline_.engine().counters();
    for (std::size_t stage = 0; stage < pipeline_.stages(); ++stage) {
      report_.stages.push_back(pipeline_.stage_counters(stage));
    }
    return report_;
  }

 private:
  std::int64_t frames_to_ask() const {
    return spec_.max_frames < 0 ? block_frames_ : std::min(block_frames_, spec_.max_frames - report_.frames_in);
  }

  void run_recording() {
    while (!stop_asked()) {
      const std::int64_t asked = frames_to_ask();
      const std::int64_t got = asked > 0 ? source_.read(block_.data(), asked) : 0;
      if (got == 0 || !wait_until_made(report_.frames_in + got)) {
        return;
      }
      feed(got);
      show_progress(kProgressSeconds);
      if (got < asked) {
        return;
      }
    }
  }

  void run_live() {
    while (!stop_asked() && frames_to_ask() > 0) {
      std::int64_t got = 0;
      try {
        got = source_.read(block_.data(), frames_to_ask());
      } catch (const pipeline::DeviceError& error) {
        source_failure_ = error.what();
        return;
      }
      feed(got);
      if (const Gap gap = source_.take_gap(); gap.exists()) {
        drain();
        if (spec_.recorder != nullptr) {
          spec_.recorder->begin_next();
        }
        ++report_.gaps;
        report_.missing += gap;
        if (spec_.on_gap) spec_.on_gap(gap, report_.frames_in);
      }
      show_progress(kProgressSeconds);
    }
  }

  // All frames are written before any sink is finished: whatever fails until then leaves no output under its name.
  void finish_outputs() {
    for (const auto& sink : sinks_) {
      sink->finish();
    }
    if (spec_.recorder != nullptr) {
      report_.recording = spec_.recorder->finish();
    }
  }

  void drain() {
    for (;;) {
      const pipeline::Pipeline::Step step = pipeline_.drain();
      write(step);
      if (step.frames_in == 0 && step.frames_out == 0) {
        return;
      }
    }
  }

  void check(const SourceInfo& info) const {
    const std::int64_t channels = pipeline_.engine().in_channels();
    if (info.channels != channels) {
      throw ConfigError("the model takes " + std::to_string(channels) + " channels, the source has " +
                        std::to_string(info.channels));
    }
    const std::uint64_t streams = pipeline_.engine().counters().streams_open;
    if (static_cast<std::uint64_t>(info.streams) != streams) {
      throw ConfigError("the pipeline runs " + std::to_string(streams) + " streams, the source has " +
                        std::to_string(info.streams));
    }
    if (spec_.speed && !(*spec_.speed > 0 && std::isfinite(*spec_.speed))) {
      throw ConfigError("speed: expected a positive number, got " + std::to_string(*spec_.speed));
    }
    const bool sink_sets_pace =
        std::any_of(sinks_.begin(), sinks_.end(), [](const auto& sink) { return sink->sets_pace(); });
    if (spec_.speed && (info.is_live || sink_sets_pace)) {
      throw ConfigError(std::string("speed: a live ") + (info.is_live ? "source" : "sink") + " sets its own");
    }
    if (info.is_live && sink_sets_pace) {
      throw ConfigError(
          "a live source and a sound device as sink run on two clocks, which drift apart; write to a file instead");
    }
    if (spec_.speed && !(info.rate_hz > 0)) {
      throw ConfigError("speed: expected a source with a rate, got one without");
    }
  }

  bool stop_asked() const {
    // Relaxed: the flag carries nothing but itself.
    return spec_.stop != nullptr && spec_.stop->load(std::memory_order_relaxed);
  }

  // Waits, when paced, for the instant at which frame `frames` - 1 has been made; false when stopped before.
  bool wait_until_made(std::int64_t frames) const {
    if (!spec_.speed) {
      return true;
    }
    const double due_seconds = static_cast<double>(frames) / frames_per_second_;
    for (;;) {
      const double left = due_seconds - Seconds(Clock::now() - start_).count();
      if (left <= 0) {
        return true;
      }
      if (stop_asked()) {
        return false;
      }
      std::this_thread::sleep_for(Seconds(std::min(left, kLongestSleepSeconds)));
    }
  }

  // Takes the block's first `frames` frames through the pipeline, or, when stopped, as many as have gone in.
  void feed(std::int64_t frames) {
    for (std::int64_t pushed = 0; pushed < frames && !stop_asked();) {
      // The steps below leave less than a chunk in a ring that holds at least one: there is always room.
      const std::int64_t piece = std::min(frames - pushed, pipeline_.writable_frames());
      if (spec_.recorder != nullptr) {
        spec_.recorder->push(block_.data() + pushed * frame_samples_, piece);
      }
      pushed += pipeline_.push(block_.data() + pushed * frame_samples_, piece);
      report_.frames_in += piece;
      for (;;) {
        const Clock::time_point begin = Clock::now();
        const pipeline::Pipeline::Step step = pipeline_.step();
        if (step.frames_in == 0) {
          break;
        }
        report_.step_time.record(Clock::now() - begin);
        write(step);
      }
    }
  }

  void write(const pipeline::Pipeline::Step& step) {
    if (step.status != pipeline::Status::kOk) {
      throw pipeline::DeviceError(std::string(pipeline::to_string(step.status)) + ": " + pipeline_.engine().failure());
    }
    std::int64_t written = 0;
    for (const pipeline::StageEvent& event : step.events) {
      write_frames(step, written, event.frames_before);
      written = event.frames_before;
      for (const auto& sink : sinks_) {
        sink->write_event(event);
      }
    }
    write_frames(step, written, step.frames_out);
    report_.frames_out += step.frames_out;
  }

  // The step's frames from `first` to before `end`.
  void write_frames(const pipeline::Pipeline::Step& step, std::int64_t first, std::int64_t end) {
    if (first == end) {
      return;
    }
    const float* samples = step.samples + first * pipeline_.output().frame_samples();
    for (const auto& sink : sinks_) {
      sink->write(samples, end - first);
    }
  }

  // Unless it was shown less than `pause_seconds` ago.
  void show_progress(double pause_seconds) {
    const Clock::time_point now = Clock::now();
    if (spec_.on_progress && Seconds(now - last_progress_).count() >= pause_seconds) {
      last_progress_ = now;
      spec_.on_progress(report_.frames_in);
    }
  }

  Source& source_;
  pipeline::Pipeline& pipeline_;
  const std::vector<std::unique_ptr<Sink>>& sinks_;
  const SessionSpec& spec_;
  std::int64_t frame_samples_ = 0;
  std::int64_t block_frames_ = 0;
  double frames_per_second_ = 0;  // of wall time, when paced
  std::vector<float> block_;      // [block_frames_, streams, channels]
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_progress_ = start_;
  std::optional<std::string> source_failure_;  // of a live source's device
  SessionReport report_;
};

}  // namespace

SessionReport run_session(Source& source, pipeline::Pipeline& pipeline, const std::vector<std::unique_ptr<Sink>>& sinks,
                          const SessionSpec& spec) {
  return Session(source, pipeline, sinks, spec).run();
}

}  // namespace halotap::io
