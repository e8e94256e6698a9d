// The engine for those who cannot wait for it: chunks are submitted on one side and results collected on the other.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "halotap/kernels/annotations.hpp"
#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/realtime_scope.hpp"
#include "halotap/pipeline/realtime_spec.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::pipeline {

struct AsyncSpec {
  EngineSpec engine = {};      // max_chunk_frames 1 to 2^20 here
  std::int64_t in_flight = 2;  // entries of a stream, 1 to 1024, that are submitted and not yet collected
  // A chunk's longest wait for others to share its call, whatever its deadline; 0 or more. With 0 an idle worker calls
  // at once, and what arrives during a call shares the next one: results come sooner, of smaller calls.
  std::chrono::nanoseconds max_wait = std::chrono::milliseconds(10);
  // What a call is to take at most, by the estimate; 0: no limit. A chunk that comes during a call waits for its end,
  // whatever its deadline, so who mixes urgent streams with many others sets this below the urgent ones' time. Without
  // effect where a call of one stream takes longer.
  std::chrono::nanoseconds max_call{0};
  // Kept free at least between the expected end of a call and the earliest deadline in it; 0 or more. It covers what is
  // not the call: a worker that the system wakes late, and taking in the chunks.
  std::chrono::nanoseconds margin = std::chrono::microseconds(50);
  // How long the worker and a collector that waits sleep between two looks, up to 0.1 s; 0: they never sleep.
  std::chrono::nanoseconds poll = std::chrono::microseconds(20);
  bool own_thread = true;        // halotap-async computes; false: whoever calls step does
  RealtimeSpec realtime = {};    // of that thread
  const Clock* clock = nullptr;  // what deadlines are told by, outliving the engine; null: the system's
};

// What a stream is asked for, in order.
enum class EntryKind : std::uint8_t {
  kChunk,  // advance by a chunk
  kSkip,   // nothing this time: the others are not to wait
  kReset,  // back to the beginning, as Engine::reset
  kFlush,  // the last frames, as Engine::flush
  kClose,  // the end of the stream
};

// What a collector is told.
struct AsyncResult {
  // Whether an entry is answered, and which: the entries of a stream count from 0, refused ones not. Without an answer
  // `sequence` is the number of the entry whose answer is next.
  bool answered = false;
  std::uint64_t sequence = 0;
  EntryKind kind = EntryKind::kChunk;
  Instant deadline = {};  // as submitted

  // The stream's newest frames, in the engine's memory: the entry's own when `fresh`, else those of an earlier one
  // (what a robot holds on to). No frames: there never were any, or the stream has ended. Valid until the stream's next
  // try_collect.
  ConstFrameView output = {};  // [out_channels, frames]
  bool fresh = false;
  std::uint64_t output_sequence = 0;  // of the entry that gave them
  Instant computed = {};              // when they were there to be collected
  std::chrono::nanoseconds age{0};    // since then
};

// Computes what is submitted to many streams, as many of them in one call of an Engine as their deadlines allow.
//
//     producer:  begin_chunk -> fill in place -> submit ┐                               ┌ try_collect :consumer
//                skip, reset, flush, close              ├─► worker: Engine::process ... ┤
//     of every stream its own, in its own time          ┘   for all that are ready      └ of every stream its own
//
// Order. A stream's entries take effect in the order in which they are submitted, and each is answered exactly once, in
// that order, with the next sequence number: a reset between two chunks lies between them. Streams do not wait for
// each other but to share a call. Output bits are those of the stream run alone through Engine, whatever shared a call.
//
// Room. A stream holds `in_flight` entries, from submit to try_collect. One more is refused with kStreamFull and
// counted; nothing is ever dropped. An engine allocates, all streams in one piece, planar, in the order [place, stream,
// channels, frames] and in floats
//
//     input   in_flight       x max_streams x in_channels  x max_chunk_frames
//     output  (in_flight + 1) x max_streams x out_channels x max(max_chunk_frames, lookahead_frames)
//
// the last of which is the output that a collector holds. Rows of more than two frames are rounded up to multiples of
// four, and a stream's part of a place to whole cache lines.
//
// Calls. The worker keeps an estimate T(n) of the time of a call of n streams, from the calls that it made, on the side
// of caution: of calls of about n streams the longest, which fades by a 64th a call. With n chunks ready and D the
// earliest of their deadlines a call begins as soon as every stream of the last call is ready again, was skipped or is
// closed; at D - T(n) - margin at the latest, and when one chunk has waited for max_wait. It takes all n if now + T(n)
// is not after D; else the k of the earliest deadlines (of equal ones those that wait longest; chunks without a
// deadline come last, but one that has waited for max_wait has the last place; the only place where the deadline that
// it takes it from can wait or is lost), for the largest k that meets D; and if none does, all: D is lost, and the
// largest call clears a backlog soonest. With max_call it never takes more than are expected to be done in that time. A
// stream is waited for until a call goes without it. The margin grows by how late the worker was at such calls, and
// fades as T does.
//
// Threads. Of every stream one thread at a time submits [producer] and one collects [consumer], different ones or the
// same, other ones for other streams. One thread at a time opens. Submitting and collecting are wait-free and allocate,
// lock and throw nothing; only try_collect with a deadline to come sleeps.
//
// Life cycle: construct -> open -> submit ... try_collect -> close -> try_collect until it has answered kClose -> ...
// -> stop -> destroy, when no thread is inside.
class AsyncEngine {
 public:
  // Prepares an engine, allocates for all streams and starts the worker. Throws what Engine::prepare throws, and
  // ConfigError for a spec out of range and for rings that do not fit in this machine's memory. [control]
  AsyncEngine(const Model& model, const AsyncSpec& spec);
  // Stops. [control]
  ~AsyncEngine();
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  // Ends the worker when it has finished its call; entries that are not answered by then never are. Whoever waits for
  // one is told kStopped when it looks next. What was answered can still be collected. [control]
  void stop() noexcept;

