#include "halotap/io/session.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/miss_watch.hpp"
#include "halotap/pipeline/realtime_scope.hpp"
#include "input/gap_reach.hpp"
#include "input/sample_guard.hpp"
#include "paced_block.hpp"
#include "realtime/thread_name.hpp"
#include "session/held_frame.hpp"
#include "session/level_meter.hpp"
#include "session/stale_frames.hpp"

namespace halotap::io {
namespace {

using Seconds = std::chrono::duration<double>;
using pipeline::ConfigError;
using pipeline::Instant;
using pipeline::OnGap;
using pipeline::OnMiss;

constexpr std::int64_t kMaxBlockFrames = 4096;
constexpr std::int64_t kMaxBlockSamples = std::int64_t{1} << 20;  // 4 MB, however many streams and channels
constexpr double kLongestSleepSeconds = 0.05;                     // how late a stop may be noticed
constexpr double kProgressSeconds = 0.1;

class Session {
 public:
  Session(Source& source, pipeline::Pipeline& pipeline, const std::vector<std::unique_ptr<Sink>>& sinks,
          const SessionSpec& spec)
      : source_(source),
        pipeline_(pipeline),
        sinks_(sinks),
        spec_(spec),
        guard_(spec.input.on_invalid, source.info().streams * source.info().channels),
        clock_(pipeline.clock()),
        meter_(source.info().streams, source.info().channels),
        watch_(spec.latency.miss_after, spec.latency.recover_after),
        held_(pipeline.output().frame_samples()) {
    const SourceInfo& info = source_.info();
    check(info);
    frame_samples_ = info.streams * info.channels;
    block_frames_ = std::clamp(kMaxBlockSamples / frame_samples_, std::int64_t{1}, kMaxBlockFrames);
    if (spec_.speed) {
      frames_per_second_ = info.rate_hz * *spec_.speed;
      block_frames_ = paced_block_frames(frames_per_second_, block_frames_);
    }
    if (info.is_live) frames_per_second_ = info.rate_hz;
    block_.resize(static_cast<std::size_t>(block_frames_ * frame_samples_));
    lost_sinks_.resize(sinks_.size());
    report_.latency = pipeline::LatencyLog(spec_.latency);
  }

  SessionReport run() {
    const BorrowedThreadName name("halotap-session");
    // Before the scheduling changes: threads begin with their maker's processors.
    if (spec_.recorder != nullptr) spec_.recorder->begin();
    compute();
    try {
      finish_outputs();
    } catch (const pipeline::DataError& error) {
      if (!device_failure_) throw;
      *device_failure_ += std::string("; ") + error.what();
    }
    tell(0);
    complete_report();
    if ((device_failure_ || budget_failure_) && spec_.failed != nullptr) *spec_.failed = report_;
    if (device_failure_) throw pipeline::DeviceError(*device_failure_);
    if (budget_failure_) throw pipeline::BudgetError(*budget_failure_);
    return report_;
  }

 private:
  void complete_report() {
    report_.elapsed = clock_.now() - start_;
    report_.invalid = guard_.counts();
    report_.ring = pipeline_.ring_counters();
    report_.engine = pipeline_.engine().counters();
    for (const auto& sink : sinks_) report_.played.push_back(sink->played());
    for (std::size_t stage = 0; stage < pipeline_.stages(); ++stage) {
      report_.stages.push_back(pipeline_.stage_counters(stage));
    }
  }

  // All that has a deadline.
  void compute() {
    const pipeline::RealtimeScope realtime(spec_.realtime, spec_.on_note);
    report_.realtime = realtime.grant();
    name_threads();
    start_ = last_told_ = clock_.now();
    if (source_.info().is_live) {
      run_live();
    } else {
      run_recording();
    }
    end_skip();
    report_.stopped = stop_asked();
    drain();
    end_marks();
  }

  // A stream; those that were filled in count as read.
  std::int64_t frames_read() const { return report_.frames_in + report_.frames_skipped; }

  std::int64_t frames_to_ask() const {
    return spec_.max_frames < 0 ? block_frames_ : std::min(block_frames_, spec_.max_frames - frames_read());
  }

  void run_recording() {
    while (!ends()) {
      const std::int64_t asked = frames_to_ask();
      const std::int64_t got = asked > 0 ? source_.read(block_.data(), asked) : 0;
      if (got == 0 || !wait_until_made(frames_read() + got)) {
        return;
      }
      guard_.clean(block_.data(), got);
      if (spec_.speed) last_captured_ = made(frames_read() + got);
      feed(got, spec_.speed && made(frames_read() + got + block_frames_) > clock_.now());
      tell(kProgressSeconds);
      if (got < asked) {
        return;
      }
    }
  }

