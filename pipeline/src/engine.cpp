#include "halotap/pipeline/engine.hpp"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "chosen_executor.hpp"
#include "failover_executor.hpp"
#include "halotap/kernels/names.hpp"
#include "halotap/pipeline/published.hpp"
#include "memory.hpp"
#include "worker_pool.hpp"

namespace halotap::pipeline {
namespace {

constexpr std::int64_t kMaxStreams = std::int64_t{1} << 20;
constexpr std::int64_t kMaxChunkFrames = std::int64_t{1} << 40;
constexpr std::int64_t kMaxWorkerThreads = 256;
constexpr std::int64_t kMaxAutoChunkFrames = std::int64_t{1} << 20;

constexpr std::array kBackendNames{std::pair{Backend::kAuto, std::string_view{"auto"}},
                                   std::pair{Backend::kCpu, std::string_view{"cpu"}},
                                   std::pair{Backend::kCuda, std::string_view{"cuda"}}};
constexpr std::array kFallbackNames{std::pair{Fallback::kCpu, std::string_view{"cpu"}},
                                    std::pair{Fallback::kNone, std::string_view{"none"}}};
constexpr std::array kWaitNames{std::pair{Wait::kSpin, std::string_view{"spin"}},
                                std::pair{Wait::kYield, std::string_view{"yield"}},
                                std::pair{Wait::kBlock, std::string_view{"block"}}};

void require_range(const char* field, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) {
    throw ConfigError(std::string(field) + ": expected 1 to " + std::to_string(most) + ", got " +
                      std::to_string(value));
  }
}

bool is_sound(const ConstFrameView& view) {
  return view.frames >= 0 && view.channels >= 0 && (view.frames == 0 || view.data != nullptr);
}

}  // namespace

std::string_view to_string(Backend backend) { return kernels::name_of(kBackendNames, backend); }
std::optional<Backend> parse_backend(std::string_view word) { return kernels::value_of(kBackendNames, word); }
std::string_view to_string(Fallback fallback) { return kernels::name_of(kFallbackNames, fallback); }
std::optional<Fallback> parse_fallback(std::string_view word) { return kernels::value_of(kFallbackNames, word); }
std::string_view to_string(Wait wait) { return kernels::name_of(kWaitNames, wait); }
std::optional<Wait> parse_wait(std::string_view word) { return kernels::value_of(kWaitNames, word); }

std::string describe(const Failover& failover) {
  std::string text = failover.from + " failed: " + failover.reason + "; " + failover.to + " goes on";
  if (failover.precision != Precision::kFp32) {
    text += " in fp32 instead of " + std::string(to_string(failover.precision));
  }
  return text + ", with " + std::to_string(failover.streams) + (failover.streams == 1 ? " stream" : " streams") +
         " rebuilt in " + duration_text(failover.rebuild_time);
}

struct Engine::Impl {
  struct Slot {
    std::uint32_t generation = 0;  // counts the streams that have had the slot; odd while one is open
    std::int64_t received = 0;     // frames since the stream's beginning
    std::uint64_t last_call = 0;   // the latest process call that named the slot
  };

  Published<EngineCounters> published;
  EngineCounters counters;

  std::shared_ptr<const kernels::Stack> stack;
  Backend backend = Backend::kAuto;
  BackendChoice choice;
  std::unique_ptr<kernels::Executor> executor;
  const FailoverExecutor* fallback = nullptr;  // the executor, when it has one
  std::unique_ptr<WorkerPool> workers;         // none: the caller's thread computes
  std::int64_t max_chunk_frames = 0;
  std::vector<Slot> slots;
  std::vector<std::uint32_t> free_slots;   // reserved for all, used as a stack
  std::vector<kernels::SlotChunk> batch;   // reserved for all
  std::vector<std::size_t> batch_entries;  // which entry of the call each of `batch` is
  std::uint64_t calls = 0;

  Slot* find(StreamId stream) noexcept {
    const bool open =
        stream.slot < slots.size() && stream.generation % 2 == 1 && slots[stream.slot].generation == stream.generation;
    return open ? &slots[stream.slot] : nullptr;
  }

  std::int64_t in_flight(const Slot& slot) const noexcept { return std::min(slot.received, stack->lookahead_frames()); }

  // Puts the stream back at its beginning and counts what it still held.
  void restart(StreamId stream, const Fill& fill) noexcept {
    Slot& slot = slots[stream.slot];
    const auto held = static_cast<std::uint64_t>(in_flight(slot));
    counters.frames_discarded += held;
    counters.frames_in_flight -= held;
    slot.received = 0;
    executor->reset(stream.slot, fill);
  }

