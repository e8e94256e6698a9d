// The interface of a backend: a whole stack over many streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "halotap/kernels/annotations.hpp"
#include "halotap/kernels/stack.hpp"
#include "halotap/kernels/tensor_view.hpp"

namespace halotap::kernels {

// Arithmetic of the channel mix. Everything else is float32.
//   kFp32  what float32 gives
//   kTf32  at least 10 bits behind the binary point of each operand
//   kBf16  at least 7
//   kFp16  at least 10
// A backend may keep more bits than asked for.
enum class Precision { kFp32, kTf32, kBf16, kFp16 };

// Names as files and the command line spell them ("fp32"); nothing for another word. [any thread]
std::string_view to_string(Precision precision);
std::optional<Precision> parse_precision(std::string_view word);

// Nanoseconds of a clock that only goes forward. Compute reads no clock of its own.
using NowNs = std::int64_t (*)() noexcept;

// What a thread does between two looks at a device that has not answered yet.
using Pause = void (*)() noexcept;

// What a call launches on a CUDA device. One kernel a layer and one a stack differ in bits, within what the precision
// promises.
//   kLayers    a kernel a layer: the most frames a second, of long chunks and of many streams' equal ones
//   kLaunch    a kernel for the whole stack: a short way for a chunk of few streams. Stacks that do not fit, and
//              devices before Hopper, take a kernel a layer all the same; which is a matter of the stack, the
//              precision, the device and the build alone, and description() tells why.
//   kResident  that kernel stays on the device and is handed each call through memory: the shortest way, at the price
//              of the processors that it keeps. Refused where kLaunch would take a kernel a layer.
enum class CudaInvocation { kLayers, kLaunch, kResident };

// Likewise ("launch"). [any thread]
std::string_view to_string(CudaInvocation invocation);
std::optional<CudaInvocation> parse_cuda_invocation(std::string_view word);

// Why one kernel cannot run this stack in this precision, on any device, as in "layer head has softmax"; empty: from
// Hopper on one can. In every build. [any thread]
std::string one_kernel_refusal(const Stack& stack, Precision precision);

struct ExecutorSpec {
  std::int64_t max_streams = 1;        // slots, at least 1
  std::int64_t max_chunk_frames = 64;  // longest input of one process call, at least 1
  std::int64_t max_workers = 1;        // threads that may be inside process at once, at least 1
  Precision precision = Precision::kFp32;
  // By which a device that does not answer is noticed, 100 ms and what its work may take behind each call; null: it is
  // waited for, however long.
  NowNs now_ns = nullptr;
  Pause pause = nullptr;  // null: it looks again at once
  CudaInvocation cuda_invocation = CudaInvocation::kLayers;
  // kResident: what the kernel keeps, in clusters of up to 8 processors, or 16 where chunks may have more than 8
  // frames, at least 1. A stream has one at a time.
  std::int64_t resident_clusters = 1;
  // CUDA devices of one kind that share the streams and compute at once, by number; several only with kLayers. Empty:
  // the calling thread's current one.
  std::vector<int> cuda_devices = {};
};

// This build, this machine or its driver lacks what a backend needs. The message is one line that says what.
class BackendUnavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a stream's past holds before its first frame.
enum class FillKind {
  kZeros,      // nothing: every layer sees zeros before frame 0, as an offline run with zero padding does
  kHoldFirst,  // the stream's first frame, as if it had been arriving for ever
  kFrame,      // a given frame, as if it had been arriving for ever
};

struct Fill {
  FillKind kind = FillKind::kZeros;
  const float* frame = nullptr;  // kFrame: in_channels finite samples, read during reset only
};

// One stream's share of a process call.
struct SlotChunk {
  std::int64_t slot = 0;
  ConstFrameView input;             // [in_channels, frames], 0 to max_chunk_frames frames
  FrameView output;                 // [out_channels, room], room for at least the frames that will be emitted
  std::int64_t frames_emitted = 0;  // out: frames written at the start of `output`
};

// Runs a stack over independent streams, each in a slot with its own history.
//
// Over a stream's life, emitted = max(0, received - lookahead_frames), and output frame t has the same bits however
// the input was cut into chunks, whatever else runs beside, in whichever slot. A stream's output depends on its own
// input alone; a NaN or Inf reaches only outputs whose receptive field holds it.
//
// construct (allocates, packs; throws) -> any order of process, flush, reset (no allocation, no lock, no exception).
// Life-cycle checks are the engine's; here slots and views are trusted and asserted.
class Executor {
 public:
  virtual ~Executor() = default;