  void run_live() {
    while (!ends() && frames_to_ask() > 0) {
      const std::int64_t asked = frames_to_ask();
      std::int64_t got = 0;
      try {
        got = source_.read(block_.data(), asked);
      } catch (const pipeline::DeviceError& error) {
        device_failure_ = error.what();
        return;
      }
      if (got > 0) last_captured_ = source_.capture_time();
      guard_.clean(block_.data(), got);
      feed(got, got < asked);
      if (const Gap gap = source_.take_gap(); gap.exists()) handle(gap);
      tell(kProgressSeconds);
    }
  }

  // What comes next belongs to nothing before it.
  void begin_again() {
    drain();
    end_marks();
    if (spec_.recorder != nullptr) spec_.recorder->begin_next();
    guard_.begin_again();
    stream_began_ = report_.frames_in;
    output_began_ = report_.frames_out;
  }

  // A gap behind what was fed last.
  void handle(const Gap& gap) {
    ++report_.gaps;
    report_.missing += gap;
    const std::int64_t missing = gap.frames_lost + gap.frames_dropped;
    HandledGap handled{.gap = gap, .at_frame = report_.frames_in, .action = spec_.input.on_gap};
    // While late frames are thrown away, none are made up.
    if (handled.action == OnGap::kFill && (missing > spec_.max_fill_frames || skips_)) handled.action = OnGap::kReset;
    if (handled.action == OnGap::kReset) {
      begin_again();
      handled.first_frame = report_.frames_out;
    } else {
      if (handled.action == OnGap::kFill) handled.frames_filled = fill(missing);
      mark(handled);
    }
    tell_of(handled);
  }

  void tell_of(const HandledGap& gap) {
    to_sinks([&gap](Sink& sink) { sink.write_gap(gap); });
    if (spec_.on_gap) spec_.on_gap(gap);
  }

  // Feeds zeros in the place of `frames` frames; fewer when the session ends with them. They count as captured when
  // the missing ones would have been, and are late like no others, so that on_miss does not act on them.
  std::int64_t fill(std::int64_t frames) {
    const std::int64_t before = report_.frames_in;
    const std::int64_t end = before + frames;
    is_filling_ = true;
    while (report_.frames_in < end && frames_to_ask() > 0 && !ends()) {
      const std::int64_t piece = std::min(end - report_.frames_in, frames_to_ask());
      std::fill_n(block_.begin(), piece * frame_samples_, 0.0F);
      if (last_captured_) *last_captured_ += nanoseconds(static_cast<double>(piece) / frames_per_second_);
      feed(piece, false);
    }
    is_filling_ = false;
    guard_.begin_again();
    report_.frames_filled += report_.frames_in - before;
    return report_.frames_in - before;
  }

  // The stream has ended, be it before the last frame that a gap would have reached.
  void end_marks() {
    report_.frames_marked -= std::max<std::int64_t>(marked_end_ - report_.frames_out, 0);
    marked_end_ = std::min(marked_end_, report_.frames_out);
  }

  // Finds the output frames that a gap reaches through the engine, and those that these are merged into by the stages.
  void mark(HandledGap& handled) {
    const pipeline::Engine& engine = pipeline_.engine();
    const FrameRange reach = reach_of_gap(handled.at_frame - stream_began_, handled.gap.frames_late,
                                          handled.frames_filled, engine.receptive_field(), engine.lookahead_frames());
    handled.first_frame = output_began_ + pipeline_.output_frames(reach.first + 1) - 1;
    if (reach.first == reach.end) return;
    const std::int64_t end = output_began_ + pipeline_.output_frames(reach.end);
    handled.frames = end - handled.first_frame;
    report_.frames_marked += std::max<std::int64_t>(end - std::max(handled.first_frame, marked_end_), 0);
    marked_end_ = std::max(marked_end_, end);
  }

  // All frames are written before any sink is finished: whatever fails until then leaves no output under its name.
  void finish_outputs() {
    to_sinks([](Sink& sink) { sink.finish(); });
    if (spec_.recorder != nullptr) {
      report_.recording = spec_.recorder->finish();
    }
  }