  // Opens a fresh stream. kNoFreeStream while as many as there is room for are open or closed but not collected to the
  // end. Neither allocates nor locks. [control]
  Status open(StreamId& stream) noexcept HALOTAP_NONBLOCKING;

  // Where the samples of the stream's next chunk go: `view` is [in_channels, frames], planar, to be written whole; it
  // is the producer's until submit. `frames`: 0 to max_chunk_frames. Begun again it begins anew. kStreamFull,
  // kChunkTooLong, kInvalidView (negative), kUnknownStream, kDeviceFailed, kStopped. [producer]
  Status begin_chunk(StreamId stream, std::int64_t frames, FrameView& view) noexcept HALOTAP_NONBLOCKING;
  // Hands over the chunk that was begun, to be computed by `deadline` (the default: none). Refusals of
  // begin_chunk, and kNoChunkBegun. [producer]
  Status submit(StreamId stream, Instant deadline = Instant::max()) noexcept HALOTAP_NONBLOCKING;
  // All that for samples that lie elsewhere: copies them. Refuses besides a view of other channels
  // (kChannelMismatch). [producer]
  Status submit(StreamId stream, ConstFrameView chunk, Instant deadline = Instant::max()) noexcept HALOTAP_NONBLOCKING;

  // The other entries. A chunk that was begun and not submitted is given up. kStreamFull, kUnknownStream, kStopped, and
  // all but close kDeviceFailed; a fill's frame is copied, and one that is not finite is the answer's status. Once
  // closed, a stream takes no more entries. [producer]
  Status skip(StreamId stream) noexcept HALOTAP_NONBLOCKING;
  Status reset(StreamId stream, const Fill& fill = {}) noexcept HALOTAP_NONBLOCKING;
  Status flush(StreamId stream) noexcept HALOTAP_NONBLOCKING;
  Status close(StreamId stream) noexcept HALOTAP_NONBLOCKING;

  // Waits for the answer to the stream's next entry, until `deadline` and not longer; one that has passed: looks once.
  //   kOk            it is there: result.sequence, and its frames when result.fresh
  //   kNotYet        it is not; result.output is what came before
  //   kDeviceFailed  the engine's device stopped computing (engine().failure() says why once stopped)
  //   kStopped       the engine was stopped
  //   others         the entry was refused: kInvalidFill
  // Answers come also after a failure, to the last entry. The answer to kClose ends the stream: it is then unknown, and
  // its slot another's. [consumer]
  Status try_collect(StreamId stream, Instant deadline, AsyncResult& result) noexcept HALOTAP_NONBLOCKING;

  // What a step did, and when there is something to do again if nothing more is submitted.
  struct Step {
    std::uint64_t entries = 0;      // answered
    Instant next = Instant::max();  // begin of the next call; the end of time: nothing waits
  };
  // Takes what was submitted and makes at most one call. Only without a thread of its own. [worker]
  Step step() noexcept HALOTAP_NONBLOCKING;

  // The engine inside, for its constants and counters. [any thread]
  const Engine& engine() const noexcept;
  // What the system granted of AsyncSpec::realtime, and why not the rest; the worker runs without that. [any thread]
  const RealtimeGrant& realtime_grant() const noexcept;
  // A consistent snapshot. [any thread]
  AsyncCounters counters() const noexcept;
  // Entries refused because their stream was full. [any thread]
  std::uint64_t refused_full() const noexcept;
  // Bytes of both rings and of what is kept beside them; the engine's state comes on top. [any thread]
  std::size_t ring_bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::pipeline
