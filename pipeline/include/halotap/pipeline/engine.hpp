// The engine: many streams over one model on one backend.
#pragma once

#include <chrono>
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
#include "halotap/pipeline/clock.hpp"
#include "halotap/pipeline/errors.hpp"
#include "halotap/pipeline/model.hpp"
#include "halotap/pipeline/telemetry.hpp"

namespace halotap::pipeline {

using kernels::ConstFrameView;
using kernels::CudaInvocation;
using kernels::Fill;
using kernels::FillKind;
using kernels::FrameView;
using kernels::parse_cuda_invocation;
using kernels::parse_precision;
using kernels::Precision;
using kernels::to_string;

// kAuto: the one whose p99.9 is lower for a call with a chunk of every stream, timed at prepare in a quarter of a
// second and remembered for the machine (docs/command-line.md). Nothing is timed where there is no card that can run
// the model, for a precision that only it has, for worker threads, which only the CPU has, and for fewer than 100,000
// multiply-accumulates a call, which are the CPU's. Engine::choice says which and why.
enum class Backend { kAuto, kCpu, kCuda };

// Names as files and the command line spell them ("auto"); nothing for another word. [any thread]
std::string_view to_string(Backend backend);
std::optional<Backend> parse_backend(std::string_view word);

// What becomes of the streams when a card fails: the CPU goes on with them, where the build has it, or the engine stops
// and says kDeviceFailed.
enum class Fallback { kCpu, kNone };

// Likewise ("cpu", "none"). [any thread]
std::string_view to_string(Fallback fallback);
std::optional<Fallback> parse_fallback(std::string_view word);

// How the thread that calls process waits for a card.
//   kSpin   it looks all the time: the shortest wait, and a processor of its own
//   kYield  it lets others run between two looks
//   kBlock  it sleeps between two looks, some 50 us: for calls that take long
enum class Wait { kSpin, kYield, kBlock };

// Likewise ("spin"). [any thread]
std::string_view to_string(Wait wait);
std::optional<Wait> parse_wait(std::string_view word);

inline constexpr std::int64_t kMaxResidentClusters = std::int64_t{1} << 20;

// How a card is asked; the CPU has no use for it. kLaunch is for few streams of short chunks; kLayers does more frames
// a second of many, and of long ones.
struct CudaSpec {
  CudaInvocation invocation = CudaInvocation::kLaunch;
  Wait wait = Wait::kSpin;
  // kResident: what it keeps, each up to 16 processors of the card; 1 to kMaxResidentClusters
  std::int64_t resident_clusters = 1;
  friend bool operator==(const CudaSpec&, const CudaSpec&) = default;
};

struct EngineSpec {
  Backend backend = Backend::kAuto;
  Precision precision = Precision::kFp32;
  std::int64_t max_streams = 1;        // 1 to 2^20
  std::int64_t max_chunk_frames = 64;  // frames, 1 to 2^40: longest input of one process entry
  std::int64_t worker_threads = 0;     // 0 to 256 threads that help process with many entries; 0: the caller's alone
  std::vector<int> worker_cpus = {};   // the processor each worker thread stays on; empty: wherever the system puts it
  // Of the cuda backend. kCpu costs memory of the host: the CPU's state of every stream, and of its input the last
  // receptive_field - 1 frames and a chunk's (of long chunks a piece: 2^24 samples of all streams, or 64 frames).
  Fallback fallback = Fallback::kCpu;
  // What kAuto times, at most 2^20; 0: max_chunk_frames. Engines that are to compute the same bits, whatever chunks
  // they are given, have it in common.
  std::int64_t auto_chunk_frames = 0;
  CudaSpec cuda = {};
  // Cards of one kind that share the streams and compute at once, by number; several only with kLayers. Empty: the
  // calling thread's current one.
  std::vector<int> cuda_devices = {};
};

// Times of one call, with a chunk of every stream, on either backend.
struct BackendFigures {
  std::chrono::nanoseconds cpu_p999{0};
  std::chrono::nanoseconds cuda_p999{0};
  std::int64_t calls = 0;      // of each, of which these are the p99.9
  bool is_remembered = false;  // found by an earlier prepare, of this process or another
  // Others had this thread's processor for more than a hundredth of the time; then no other process remembers it.
  bool is_disturbed = false;
};

// Why an engine has its backend.
struct BackendChoice {
  std::string reason;                                    // in one line
  std::optional<BackendFigures> figures = std::nullopt;  // where kAuto went by them
  bool is_without_card = false;                          // kAuto found a card, but could not use it
};

// How the CPU went on where a card failed.
struct Failover {
  std::string from;  // what failed, and what goes on, as Engine::device has them
  std::string to;
  std::string reason;                        // in one line
  Precision precision = Precision::kFp32;    // until then; the CPU's is fp32
  Instant at = {};                           // when it was noticed
  std::int64_t frames_before = 0;            // of each chunk of that call, those that the device had done
  std::int64_t streams = 0;                  // that had a past, and were given it on the CPU,
  std::chrono::nanoseconds rebuild_time{0};  // which took this long
};

// "cuda (NVIDIA H200) failed: no answer within 100 ms; cpu (AVX3) goes on, with 3 streams rebuilt in 210 us". [any
// thread]
std::string describe(const Failover& failover);

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
  // fit in memory, a processor that no thread may be put on or, whatever the backend, a failure that
  // HALOTAP_INJECT_DEVICE_FAILURE asks for in words that nobody knows, and DeviceError for a backend that is not there:
  // not in this build, or without a driver or a card. [control]
  void prepare(const Model& model, const EngineSpec& spec);

  // Zeroed memory of the host for `count` samples, 1 to 2^40, until the next prepare or the engine's end. A card reads
  // input and writes output there itself, where a channel's frames lie side by side and, with one kernel a stack,
  // channels begin at whole 16 bytes; one frame of one stream, and what lies elsewhere, is copied on the way. Throws
  // ConfigError for a count out of range, std::bad_alloc when it does not fit in memory and DeviceError when the card
  // refuses. [control, prepared]
  float* allocate_samples(std::int64_t count);

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
  // last entry. When a card fails, its streams are rebuilt on the CPU within the call, which goes on as if nothing had
  // been: nothing is lost or doubled, and later bits are those of a CPU's run from the beginning. Without a fallback
  // every call from then on returns kDeviceFailed. [worker, prepared]
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
  // Bytes of history one stream keeps: on the card too, and for a fallback. [any thread, prepared]
  std::size_t state_bytes() const noexcept;
  // What computes: kCpu or kCuda. [any thread, prepared]
  Backend backend() const noexcept;
  // What runs underneath: "cpu (AVX3)", "cuda (NVIDIA H200, one kernel a layer)". [any thread, prepared]
  std::string device() const;
  // Why prepare took the backend that it took. [any thread, prepared]
  const BackendChoice& choice() const noexcept;
  // Null until a card has failed and the CPU gone on; then how, until the next prepare. [any thread, prepared]
  const Failover* failover() const noexcept;
  // Which device stopped computing and why, in one line, after a kDeviceFailed; empty before: "cuda (NVIDIA H200)
  // failed: no answer within 100 ms". [worker, prepared]
  std::string failure() const;

  // A consistent snapshot. Lock-free: it retries while the worker is publishing. [any thread]
  EngineCounters counters() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace halotap::pipeline