  bool is_valid(const Fill& fill) const noexcept {
    if (fill.kind == FillKind::kZeros || fill.kind == FillKind::kHoldFirst) return true;
    return fill.kind == FillKind::kFrame && fill.frame != nullptr &&
           std::all_of(fill.frame, fill.frame + stack->in_channels(), [](float x) { return std::isfinite(x); });
  }

  // One entry is not worth waking anybody for.
  void compute_batch() noexcept {
    if (!workers || batch.size() < 2) {
      executor->process(batch, 0);
      return;
    }
    workers->run(
        batch.size(),
        [](void* self, std::size_t entry, std::int64_t worker) noexcept {
          Impl& impl = *static_cast<Impl*>(self);
          impl.executor->process({&impl.batch[entry], 1}, worker);
        },
        this);
  }

  void count_failover() noexcept {
    if (fallback != nullptr && fallback->failover() != nullptr) counters.failovers = 1;
  }

  Status check(const StreamChunk& chunk) noexcept {
    Slot* slot = find(chunk.stream);
    if (slot == nullptr) return Status::kUnknownStream;
    if (slot->last_call == calls) return Status::kRepeatedStream;
    if (!is_sound(chunk.input) || !is_sound(chunk.output)) return Status::kInvalidView;
    if (chunk.input.channels != stack->in_channels()) return Status::kChannelMismatch;
    if (chunk.output.channels != stack->out_channels()) return Status::kChannelMismatch;
    if (chunk.input.frames > max_chunk_frames) return Status::kChunkTooLong;
    if (chunk.output.frames < frames_to_emit(*slot, chunk.input.frames)) return Status::kOutputTooShort;
    return Status::kOk;
  }

  std::int64_t frames_to_emit(const Slot& slot, std::int64_t frames) const noexcept {
    const std::int64_t lookahead = stack->lookahead_frames();
    return std::max<std::int64_t>(slot.received + frames - lookahead, 0) -
           std::max<std::int64_t>(slot.received - lookahead, 0);
  }
};

Engine::Engine() : impl_(std::make_unique<Impl>()) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

void Engine::prepare(const Model& model, const EngineSpec& spec) {
  if (!model.stack) throw ConfigError("model: expected one with a stack, got one without");
  require_range("max_streams", spec.max_streams, kMaxStreams);
  require_range("max_chunk_frames", spec.max_chunk_frames, kMaxChunkFrames);
  require_range("resident_clusters", spec.cuda.resident_clusters, kMaxResidentClusters);
  if (spec.auto_chunk_frames != 0) require_range("auto_chunk_frames", spec.auto_chunk_frames, kMaxAutoChunkFrames);
  if (spec.worker_threads < 0 || spec.worker_threads > kMaxWorkerThreads) {
    throw ConfigError("worker_threads: expected 0 to " + std::to_string(kMaxWorkerThreads) + ", got " +
                      std::to_string(spec.worker_threads));
  }
  if (!spec.worker_cpus.empty() && std::ssize(spec.worker_cpus) != spec.worker_threads) {
    throw ConfigError("worker_cpus: expected none or one a worker thread (" + std::to_string(spec.worker_threads) +
                      "), got " + std::to_string(spec.worker_cpus.size()));
  }
  if (spec.backend == Backend::kCuda && spec.worker_threads > 0) {
    throw ConfigError("worker_threads: the cuda backend computes on the device, expected 0, got " +
                      std::to_string(spec.worker_threads));
  }

  // Said here too, before auto takes it for a reason to be content with the CPU.
  if (spec.backend != Backend::kCpu && spec.cuda_devices.size() > 1 &&
      spec.cuda.invocation != CudaInvocation::kLayers) {
    throw ConfigError("cuda_devices: expected one where cuda.invocation is not layers, got " +
                      std::to_string(spec.cuda_devices.size()));
  }

  auto prepared = std::make_unique<Impl>();
  const auto streams = static_cast<std::size_t>(spec.max_streams);
  try {
    prepared->stack = model.stack;
    ChosenExecutor chosen = choose_executor(model.stack, spec);
    prepared->backend = chosen.backend;
    prepared->executor = std::move(chosen.executor);
    prepared->fallback = chosen.fallback;
    prepared->choice = std::move(chosen.choice);
    if (spec.worker_threads > 0)
      prepared->workers = std::make_unique<WorkerPool>(spec.worker_threads, spec.worker_cpus);
    prepared->max_chunk_frames = spec.max_chunk_frames;
    prepared->slots.resize(streams);
    prepared->batch.reserve(streams);
    prepared->batch_entries.reserve(streams);
    prepared->free_slots.reserve(streams);
  } catch (const std::bad_alloc&) {
    throw ConfigError("the state of " + std::to_string(spec.max_streams) + " streams of model '" + model.name +
                      "' (receptive field " + std::to_string(model.stack->receptive_field()) +
                      " frames) does not fit in memory" +
                      (spec.backend == Backend::kCuda && spec.fallback != Fallback::kNone
                           ? "; fallback: none keeps nothing for the CPU"
                           : ""));
  } catch (const std::invalid_argument& error) {
    throw ConfigError(error.what());
  } catch (const kernels::BackendUnavailable& error) {
    throw DeviceError(error.what());
  }
  // Generations go on from those of an earlier prepare: the ids of its streams stay unknown.
  std::uint32_t generation = 0;
  for (const Impl::Slot& slot : impl_->slots) generation = std::max(generation, slot.generation);
  for (Impl::Slot& slot : prepared->slots) slot.generation = generation + generation % 2;
  for (std::int64_t slot = spec.max_streams - 1; slot >= 0; --slot) {
    prepared->free_slots.push_back(static_cast<std::uint32_t>(slot));
  }

  // Warm-up: one frame through the first slot brings code and weights near.
  const std::int64_t inputs = model.stack->in_channels();
  const std::int64_t outputs = model.stack->out_channels();
  const std::vector<float> frame(static_cast<std::size_t>(inputs), 0.0f);
  std::vector<float> result(static_cast<std::size_t>(outputs));
  kernels::SlotChunk chunk{0, kernels::interleaved(frame.data(), inputs, 1),
                           kernels::interleaved(result.data(), outputs, 1), 0};
  prepared->executor->process({&chunk, 1}, 0);
  const char* failure = prepared->executor->failure();
  std::string name = prepared->executor->description();
  if (prepared->fallback != nullptr && prepared->fallback->failover() != nullptr) {
    failure = prepared->fallback->failover()->reason.c_str();
    name = prepared->fallback->failover()->from;
  }
  if (failure != nullptr) throw DeviceError(name + " failed on the first frame: " + failure);
  prepared->executor->reset(0, Fill{});
  impl_ = std::move(prepared);
}