  // Puts the stream in `slot` at its beginning. Its output is then bit-identical to a fresh slot's. [worker]
  virtual void reset(std::int64_t slot, const Fill& fill) noexcept HALOTAP_NONBLOCKING = 0;

  // Advances every named slot (each at most once) by its input's frames. Input and output of one entry may be the same
  // memory with the same strides. Threads with different numbers `worker`, 0 to max_workers - 1, may call at once for
  // different slots. [worker]
  virtual void process(std::span<SlotChunk> chunks, std::int64_t worker) noexcept HALOTAP_NONBLOCKING = 0;

  // Ends the stream: writes its last min(received, lookahead_frames) output frames, as an offline run that ends here
  // gives them, and leaves the slot as reset with zeros. Returns the frames written. [worker]
  virtual std::int64_t flush(std::int64_t slot, FrameView output) noexcept HALOTAP_NONBLOCKING = 0;

  // Zeroed memory of the host for `count` samples, from a page's beginning on, for as long as the executor lives: also
  // once its device has failed. What a backend brings to a device it takes from there, and puts there, without a copy
  // on the way, where a view's frames lie side by side and, with one kernel a stack, its channels begin at whole 16
  // bytes; one frame of one stream is copied in any case. Once failure()
  // says that a device has not answered, that device writes nothing there but what it was writing just then. Throws
  // std::bad_alloc, for what no memory holds too (kMostSamples), and BackendUnavailable when a device refuses.
  // [control]
  static constexpr std::int64_t kMostSamples = std::int64_t{1} << 40;
  virtual float* allocate_samples(std::int64_t count);

  // Bytes of history one stream keeps. [any thread]
  virtual std::size_t state_bytes() const noexcept = 0;

  // What runs underneath, for reports: "cpu (AVX3)", "cuda (NVIDIA H200, one kernel a layer)", "cuda (NVIDIA H200, one
  // kernel a stack)", "cuda (NVIDIA H200, one kernel a layer: layer head has softmax)". [any thread]
  virtual std::string description() const = 0;

  // Null while all is well; else why the device stopped, for ever: process and flush then give no frames, and nothing
  // but destruction is of use, which waits for no device that did not answer. A backend without a device never fails.
  // [worker]
  virtual const char* failure() const noexcept { return nullptr; }

 private:
  struct FreePages {
    void operator()(float* memory) const noexcept;
  };
  std::vector<std::unique_ptr<float[], FreePages>> samples_;
};

// The CPU backend: float32 arithmetic, SIMD level chosen at run time, everything on the caller's thread. While it
// computes it sets the thread's floating-point mode (round to nearest, denormals are zero, nothing traps) and puts the
// caller's back. The environment variable HALOTAP_ISA (AVX3, AVX2, SSE4, ...) forces a SIMD level; levels differ in
// bits. Throws std::invalid_argument for a spec out of range, a precision other than fp32 or a level that is not there,
// std::bad_alloc when the state does not fit, and BackendUnavailable in a build without it. [control]
std::unique_ptr<Executor> make_cpu_executor(std::shared_ptr<const Stack> stack, const ExecutorSpec& spec);

// The CUDA backend: weights, state and arithmetic on spec.cuda_devices, one kernel a layer or one for the stack for all
// streams of a call (CudaInvocation). process returns when the results are in the caller's memory. One worker. Throws
// std::invalid_argument for a spec out of range or a layer that the kernels do not take, std::bad_alloc when the state
// does not fit into the device's or the host's memory, and BackendUnavailable in a build without it and where there is
// no driver, no device, or one that this build has no code for. The environment variable HALOTAP_INJECT_DEVICE_FAILURE
// (error:N, hang:N) makes its pass N fail, so that failure can be rehearsed. [control]
std::unique_ptr<Executor> make_cuda_executor(std::shared_ptr<const Stack> stack, const ExecutorSpec& spec);

// Whether that variable asks for a failure. Throws std::invalid_argument where it has another value, in every build and
// without a device: who asked for a failure is not to take an executor that has none for one that survived it.
// [control]
bool check_injected_failure();

}  // namespace halotap::kernels
