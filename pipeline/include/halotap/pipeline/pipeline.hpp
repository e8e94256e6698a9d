// The pipeline: ring, chunker, engine and stages behind one door, for whoever delivers blocks and wants results.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "halotap/kernels/annotations.hpp"
#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/engine.hpp"
#include "halotap/pipeline/latency_term.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/stage.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::pipeline {

// Tags. Every public function's comment ends in who may call it:
//   [control]   the thread that sets up; may allocate, block and throw
//   [producer]  the one thread that delivers input; wait-free
//   [worker]    the one thread that computes; bounded work, no allocation, lock or exception of ours
//   [consumer]  the one thread that takes results; wait-free
//   [any thread]
// followed by the life-cycle state it needs, if any.

// The longest chunk of a pipeline, in frames. An engine takes longer ones: a whole recording offline.
inline constexpr std::int64_t kMaxChunkFrames = std::int64_t{1} << 20;

// How input is cut into chunks. Results do not depend on it.
struct ChunkSchedule {
  std::int64_t max_frames = 64;  // fixed chunks of this many frames, or the longest random one; 1 to kMaxChunkFrames
  std::optional<std::uint64_t> seed = std::nullopt;  // set: lengths drawn uniformly from 1 to max_frames
};

struct PipelineSpec {
  Backend backend = Backend::kAuto;
  Precision precision = Precision::kFp32;
  std::int64_t streams = 1;  // streams that arrive together, frame by frame, 1 to 2^20
  ChunkSchedule chunks = {};
  std::int64_t ring_capacity_frames = 1024;  // raised to the longest chunk when smaller
  std::int64_t worker_threads = 0;           // as in EngineSpec
  Fallback fallback = Fallback::kCpu;        // likewise
  std::int64_t auto_chunk_frames = 0;        // likewise
  CudaSpec cuda = {};                        // likewise
  std::vector<StageEntry> stages = {};       // what follows the engine, in order
  const Clock* clock = nullptr;              // what dates the steps, outliving the pipeline; null: the system's
};

// Takes blocks of any size on one side, gives results chunk by chunk on the other.
//
//     blocks -> ring (SPSC, drops the newest when full, counted) -> chunker -> engine -> stages -> output
//
// Samples are interleaved: input [frames, streams, in_channels], output [frames, streams, output().channels], channels
// fastest. One producer and one worker thread, which may be the same. After construction nothing allocates.
class Pipeline {
 public:
  // Throws what Engine::prepare throws, ConfigError for a spec out of range or a ring and chunks that do not fit in
  // this machine's memory, and, naming the stage, what its maker and its prepare throw as ConfigError. [control]
  Pipeline(const Model& model, const PipelineSpec& spec);
  ~Pipeline();

  // Offers `frames` (0 or more) frames; takes as many as fit from the front and returns how many. The rest is dropped
  // and counted. [producer]
  std::int64_t push(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING;
  // Frames that push would take now. Only the producer can make it smaller. [producer]
  std::int64_t writable_frames() const noexcept HALOTAP_NONBLOCKING;

  // What one step did.
  struct Step {
    std::int64_t frames_in = 0;      // taken from the ring; 0: the ring held less than a chunk, nothing was done
    std::int64_t frames_out = 0;     // in `samples`
    const float* samples = nullptr;  // [frames_out, streams, output().channels], valid until the next call
    Status status = Status::kOk;     // kDeviceFailed: nothing came out, and nothing will
    std::span<const StageEvent> events = {};  // of the stages, in order; valid until the next call
    Instant begun = {};                       // when it was taken from the ring,
    Instant computed = {};                    // left the engine,
    Instant staged = {};                      // and left the stages
  };
  // Frames that the ring lacks for the next chunk; 0: step has one. [worker]
  std::int64_t missing_frames() const noexcept HALOTAP_NONBLOCKING;
  // Processes one chunk if the ring holds it. [worker]
  Step step() noexcept HALOTAP_NONBLOCKING;
  // Ends the recording, one piece a call, once the producer has stopped: first the last, shorter chunks, then the
  // frames held back for lookahead and by stages. Nothing in and nothing out means done; the streams are then as new.
  // [worker]
  Step drain() noexcept HALOTAP_NONBLOCKING;

  // What comes out of the last stage; without stages, of the engine. [any thread]
  const StageFormat& output() const noexcept;
  // Frames that come out for so many frames of a whole recording. [any thread]
  std::int64_t output_frames(std::int64_t input_frames) const noexcept;
  // What a frame waits for here, in frames of the input: the rest of its chunk, the model's lookahead, every stage. All
  // of it is algorithmic. [any thread]
  const std::vector<LatencyTerm>& latency() const noexcept;

  // As its spec has it. [any thread]
  const Clock& clock() const noexcept HALOTAP_NONBLOCKING;
  // The engine inside, for its constants and counters. [any thread]
  const Engine& engine() const noexcept;
  // A consistent snapshot. [any thread]
  RingCounters ring_counters() const noexcept;
  // How many stages there are, whether any of them announced events, and what one from 0 on has done. [any thread]
  std::size_t stages() const noexcept;
  bool has_events() const noexcept;
  StageCounters stage_counters(std::size_t stage) const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::pipeline