float* Engine::allocate_samples(std::int64_t count) {
  assert(impl_->executor);
  require_range("samples", count, kernels::Executor::kMostSamples);
  if (static_cast<double>(count) * sizeof(float) > memory_bytes()) {
    throw ConfigError("samples: expected no more than this machine's memory holds, got " + std::to_string(count));
  }
  try {
    return impl_->executor->allocate_samples(count);
  } catch (const kernels::BackendUnavailable& error) {
    throw DeviceError(error.what());
  }
}

Status Engine::open(StreamId& stream) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (!impl.executor) return Status::kNotPrepared;
  if (impl.free_slots.empty()) {
    ++impl.counters.calls_refused;
    impl.published.store(impl.counters);
    return Status::kNoFreeStream;
  }
  const std::uint32_t index = impl.free_slots.back();
  impl.free_slots.pop_back();
  Impl::Slot& slot = impl.slots[index];
  ++slot.generation;
  slot.received = 0;
  impl.executor->reset(index, Fill{});
  stream = {index, slot.generation};
  ++impl.counters.streams_open;
  impl.published.store(impl.counters);
  return Status::kOk;
}

Status Engine::close(StreamId stream) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (!impl.executor) return Status::kNotPrepared;
  Status status = Status::kOk;
  if (Impl::Slot* slot = impl.find(stream)) {
    impl.restart(stream, Fill{});
    ++slot->generation;
    impl.free_slots.push_back(stream.slot);
    --impl.counters.streams_open;
  } else {
    ++impl.counters.calls_refused;
    status = Status::kUnknownStream;
  }
  impl.published.store(impl.counters);
  return status;
}

Status Engine::reset(StreamId stream, const Fill& fill) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (!impl.executor) return Status::kNotPrepared;
  Status status = Status::kOk;
  if (impl.find(stream) == nullptr) {
    status = Status::kUnknownStream;
  } else if (!impl.is_valid(fill)) {
    status = Status::kInvalidFill;
  }
  if (status != Status::kOk) {
    ++impl.counters.calls_refused;
  } else {
    impl.restart(stream, fill);
  }
  impl.published.store(impl.counters);
  return status;
}