  void drain() {
    for (;;) {
      const pipeline::Pipeline::Step step = pipeline_.drain();
      hand_over(step);
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
      throw ConfigError("a live source and a sink that sets the pace run on two clocks, which drift apart");
    }
    if (spec_.latency.budget_ms && !info.is_live && !spec_.speed) {
      throw ConfigError(
          "latency.budget_ms: expected a live source or a paced recording; at the pace of a sink or without any, no "
          "frame has an instant of capture");
    }
    if (spec_.speed && !(info.rate_hz > 0)) {
      throw ConfigError("speed: expected a source with a rate, got one without");
    }
  }

  bool stop_asked() const {
    // Relaxed: the flag carries nothing but itself.
    return spec_.stop != nullptr && spec_.stop->load(std::memory_order_relaxed);
  }

  bool ends() const { return stop_asked() || budget_failure_ || device_failure_; }

  static std::chrono::nanoseconds nanoseconds(double seconds) {
    return std::chrono::round<std::chrono::nanoseconds>(Seconds(seconds));
  }

  // When, paced, so many frames have been made.
  Instant made(std::int64_t frames) const {
    return start_ + nanoseconds(static_cast<double>(frames) / frames_per_second_);
  }

  // Waits, when paced, until so many frames have been made; false when stopped before.
  bool wait_until_made(std::int64_t frames) {
    if (!spec_.speed) {
      return true;
    }
    const double due_seconds = static_cast<double>(frames) / frames_per_second_;
    for (;;) {
      const double left = due_seconds - Seconds(clock_.now() - start_).count();
      if (left <= 0) {
        return true;
      }
      if (stop_asked()) {
        return false;
      }
      tell(kProgressSeconds);
      clock_.sleep(std::chrono::ceil<std::chrono::nanoseconds>(Seconds(std::min(left, kLongestSleepSeconds))));
    }
  }

  // Takes the block's first `frames` frames through the pipeline, or, when the session ends, as many as have gone in.
  // `is_newest`: no later ones wait in the source.
  void feed(std::int64_t frames, bool is_newest) {
    meter_.add(block_.data(), frames);
    unfed_frames_ = frames;
    while (unfed_frames_ > 0 && !ends()) {
      const float* const samples = block_.data() + (frames - unfed_frames_) * frame_samples_;
      if (skips_) {
        skip(is_newest);
        continue;
      }
      // No further than to the end of a chunk, so that what comes behind it may still be skipped. A ring that holds
      // less than a chunk has room for the rest of one.
      const std::int64_t piece = std::min(unfed_frames_, pipeline_.missing_frames());
      if (spec_.recorder != nullptr) spec_.recorder->push_input(samples, piece);
      pipeline_.push(samples, piece);
      unfed_frames_ -= piece;
      in_ring_frames_ += piece;
      report_.frames_in += piece;
      const pipeline::Pipeline::Step step = pipeline_.step();
      if (step.frames_in == 0) continue;
      report_.step_time.record(step.staged - step.begun);
      hand_over(step);
      if (is_late_ && watch_.acts() && !is_filling_) act();
    }
  }

  // On a late chunk, once there have been enough of them on end.
  void act() {
    if (spec_.latency.on_miss == OnMiss::kSkipToLatest) {
      skips_ = true;
      skipped_frames_ = 0;
    } else if (spec_.latency.on_miss == OnMiss::kStop) {
      const std::int64_t chunks = spec_.latency.miss_after;
      budget_failure_ = "latency.on_miss: stop: the run ended in front of frame " + std::to_string(report_.frames_in) +
                        ": " + std::to_string(chunks) + (chunks == 1 ? " chunk" : " chunks on end") +
                        " took longer than the " +
                        pipeline::duration_text(nanoseconds(*spec_.latency.budget_ms / 1e3)) +
                        " that are left of the budget, the last of them " + pipeline::duration_text(latest_);
    }
  }

  // Throws away what no chunk can have in time any more. The newest chunk that there is goes on all the same: where
  // nothing can be on time something still comes out.
  void skip(bool is_newest) {
    const std::int64_t chunk_frames = pipeline_.missing_frames();
    const std::chrono::nanoseconds budget = nanoseconds(*spec_.latency.budget_ms / 1e3);
    const std::chrono::nanoseconds most_age = std::max(budget - processing_, std::chrono::nanoseconds{0});
    std::int64_t stale =
        stale_frames(unfed_frames_, *last_captured_, frames_per_second_, chunk_frames, clock_.now(), most_age);
    // Whole chunks in all, so that chunks end where they did in a device's blocks: one that ends inside a block waits
    // for the rest of that.
    const auto past_a_chunk = [&](std::int64_t frames) { return (skipped_frames_ + frames) % chunk_frames; };
    if (skipped_frames_ + stale > 0) {
      stale = std::min(stale + (chunk_frames - past_a_chunk(stale)) % chunk_frames, unfed_frames_);
    }
    if (const std::int64_t most = unfed_frames_ - chunk_frames; is_newest && stale > most) {
      stale = std::max<std::int64_t>(most - past_a_chunk(std::max<std::int64_t>(most, 0)), 0);
    }
    if (stale > 0 && skipped_frames_ == 0) begin_again();
    unfed_frames_ -= stale;
    skipped_frames_ += stale;
    report_.frames_skipped += stale;
    if (unfed_frames_ > 0) end_skip();
  }

