// The engine: many streams over one model on one backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halotap/kernels/annotations.hpp"
#include "halotap/kernels/executor.hpp"
#include "halotap/kernels/tensor_view.hpp"
#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::pipeline {

using kernels::ConstFrameView;
using kernels::CudaInvocation;
using kernels::Fill;
using kernels::FillKind;
using kernels::FrameView;
using kernels::parse_precision;
using kernels::Precision;
using kernels::to_string;

// kAuto: CUDA where there is a card that can run the model and enough work for it: ten million multiply-accumulates a
// frame of all streams, or a precision that only it has. Else the CPU, and when worker threads are asked for: only it
// has them. Engine::device says what was taken.
enum class Backend { kAuto, kCpu, kCuda };

// Names as files and the command line spell them ("auto"); nothing for another word. [any thread]
std::string_view to_string(Backend backend);
std::optional<Backend> parse_backend(std::string_view word);

// How the thread that calls process waits for a card.
//   kSpin   it looks all the time: the shortest wait, and a processor of its own
//   kYield  it lets others run between two looks
//   kBlock  it sleeps between two looks, some 50 us: for calls that take long
enum class Wait { kSpin, kYield, kBlock };

struct EngineSpec {
  Backend backend = Backend::kAuto;
  Precision precision = Precision::kFp32;
  std::int64_t max_streams = 1;        // 1 to 2^20
  std::int64_t max_chunk_frames = 64;  // frames, 1 to 2^40: longest input of one process entry
  std::int64_t worker_threads = 0;     // 0 to 256 threads that help process with many entries; 0: the caller's alone
  std::vector<int> worker_cpus = {};   // the processor each worker thread stays on; empty: wherever the system puts it
  Wait wait = Wait::kSpin;             // CUDA's alone, as what follows
  CudaInvocation cuda_invocation = CudaInvocation::kLaunch;
  std::int64_t resident_clusters = 1;  // at least 1; kResident: what it keeps, each up to 8 processors of the card
};

// Names one open stream. A closed stream's id is never valid again, whoever holds its slot.
struct StreamId {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;  // 0 is never open
  friend bool operator==(StreamId, StreamId) = default;
};

// One stream's share of a process call.
struct StreamChunk {
  StreamId stream;
  ConstFrameView input;             // [in_channels, frames], 0 to max_chunk_frames frames
  FrameView output;                 // [out_channels, room]; may be the input's memory with the input's strides
  std::int64_t frames_emitted = 0;  // out
  Status status = Status::kOk;      // out; on any other the stream has not advanced
};

// Runs one model over independent streams.
//
//     emitted(stream) = max(0, received(stream) - lookahead_frames())
//
// Output frame t of a stream has the same bits however its input was cut into chunks, whatever streams run beside it
// and whichever slot it has. Views are `[channels, frames]` with free strides.
//
// Life cycle: construct -> prepare -> any order of open, process, flush, reset, close. One thread at a time calls
// open, close, reset, process and flush [worker]; they allocate, lock and throw nothing. Constants and counters may be
// read from any thread once prepared.
class Engine {
 public:
  Engine();
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Allocates state for all streams, packs the weights and warms up. Streams of an earlier prepare are gone. Throws
  // ConfigError for a spec out of range, a precision or a layer that the backend does not take, a state that does not
  // fit in memory or a processor that no thread may be put on, and DeviceError for a backend that is not there: not in
  // this build, or without a driver or a card. [control]
  void prepare(const Model& model, const EngineSpec& spec);

  // Opens a fresh stream with zeros before its first frame. [worker, prepared]
  Status open(StreamId& stream) noexcept HALOTAP_NONBLOCKING;
  // Ends a stream; frames waiting for their lookahead are discarded and counted. [worker, prepared]
  Status close(StreamId stream) noexcept HALOTAP_NONBLOCKING;
  // Puts a stream back at its beginning; frames waiting for their lookahead are discarded and counted. With a fill
  // other than zeros the stream starts as if that frame had been arriving for ever. [worker, prepared]
  Status reset(StreamId stream, const Fill& fill = {}) noexcept HALOTAP_NONBLOCKING;
  // Advances any subset of the streams, each by its own number of frames. An entry that is refused says so in its
  // status and leaves its stream alone; the others run. Returns the first status that is not kOk. With worker threads
  // the entries are shared out among them and the caller, who may have to wake them (a system call) and waits for the
  // last entry. Once a device has failed every call returns kDeviceFailed. [worker, prepared]
  Status process(std::span<StreamChunk> chunks) noexcept HALOTAP_NONBLOCKING;
  // Emits the stream's last min(received, lookahead_frames()) frames exactly as an offline run ends, and leaves the
  // stream as reset. [worker, prepared]
  Status flush(StreamId stream, FrameView output, std::int64_t& frames_emitted) noexcept HALOTAP_NONBLOCKING;

  // Frames the engine holds back: lookahead_frames(). [any thread, prepared]
  std::int64_t latency_frames() const noexcept;
  std::int64_t lookahead_frames() const noexcept;
  std::int64_t receptive_field() const noexcept;
  std::int64_t in_channels() const noexcept;
  std::int64_t out_channels() const noexcept;
  // Bytes of history one stream keeps. [any thread, prepared]
  std::size_t state_bytes() const noexcept;
  // What was taken: kCpu or kCuda. [any thread, prepared]
  Backend backend() const noexcept;
  // What runs underneath: "cpu (AVX3)", "cuda (NVIDIA H200), one kernel a stack". [any thread, prepared]
  std::string device() const;
  // Why the device stopped computing, in one line, after a kDeviceFailed; empty before. [worker, prepared]
  std::string failure() const;

  // A consistent snapshot. Lock-free: it retries while the worker is publishing. [any thread]
  EngineCounters counters() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::pipeline
