#include "halotap/pipeline/pipeline.hpp"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "chunker.hpp"
#include "halotap/pipeline/published.hpp"
#include "halotap/pipeline/ring.hpp"
#include "memory.hpp"
#include "stage_chain.hpp"

namespace halotap::pipeline {
namespace {

constexpr std::int64_t kMaxRingSamples = std::int64_t{1} << 32;

void require_range(const char* field, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) {
    throw ConfigError(std::string(field) + ": expected 1 to " + std::to_string(most) + ", got " +
                      std::to_string(value));
  }
}

std::string gib_text(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g GiB", bytes / (1 << 30));
  return text;
}

// What the ring, a chunk and its results take; the engine's state and the stages' results are refused by themselves.
void require_memory(const PipelineSpec& spec, const Model& model) {
  const auto streams = static_cast<double>(spec.streams);
  const double in = streams * static_cast<double>(model.stack->in_channels());
  const double out = streams * static_cast<double>(model.stack->out_channels());
  const auto chunk = static_cast<double>(spec.chunks.max_frames);
  const double ring = std::max(static_cast<double>(spec.ring_capacity_frames), chunk);
  const double results = std::max(chunk, static_cast<double>(model.stack->lookahead_frames()));
  const double bytes = sizeof(float) * ((ring + chunk) * in + results * out);
  if (bytes <= memory_bytes()) return;
  throw ConfigError("chunk_frames and ring: chunks of " + std::to_string(spec.chunks.max_frames) +
                    " frames and a ring of " + std::to_string(spec.ring_capacity_frames) + ", " +
                    std::to_string(spec.streams * model.stack->in_channels()) + " samples in and " +
                    std::to_string(spec.streams * model.stack->out_channels()) + " out a frame: expected at most " +
                    gib_text(memory_bytes()) + ", as this machine has, got " + gib_text(bytes));
}

void check(const PipelineSpec& spec, const Model& model) {
  if (!model.stack) throw ConfigError("model: expected one with a stack, got one without");
  require_range("chunk_frames", spec.chunks.max_frames, kMaxChunkFrames);
  require_range("streams", spec.streams, std::int64_t{1} << 20);
  const std::int64_t frame_samples = spec.streams * model.stack->in_channels();
  require_range("ring capacity in frames", spec.ring_capacity_frames, kMaxRingSamples / frame_samples);
  require_memory(spec, model);
}

LatencyTerm waiting(const char* place, std::int64_t frames, double rate_hz, const LatencyKey& key) {
  LatencyTerm term;
  term.place = place;
  term.frames = frames;
  term.rate_hz = rate_hz;
  term.key = key;
  return term;
}

}  // namespace

struct Pipeline::Impl {
  // What the producer has counted; the worker's count is frames_taken.
  struct Offered {
    std::uint64_t frames_in = 0;
    std::uint64_t frames_dropped_overrun = 0;
  };

  Impl(const Model& model, const PipelineSpec& spec)
      : clock(spec.clock != nullptr ? *spec.clock : monotonic_clock()),
        streams(spec.streams),
        in_channels(model.stack->in_channels()),
        out_channels(model.stack->out_channels()),
        ring(streams * in_channels, std::max(spec.ring_capacity_frames, spec.chunks.max_frames)),
        chunker(spec.chunks) {
    engine.prepare(model, {.backend = spec.backend,
                           .precision = spec.precision,
                           .max_streams = streams,
                           .max_chunk_frames = spec.chunks.max_frames,
                           .worker_threads = spec.worker_threads,
                           .fallback = spec.fallback,
                           .auto_chunk_frames = spec.auto_chunk_frames,
                           .cuda = spec.cuda});
    ids.resize(static_cast<std::size_t>(streams));
    for (StreamId& id : ids) open(id);
    chunks.resize(ids.size());
    flush_room = std::max(spec.chunks.max_frames, engine.lookahead_frames());
    input.resize(static_cast<std::size_t>(spec.chunks.max_frames * streams * in_channels));
    output.resize(static_cast<std::size_t>(flush_room * streams * out_channels));
    stages.emplace(StageFormat{streams, out_channels, model.frame_rate_hz, model.output_channels}, spec.stages,
                   flush_room);
    // A chunk's first frame waits for the others.
    latency.push_back(waiting("chunk", spec.chunks.max_frames - 1, model.frame_rate_hz, {"chunk_frames", 1, 1}));
    latency.push_back(waiting("lookahead", engine.lookahead_frames(), model.frame_rate_hz, {"model.file"}));
    latency.insert(latency.end(), stages->latency().begin(), stages->latency().end());
  }

  void open(StreamId& id) {
    if (const Status status = engine.open(id); status != Status::kOk) throw ConfigError(std::string(to_string(status)));
  }

  // Stream s's share of the interleaved output.
  FrameView output_of(std::int64_t s) {
    return {output.data() + s * out_channels, out_channels, flush_room, 1, streams * out_channels};
  }

  Step process(std::int64_t frames) noexcept {
    const Instant begun = clock.now();
    ring.pop(input.data(), frames);
    frames_taken.store(frames_taken.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(frames),
                       std::memory_order_release);  // pairs with ring_counters: what was taken had been offered
    for (std::int64_t s = 0; s < streams; ++s) {
      const ConstFrameView view{input.data() + s * in_channels, in_channels, frames, 1, streams * in_channels};
      chunks[static_cast<std::size_t>(s)] = {ids[static_cast<std::size_t>(s)], view, output_of(s), 0, Status::kOk};
    }
    // Every entry is well formed by construction, and all streams advance together.
    const Status status = engine.process(chunks);
    assert(status == Status::kOk || status == Status::kDeviceFailed);
    Step step{frames, status == Status::kOk ? chunks.front().frames_emitted : 0, output.data(), status, {}};
    step.begun = begun;
    return behind_stages(step, false);
  }