  void end_skip() {
    if (!skips_) return;
    skips_ = false;
    if (skipped_frames_ == 0) return;
    ++report_.skips;
    tell_of({.at_frame = report_.frames_in, .frames_skipped = skipped_frames_, .first_frame = report_.frames_out});
  }

  // Once, behind the chunk in which it happened.
  void tell_of_failover(const pipeline::Pipeline::Step& step) {
    const pipeline::Failover* failover = pipeline_.engine().failover();
    if (failover == nullptr || report_.failover) return;
    const std::int64_t chunk_begin = report_.frames_in - in_ring_frames_ - step.frames_in;
    report_.failover = {*failover, chunk_begin + failover->frames_before, clock_.now() - start_};
    if (spec_.on_note) spec_.on_note(describe(*report_.failover));
  }

  void hand_over(const pipeline::Pipeline::Step& step) {
    in_ring_frames_ -= step.frames_in;
    tell_of_failover(step);
    pipeline::ChunkTimes times{std::nullopt, step.begun, step.computed, step.staged, {}};
    if (last_captured_ && step.frames_in > 0) {
      times.captured =
          *last_captured_ - nanoseconds(static_cast<double>(unfed_frames_ + in_ring_frames_) / frames_per_second_);
    }
    const bool is_held = spec_.latency.on_miss == OnMiss::kHoldLast && watch_.acts() && times.captured &&
                         report_.latency.is_late(step.staged - *times.captured);
    write(step, is_held);
    if (step.frames_in == 0) return;
    times.handed_over = clock_.now();
    report_.latency.record(times);
    processing_ = times.handed_over - times.begun;
    is_late_ = false;
    if (!times.captured) return;
    latest_ = times.handed_over - *times.captured;
    is_late_ = report_.latency.is_late(latest_);
    watch_.record(is_late_);
  }

  void write(const pipeline::Pipeline::Step& step, bool is_held) {
    if (step.status != pipeline::Status::kOk) {
      throw pipeline::DeviceError(pipeline_.engine().failure());
    }
    std::int64_t written = 0;
    for (const pipeline::StageEvent& event : step.events) {
      write_frames(step, written, event.frames_before, is_held);
      written = event.frames_before;
      to_sinks([&event](Sink& sink) { sink.write_event(event); });
    }
    write_frames(step, written, step.frames_out, is_held);
    report_.frames_out += step.frames_out;
    if (is_held) {
      report_.frames_held += step.frames_out;
    } else if (step.frames_out > 0) {
      held_.keep(step.samples + (step.frames_out - 1) * pipeline_.output().frame_samples());
    }
  }

  // The step's frames from `first` to before `end`, or as many held ones.
  void write_frames(const pipeline::Pipeline::Step& step, std::int64_t first, std::int64_t end, bool is_held) {
    if (first == end) {
      return;
    }
    if (is_held) {
      for (std::int64_t left = end - first; left > 0; left -= HeldFrame::kMostFrames) {
        const std::int64_t frames = std::min(left, HeldFrame::kMostFrames);
        if (spec_.recorder != nullptr) spec_.recorder->push_output(held_.repeated(), frames);
        to_sinks([&](Sink& sink) { sink.write_held(held_.repeated(), frames); });
      }
      return;
    }
    const float* samples = step.samples + first * pipeline_.output().frame_samples();
    if (spec_.recorder != nullptr) spec_.recorder->push_output(samples, end - first);
    to_sinks([&](Sink& sink) { sink.write(samples, end - first); });
  }

  // One whose device fails ends the session, and is given nothing more.
  template <typename Give>
  void to_sinks(Give give) {
    for (std::size_t i = 0; i < sinks_.size(); ++i) {
      if (lost_sinks_[i] != 0) continue;
      try {
        give(*sinks_[i]);
      } catch (const pipeline::DeviceError& error) {
        lost_sinks_[i] = 1;
        if (!device_failure_) device_failure_ = error.what();
      }
    }
  }