Status Engine::process(std::span<StreamChunk> chunks) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (!impl.executor) return Status::kNotPrepared;
  ++impl.calls;
  impl.batch.clear();
  impl.batch_entries.clear();
  Status first_refusal = Status::kOk;
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    StreamChunk& chunk = chunks[i];
    chunk.frames_emitted = 0;
    chunk.status = impl.check(chunk);
    if (chunk.status != Status::kOk) {
      ++impl.counters.calls_refused;
      if (first_refusal == Status::kOk) first_refusal = chunk.status;
      continue;
    }
    impl.slots[chunk.stream.slot].last_call = impl.calls;
    impl.batch.push_back({chunk.stream.slot, chunk.input, chunk.output, 0});
    impl.batch_entries.push_back(i);
  }

  impl.compute_batch();
  impl.count_failover();
  if (impl.executor->failure() != nullptr) {
    for (const std::size_t entry : impl.batch_entries) chunks[entry].status = Status::kDeviceFailed;
    impl.counters.calls_refused += impl.batch_entries.size();
    impl.published.store(impl.counters);
    return Status::kDeviceFailed;
  }

  for (std::size_t i = 0; i < impl.batch.size(); ++i) {
    const kernels::SlotChunk& done = impl.batch[i];
    Impl::Slot& slot = impl.slots[static_cast<std::size_t>(done.slot)];
    const std::int64_t held_before = impl.in_flight(slot);
    slot.received += done.input.frames;
    impl.counters.frames_in += static_cast<std::uint64_t>(done.input.frames);
    impl.counters.frames_out += static_cast<std::uint64_t>(done.frames_emitted);
    impl.counters.frames_in_flight += static_cast<std::uint64_t>(impl.in_flight(slot) - held_before);
    ++impl.counters.chunks;
    chunks[impl.batch_entries[i]].frames_emitted = done.frames_emitted;
  }
  impl.published.store(impl.counters);
  return first_refusal;
}

Status Engine::flush(StreamId stream, FrameView output, std::int64_t& frames_emitted) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  frames_emitted = 0;
  if (!impl.executor) return Status::kNotPrepared;
  Impl::Slot* slot = impl.find(stream);
  Status status = Status::kOk;
  if (slot == nullptr) {
    status = Status::kUnknownStream;
  } else if (!is_sound(output)) {
    status = Status::kInvalidView;
  } else if (output.channels != impl.stack->out_channels()) {
    status = Status::kChannelMismatch;
  } else if (output.frames < impl.in_flight(*slot)) {
    status = Status::kOutputTooShort;
  }
  if (status == Status::kOk) {
    frames_emitted = impl.executor->flush(stream.slot, output);
    impl.count_failover();
    if (impl.executor->failure() != nullptr) status = Status::kDeviceFailed;
  }
  if (status != Status::kOk) {
    ++impl.counters.calls_refused;
  } else {
    impl.counters.frames_out += static_cast<std::uint64_t>(frames_emitted);
    impl.counters.frames_in_flight -= static_cast<std::uint64_t>(frames_emitted);
    slot->received = 0;
  }
  impl.published.store(impl.counters);
  return status;
}

std::int64_t Engine::latency_frames() const noexcept { return lookahead_frames(); }
std::int64_t Engine::lookahead_frames() const noexcept { return impl_->stack ? impl_->stack->lookahead_frames() : 0; }
std::int64_t Engine::receptive_field() const noexcept { return impl_->stack ? impl_->stack->receptive_field() : 0; }
std::int64_t Engine::in_channels() const noexcept { return impl_->stack ? impl_->stack->in_channels() : 0; }
std::int64_t Engine::out_channels() const noexcept { return impl_->stack ? impl_->stack->out_channels() : 0; }
std::size_t Engine::state_bytes() const noexcept { return impl_->executor ? impl_->executor->state_bytes() : 0; }
Backend Engine::backend() const noexcept { return failover() != nullptr ? Backend::kCpu : impl_->backend; }
const BackendChoice& Engine::choice() const noexcept { return impl_->choice; }
const Failover* Engine::failover() const noexcept {
  return impl_->fallback != nullptr ? impl_->fallback->failover() : nullptr;
}
std::string Engine::device() const { return impl_->executor ? impl_->executor->description() : std::string(); }
std::string Engine::failure() const {
  const char* why = impl_->executor ? impl_->executor->failure() : nullptr;
  return why != nullptr ? device() + " failed: " + why : "";
}
EngineCounters Engine::counters() const noexcept { return impl_->published.load(); }

}  // namespace halotap::pipeline