  Step flush() noexcept {
    Step step{0, 0, output.data(), Status::kOk, {}};
    step.begun = clock.now();
    for (std::int64_t s = 0; s < streams && step.status == Status::kOk; ++s) {
      step.status = engine.flush(ids[static_cast<std::size_t>(s)], output_of(s), step.frames_out);
      assert(step.status == Status::kOk || step.status == Status::kDeviceFailed);
    }
    return behind_stages(step, true);
  }

  // The step as it is behind the stages, which are to end the recording too or not.
  Step behind_stages(Step step, bool finish) noexcept {
    step.computed = clock.now();
    step.staged = step.computed;
    if (stages->size() == 0 || step.status != Status::kOk) return step;
    stages->begin();
    stages->feed(step.samples, step.frames_out);
    if (finish) stages->finish();
    step.staged = clock.now();
    step.frames_out = stages->frames();
    step.samples = stages->samples();
    step.events = stages->events();
    return step;
  }

  const Clock& clock;
  const std::int64_t streams;
  const std::int64_t in_channels;
  const std::int64_t out_channels;
  Ring ring;
  Chunker chunker;
  Engine engine;
  std::vector<StreamId> ids;
  std::vector<StreamChunk> chunks;
  std::int64_t flush_room = 0;  // frames in `output`
  std::vector<float> input;     // [longest chunk, streams, in_channels]
  std::vector<float> output;    // [flush_room, streams, out_channels]

  std::optional<StageChain> stages;  // made last
  std::vector<LatencyTerm> latency;

  Published<Offered> published;
  Offered offered;                             // the producer's own copy
  std::atomic<std::uint64_t> frames_taken{0};  // written by the worker
};

Pipeline::Pipeline(const Model& model, const PipelineSpec& spec) {
  check(spec, model);
  try {
    impl_ = std::make_unique<Impl>(model, spec);
  } catch (const std::bad_alloc&) {
    throw ConfigError("the ring and chunks of " + std::to_string(spec.chunks.max_frames) +
                      " frames do not fit in memory");
  }
}
Pipeline::~Pipeline() = default;

std::int64_t Pipeline::push(const float* samples, std::int64_t frames) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  assert(frames >= 0);
  const std::int64_t accepted = std::min(frames, impl.ring.writable_frames());
  // Counted before they can be taken, so that a reader never sees more taken than offered.
  impl.offered.frames_in += static_cast<std::uint64_t>(frames);
  impl.offered.frames_dropped_overrun += static_cast<std::uint64_t>(frames - accepted);
  impl.published.store(impl.offered);
  impl.ring.push(samples, accepted);
  return accepted;
}

std::int64_t Pipeline::writable_frames() const noexcept HALOTAP_NONBLOCKING { return impl_->ring.writable_frames(); }

std::int64_t Pipeline::missing_frames() const noexcept HALOTAP_NONBLOCKING {
  return std::max<std::int64_t>(impl_->chunker.next_frames() - impl_->ring.readable_frames(), 0);
}

Pipeline::Step Pipeline::step() noexcept HALOTAP_NONBLOCKING {
  const std::int64_t frames = impl_->chunker.next_frames();
  if (impl_->ring.readable_frames() < frames) return {};
  impl_->chunker.take();
  return impl_->process(frames);
}

Pipeline::Step Pipeline::drain() noexcept HALOTAP_NONBLOCKING {
  const std::int64_t frames = std::min(impl_->chunker.next_frames(), impl_->ring.readable_frames());
  if (frames == 0) return impl_->flush();
  impl_->chunker.take();
  return impl_->process(frames);
}

const StageFormat& Pipeline::output() const noexcept { return impl_->stages->output(); }
std::int64_t Pipeline::output_frames(std::int64_t input_frames) const noexcept {
  return impl_->stages->output_frames(input_frames);
}
const std::vector<LatencyTerm>& Pipeline::latency() const noexcept { return impl_->latency; }

const Clock& Pipeline::clock() const noexcept HALOTAP_NONBLOCKING { return impl_->clock; }
const Engine& Pipeline::engine() const noexcept { return impl_->engine; }

RingCounters Pipeline::ring_counters() const noexcept {
  // acquire, with process's release: the offers behind these frames are in what is loaded next
  const std::uint64_t taken = impl_->frames_taken.load(std::memory_order_acquire);
  const Impl::Offered offered = impl_->published.load();
  return {.frames_in = offered.frames_in,
          .frames_out = taken,
          .frames_dropped_overrun = offered.frames_dropped_overrun,
          .frames_in_flight = offered.frames_in - offered.frames_dropped_overrun - taken};
}

std::size_t Pipeline::stages() const noexcept { return impl_->stages->size(); }
bool Pipeline::has_events() const noexcept { return impl_->stages->has_events(); }
StageCounters Pipeline::stage_counters(std::size_t stage) const noexcept {
  assert(stage < impl_->stages->size());
  return impl_->stages->counters(stage);
}

}  // namespace halotap::pipeline
