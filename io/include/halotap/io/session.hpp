// A session: source -> pipeline -> sinks, from the first frame to the last.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "halotap/io/handled_gap.hpp"
#include "halotap/io/realtime.hpp"
#include "halotap/io/recorder.hpp"
#include "halotap/io/sink.hpp"
#include "halotap/io/source.hpp"
#include "halotap/io/telemetry.hpp"
#include "halotap/pipeline/config.hpp"
#include "halotap/pipeline/latency.hpp"
#include "halotap/pipeline/latency_log.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "halotap/pipeline/realtime_spec.hpp"

namespace halotap::io {

// How the CPU went on where a card failed.
struct SessionFailover {
  pipeline::Failover how;
  std::int64_t at_frame = 0;          // the first input frame that the card was not done with
  std::chrono::nanoseconds after{0};  // since the session's start
};
// pipeline::describe, with where and when. [any thread]
std::string describe(const SessionFailover& failover);

struct SessionReport {
  std::int64_t frames_in = 0;       // a stream
  std::int64_t frames_out = 0;      // a stream, behind the stages
  std::int64_t frames_skipped = 0;  // a stream, thrown away by OnMiss::kSkipToLatest; not among frames_in
  std::int64_t skips = 0;           // how often
  std::int64_t frames_held = 0;     // among frames_out: the last good frame in place of late ones
  bool stopped = false;             // ended by `stop`
  std::int64_t gaps = 0;            // of a live source, and what was missing there, all together
  Gap missing;
  std::int64_t frames_filled = 0;    // of frames_in: zeros in the place of missing ones
  std::int64_t frames_marked = 0;    // of frames_out: they saw a gap, or what filled it
  pipeline::InvalidSamples invalid;  // of what was read, before any was replaced
  RecorderReport recording;
  RealtimeGrant realtime;
  std::optional<SessionFailover> failover;
  std::chrono::nanoseconds elapsed{0};
  pipeline::LatencyHistogram step_time;  // compute time of each full chunk, all streams of it
  pipeline::LatencyLog latency;          // of every chunk, the last one of a recording too, until the sinks have it
  pipeline::RingCounters ring;
  pipeline::EngineCounters engine;
  std::vector<pipeline::StageCounters> stages;
  std::vector<std::optional<PlayedCounters>> played;  // of each sink that is a device
};

struct SessionSpec {
  std::optional<double> speed;   // 1.0: as fast as the frames were made; none: as fast as possible
  std::int64_t max_frames = -1;  // end after this many frames of a stream, skipped ones too; -1: with the source
  const std::atomic<bool>* stop = nullptr;        // set from anywhere (a signal handler too): end cleanly now
  std::function<void(std::int64_t)> on_progress;  // input frames so far, a few times a second at most
  // What becomes of gaps and invalid samples; gaps of more frames than these are not filled.
  pipeline::InputPolicy input = {};
  std::int64_t max_fill_frames = 0;
  std::function<void(const HandledGap&)> on_gap;  // of a live source, or left by skipped frames
  pipeline::LatencyConfig latency;                // of a live source or a paced recording
  PublishedTelemetry* telemetry = nullptr;        // what happens, for other threads to read
  Recorder* recorder = nullptr;  // gets input and output too; begun when all is checked, finished with the sinks
  // Of the caller's thread, from the first frame to the last; then it is as it was.
  pipeline::RealtimeSpec realtime = {};
  std::function<void(const std::string&)> on_note = {};  // one line: what the system refused, that a card failed
  // Gets the report of a session that a device's failure or OnMiss::kStop ends, before that is thrown.
  std::optional<SessionReport>* failed = nullptr;
};

// Runs `source` through `pipeline` into every sink and finishes the sinks. Everything runs on the caller's thread: read
// a block, push what the ring takes, step, write. At the source's end, at max_frames and at a stop the pipeline is
// drained: every frame pushed comes out. At a gap of a live source that resets it is drained too, and begins again with
// the next frame as a fresh stream: no output has frames from both sides of such a gap in its receptive field. Where
// the stream goes on across a gap, sinks and on_gap are told which output frames it reaches. Sinks are given the
// stages' events between the frames.
//
// Where capture has instants (a live source's, or a paced recording's frames' due times) every chunk's way is measured
// from there, and `latency` is kept to. While chunks are late for long enough (MissWatch), every late one
//   kSkipToLatest: has what waits in the source and cannot be on time any more thrown away; the stream begins again as
//                  behind a gap, in the recorder's next file too;
//   kHoldLast:     is computed; in place of each of its frames the sinks get the last one that they got as it was;
//   kStop:         ends the session as a failed device does.
//
// A live source sets its own pace. When its device fails, or a sink's, the session ends as at a stop, finishes the
// other sinks, fills in `failed` and then throws what source or sink threw: hours of results are not lost with a plug.
//
// Throws ConfigError when the source has other streams or channels than the pipeline, a speed is not positive, is given
// for a source without a rate or where a device sets the pace, a budget where capture has no instants, or source and
// sink are two devices, whose clocks drift apart; DeviceError when a card stops computing and nothing goes on for it,
// BudgetError at a kStop, and whatever sources, sinks and recorder throw. No sink is finished before all have taken
// every frame, so nothing is then left under a sink's final name once the sinks are destroyed; only a sink that fails
// to finish leaves those before it, which are whole. [control]
SessionReport run_session(Source& source, pipeline::Pipeline& pipeline, const std::vector<std::unique_ptr<Sink>>& sinks,
                          const SessionSpec& spec);

}  // namespace halotap::io