  // Unless it was told less than `pause_seconds` ago.
  void tell(double pause_seconds) {
    const Instant now = clock_.now();
    if (Seconds(now - last_told_).count() < pause_seconds) return;
    last_told_ = now;
    if (spec_.telemetry != nullptr) spec_.telemetry->store(telemetry(now));
    if (spec_.on_progress) spec_.on_progress(frames_read());
  }

  const SessionTelemetry& telemetry(Instant now) {
    SessionTelemetry& told = telemetry_;
    told.elapsed_ns = (now - start_).count();
    told.frames_in = report_.frames_in;
    told.frames_out = report_.frames_out;
    told.frames_skipped = report_.frames_skipped;
    told.frames_held = report_.frames_held;
    told.frames_dropped = report_.missing.frames_dropped;
    told.frames_lost = report_.missing.frames_lost;
    told.gaps = report_.gaps;
    told.frames_filled = report_.frames_filled;
    told.frames_marked = report_.frames_marked;
    told.invalid = guard_.counts();
    told.device_sinks = 0;
    for (const auto& sink : sinks_) {
      const std::optional<PlayedCounters> played = sink->played();
      if (played && told.device_sinks++ == 0) told.played = *played;
    }
    told.skips = report_.skips;
    told.failovers = report_.failover ? 1 : 0;
    for (std::size_t part = 0; part < pipeline::kLatencyParts; ++part) {
      told.latency[part] = report_.latency.figures(static_cast<pipeline::LatencyPart>(part));
    }
    told.latest_ns = latest_.count();
    told.is_missing = watch_.acts() ? 1 : 0;
    const Waiting waiting = source_.waiting();
    told.ring_frames = waiting.frames + in_ring_frames_;
    told.ring_capacity_frames = waiting.capacity_frames;
    meter_.tell(told);
    return told;
  }

  // Once all of them run: reading the names is nothing for the loop.
  void name_threads() {
    std::vector<ThreadInfo> running = threads();
    running.resize(std::min(running.size(), SessionTelemetry::kMostThreads));
    telemetry_.threads = static_cast<std::int64_t>(running.size());
    for (std::size_t i = 0; i < running.size(); ++i) {
      const std::string& name = running[i].name;  // at most 15 characters
      std::copy(name.begin(), name.end(), telemetry_.thread_names[i].begin());
    }
  }

  Source& source_;
  pipeline::Pipeline& pipeline_;
  const std::vector<std::unique_ptr<Sink>>& sinks_;
  const SessionSpec& spec_;
  std::int64_t frame_samples_ = 0;
  std::int64_t block_frames_ = 0;
  double frames_per_second_ = 0;  // of wall time, when paced or live
  std::vector<float> block_;      // [block_frames_, streams, channels]
  SampleGuard guard_;
  std::int64_t stream_began_ = 0;  // input frames before the last reset
  std::int64_t output_began_ = 0;  // output frames before it
  std::int64_t marked_end_ = 0;    // behind the last output frame that a gap reaches
  bool is_filling_ = false;
  const pipeline::Clock& clock_;
  Instant start_;
  Instant last_told_;
  std::optional<std::string> device_failure_;  // of a live source's device, or a sink's
  std::vector<char> lost_sinks_;               // whose device failed; 0 or 1
  std::optional<std::string> budget_failure_;

  std::optional<Instant> last_captured_;  // when the block's last frame was
  std::int64_t unfed_frames_ = 0;         // of the block
  std::int64_t in_ring_frames_ = 0;
  std::chrono::nanoseconds processing_{0};  // of the last chunk, from the ring to the sinks
  std::chrono::nanoseconds latest_{0};      // the last chunk's whole way
  bool is_late_ = false;                    // it was
  bool skips_ = false;                      // until a frame can be on time
  std::int64_t skipped_frames_ = 0;         // this time
  LevelMeter meter_;
  SessionTelemetry telemetry_;
  pipeline::MissWatch watch_;
  HeldFrame held_;
  SessionReport report_;
};

}  // namespace

std::string describe(const SessionFailover& failover) {
  return describe(failover.how) + "; from frame " + std::to_string(failover.at_frame) + " on, " +
         pipeline::duration_text(failover.after) + " after the start";
}

SessionReport run_session(Source& source, pipeline::Pipeline& pipeline, const std::vector<std::unique_ptr<Sink>>& sinks,
                          const SessionSpec& spec) {
  return Session(source, pipeline, sinks, spec).run();
}

}  // namespace halotap::io
