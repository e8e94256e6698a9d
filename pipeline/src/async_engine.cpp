#include "halotap/pipeline/async_engine.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstdio>
#include <future>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "batch_queue.hpp"
#include "halotap/pipeline/pipeline.hpp"
#include "halotap/pipeline/published.hpp"
#include "memory.hpp"
#include "slot_set.hpp"
#include "waiting.hpp"

namespace halotap::pipeline {
namespace {

constexpr std::int64_t kMaxInFlight = 1024;
// What a sleeping thread of a quiet machine wakes up late by, at most. Whoever has no more time than that does not
// sleep.
constexpr std::chrono::nanoseconds kWakeUp = std::chrono::microseconds(100);
// Answers published between two looks at the clock: a few microseconds.
constexpr std::size_t kAnswersAnInstant = 256;

// Samples of one side of all streams: [places, slots, area], an area a cache line or several. In memory of the
// engine's, which a card reads and writes where it is, and in rows of whole 16 bytes, which it does fastest.
class Samples {
 public:
  Samples(Engine& engine, std::int64_t places, std::int64_t slots, std::int64_t channels, std::int64_t room)
      : slots_(static_cast<std::size_t>(slots)),
        channels_(channels),
        room_(room),
        area_(static_cast<std::size_t>(area_of(channels, room))),
        data_(engine.allocate_samples(area_of(channels, room) * slots * places)) {}

  // Floats of one place of one slot: whole cache lines.
  static std::int64_t area_of(std::int64_t channels, std::int64_t room) {
    return (channels * row_of(room) + 15) / 16 * 16;
  }

  FrameView view(std::size_t place, std::uint32_t slot, std::int64_t frames) const {
    return {data_ + (place * slots_ + slot) * area_, channels_, frames, row_of(room_), 1};
  }
  FrameView whole(std::size_t place, std::uint32_t slot) const { return view(place, slot, room_); }

 private:
  // Floats from a channel to the next; one or two frames lie side by side.
  static std::int64_t row_of(std::int64_t room) { return room <= 2 ? room : (room + 3) / 4 * 4; }

  std::size_t slots_;
  std::int64_t channels_;
  std::int64_t room_;
  std::size_t area_;
  float* data_;
};

// What the producer writes and the worker reads, and what the worker writes and the consumer reads: [places, slots].
struct Entry {
  Instant deadline{};
  std::int32_t frames = 0;
  EntryKind kind = EntryKind::kChunk;
  FillKind fill = FillKind::kZeros;  // kReset; kFrame: the frame is where the chunk's samples would be
};

struct Answer {
  Instant computed{};
  std::int64_t frames = 0;
  std::uint32_t output_place = 0;
  Status status = Status::kOk;
};

// Of a stream, by slot, what one thread alone uses. Counts of entries go on from one stream of a slot to the next, so
// that nobody has to set back another's; `first` is where the present stream began.
struct ProducerLane {
  std::uint64_t submitted = 0;
  std::uint64_t collected = 0;  // as last seen
  std::int32_t begun_frames = -1;
  // Of the last stream that was closed. Atomic for who holds the id of an earlier one.
  std::atomic<std::uint32_t> closed_generation{0};
};

struct WorkerLane {
  std::uint64_t taken = 0;  // entries answered, or waiting for a call
  StreamId stream;          // the engine's; generation 0: none open
  std::uint32_t output_place = 0;
  bool queued = false;  // its chunk waits for a call
};

struct ConsumerLane {
  std::uint64_t collected = 0;
  std::uint64_t first = 0;
  std::uint64_t output_sequence = 0;
  Instant computed{};
  std::int64_t frames = 0;  // of the output held
  std::uint32_t output_place = 0;
};

void require_range(const char* field, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw ConfigError(std::string(field) + ": expected " + std::to_string(least) + " to " + std::to_string(most) +
                    ", got " + std::to_string(value));
}

constexpr std::int64_t kHourNs = 3'600'000'000'000;
constexpr std::int64_t kMostPollNs = 100'000'000;  // what stop may have to wait

void check(const Model& model, const AsyncSpec& spec) {
  if (!model.stack) throw ConfigError("model: expected one with a stack, got one without");
  require_range("max_streams", spec.engine.max_streams, 1, std::int64_t{1} << 20);
  require_range("max_chunk_frames", spec.engine.max_chunk_frames, 1, kMaxChunkFrames);
  require_range("in_flight", spec.in_flight, 1, kMaxInFlight);
  require_range("max_wait, in nanoseconds", spec.max_wait.count(), 0, kHourNs);
  require_range("max_call, in nanoseconds", spec.max_call.count(), 0, kHourNs);
  require_range("margin, in nanoseconds", spec.margin.count(), 0, kHourNs);
  require_range("poll, in nanoseconds", spec.poll.count(), 0, kMostPollNs);
  if (!spec.own_thread && spec.realtime.asks()) {
    throw ConfigError("realtime: expected nothing for an engine without a thread of its own");
  }
}

std::int64_t output_room(const Model& model, const AsyncSpec& spec) {
  return std::max(spec.engine.max_chunk_frames, model.stack->lookahead_frames());
}

// Bytes of both rings and of what is kept beside them.
double bytes_of_rings(const Model& model, const AsyncSpec& spec) {
  const auto area = [](std::int64_t channels, std::int64_t room) {
    return sizeof(float) * static_cast<double>(Samples::area_of(channels, room));
  };
  const double input = area(model.stack->in_channels(), spec.engine.max_chunk_frames);
  const double output = area(model.stack->out_channels(), output_room(model, spec));
  const auto places = static_cast<double>(spec.in_flight);
  constexpr std::size_t kPlace = sizeof(Entry) + sizeof(Answer);
  constexpr std::size_t kSlot = 4 * sizeof(std::uint64_t) + 2 * sizeof(std::uint32_t) + sizeof(ProducerLane) +
                                sizeof(WorkerLane) + sizeof(ConsumerLane) + sizeof(StreamChunk) +
                                2 * sizeof(BatchQueue::Chunk);
  return static_cast<double>(spec.engine.max_streams) * (places * (input + kPlace) + (places + 1) * output + kSlot);
}

Engine prepared(const Model& model, const EngineSpec& spec) {
  Engine engine;
  engine.prepare(model, spec);
  return engine;
}

// Refuses what this machine can never hold before it is allocated: the system would promise it.
void require_memory(double bytes) {
  if (bytes <= memory_bytes()) return;
  char text[64];
  std::snprintf(text, sizeof text, "%.3g GiB, got %.3g GiB", memory_bytes() / (1 << 30), bytes / (1 << 30));
  throw ConfigError("in_flight, max_chunk_frames and max_streams: expected rings of at most this machine's " +
                    std::string(text));
}

}  // namespace

struct AsyncEngine::Impl {
  Impl(const Model& model, const AsyncSpec& given)
      : spec(given),
        clock(given.clock != nullptr ? *given.clock : monotonic_clock()),
        places(static_cast<std::uint64_t>(given.in_flight)),
        slots(static_cast<std::size_t>(given.engine.max_streams)),
        engine(prepared(model, given.engine)),
        inputs(engine, given.in_flight, given.engine.max_streams, model.stack->in_channels(),
               given.engine.max_chunk_frames),
        outputs(engine, given.in_flight + 1, given.engine.max_streams, model.stack->out_channels(),
                output_room(model, given)),
        entries(slots * places),
        answers(slots * places),
        submitted(slots),
        answered(slots),
        collected(slots),
        generations(slots),
        producers(slots),
        workers(slots),
        consumers(slots),
        ready(slots),
        released(slots),
        queue(slots, {given.margin, given.max_call}) {
    batch.reserve(slots);
    free_slots.reserve(slots);
    for (std::size_t slot = slots; slot > 0; --slot) free_slots.push_back(static_cast<std::uint32_t>(slot - 1));
  }

  // --- what all sides look at ---------------------------------------------------------------------------------------

  std::size_t place_of(std::uint64_t count) const { return static_cast<std::size_t>(count % places); }
  Entry& entry(std::uint64_t count, std::uint32_t slot) { return entries[place_of(count) * slots + slot]; }
  Answer& answer(std::uint64_t count, std::uint32_t slot) { return answers[place_of(count) * slots + slot]; }

  bool is_open(StreamId stream) const {
    // relaxed: who holds an id got it from the thread that opened the stream, and the generation with it
    return stream.slot < slots && stream.generation % 2 == 1 &&
           generations[stream.slot].load(std::memory_order_relaxed) == stream.generation;
  }

  // --- producer -----------------------------------------------------------------------------------------------------

  // Why the stream takes no entry now.
  Status refusal(StreamId stream) {
    if (stream.slot >= slots) return Status::kUnknownStream;
    // acquire, with close's release, and before the generation is read: where the slot's next tenant has closed it, its
    // generation is seen too, so that an old id fits neither
    const std::uint32_t closed = producers[stream.slot].closed_generation.load(std::memory_order_acquire);
    if (closed == stream.generation || !is_open(stream)) return Status::kUnknownStream;
    if (stopped.load(std::memory_order_relaxed)) return Status::kStopped;  // tells of nothing but itself
    ProducerLane& lane = producers[stream.slot];
    if (lane.submitted - lane.collected < places) return Status::kOk;
    // acquire, with try_collect's release: it has read the place that is written next
    lane.collected = collected[stream.slot].load(std::memory_order_acquire);
    if (lane.submitted - lane.collected < places) return Status::kOk;
    refused_full.fetch_add(1, std::memory_order_relaxed);
    return Status::kStreamFull;
  }

  Status refusal_to_compute(StreamId stream) {
    const Status status = refusal(stream);
    if (status == Status::kUnknownStream || status == Status::kStopped) return status;
    return failed.load(std::memory_order_relaxed) ? Status::kDeviceFailed : status;
  }

  void publish(std::uint32_t slot, const Entry& made) {
    ProducerLane& lane = producers[slot];
    entry(lane.submitted, slot) = made;
    lane.begun_frames = -1;
    // release, with advance's acquire: the entry and its samples
    submitted[slot].store(++lane.submitted, std::memory_order_release);
    ready.add(slot);
  }

  // --- worker -------------------------------------------------------------------------------------------------------

  void give(std::uint32_t slot, std::uint64_t count, Answer made) {
    ++counters.entries_out;
    if (made.status != Status::kOk) {
      ++counters.entries_failed;
      made.frames = 0;
    }
    WorkerLane& lane = workers[slot];
    made.output_place = lane.output_place;
    // The consumer holds the place before the oldest answer that it has not collected: one of places + 1.
    if (made.frames > 0) lane.output_place = lane.output_place == places ? 0 : lane.output_place + 1;
    answer(count, slot) = made;
    // release, with try_collect's acquire: the answer and its samples
    answered[slot].store(count + 1, std::memory_order_release);
  }

  void fail() {
    failed.store(true, std::memory_order_release);  // pairs with try_collect's acquire: all answers before it
  }

  // Carries out the stream's entries up to its next chunk, which goes to the queue. What is submitted meanwhile makes
  // the slot ready again.
  void advance(std::uint32_t slot, Instant now) {
    WorkerLane& lane = workers[slot];
    const std::uint64_t end = submitted[slot].load(std::memory_order_acquire);  // with publish's release
    while (!lane.queued && lane.taken != end) {
      const std::uint64_t count = lane.taken++;
      const Entry& next = entry(count, slot);
      ++counters.entries_in;
      Answer made{now, 0, 0, Status::kOk};
      if (lane.stream.generation == 0 && next.kind != EntryKind::kClose) {
        const Status status = engine.open(lane.stream);
        assert(status == Status::kOk);  // it has as many streams as there are slots
        static_cast<void>(status);
      }
      const bool has_failed = failed.load(std::memory_order_relaxed);  // this thread's own
      switch (next.kind) {
        case EntryKind::kChunk:
          if (!has_failed) {
            lane.queued = true;
            queue.add({std::max(next.deadline, Instant{}), now + spec.max_wait, slot});
            ++counters.entries_in_flight;
            return;
          }
          made.status = Status::kDeviceFailed;
          break;
        case EntryKind::kSkip:
          queue.pass(slot);
          if (has_failed) made.status = Status::kDeviceFailed;
          break;
        case EntryKind::kReset:
          made.status = has_failed ? Status::kDeviceFailed
                                   : engine.reset(lane.stream, {next.fill, inputs.whole(place_of(count), slot).data});
          break;
        case EntryKind::kFlush:
          made.status = has_failed ? Status::kDeviceFailed
                                   : engine.flush(lane.stream, outputs.whole(lane.output_place, slot), made.frames);
          if (made.status == Status::kDeviceFailed) fail();
          made.computed = clock.now();
          break;
        case EntryKind::kClose:
          queue.pass(slot);
          if (lane.stream.generation != 0) static_cast<void>(engine.close(lane.stream));
          lane.stream = {};
          break;
      }
      give(slot, count, made);
    }
  }

  // One call with what the queue says, and its answers.
  void compute(Instant begun) {
    if (!queue.all_ready()) {
      ++counters.calls_pressed;
      queue.late(begun - expected);
    }
    const std::vector<BatchQueue::Chunk>& chunks = queue.take(begun);
    if (queue.size() > 0) ++counters.calls_cut;
    batch.clear();
    for (const BatchQueue::Chunk& chunk : chunks) {
      const WorkerLane& lane = workers[chunk.slot];
      const std::uint64_t count = lane.taken - 1;
      batch.push_back({lane.stream, inputs.view(place_of(count), chunk.slot, entry(count, chunk.slot).frames),
                       outputs.whole(lane.output_place, chunk.slot), 0, Status::kOk});
    }
    if (engine.process(batch) == Status::kDeviceFailed) fail();
    Instant now = begun;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      if (i % kAnswersAnInstant == 0) now = clock.now();
      const std::uint32_t slot = chunks[i].slot;
      WorkerLane& lane = workers[slot];
      const std::uint64_t count = lane.taken - 1;
      if (batch[i].status == Status::kOk) {
        ++counters.chunks;
        if (now > entry(count, slot).deadline) ++counters.chunks_late;
      }
      lane.queued = false;
      give(slot, count, {now, batch[i].frames_emitted, 0, batch[i].status});
    }
    counters.entries_in_flight -= chunks.size();
    ++counters.calls;
    counters.largest_call = std::max<std::uint64_t>(counters.largest_call, chunks.size());
    now = clock.now();
    queue.record(chunks.size(), now - begun);
    for (const BatchQueue::Chunk& chunk : chunks) advance(chunk.slot, now);
  }

  Step step() {
    const std::uint64_t out_before = counters.entries_out;
    const Instant now = clock.now();
    ready.take_all([&](std::uint32_t slot) { advance(slot, now); });
    if (queue.size() > 0) {
      const Instant begun = clock.now();
      // Nothing is gained by waiting once the device has failed.
      if (queue.due(begun) <= begun || failed.load(std::memory_order_relaxed)) compute(begun);
    }
    published.store(counters);
    expected = queue.due(now);
    return {counters.entries_out - out_before, expected};
  }

  void work() {
    while (!stopped.load(std::memory_order_relaxed)) {
      const Step done = step();
      if (done.entries > 0) continue;
      if (spec.poll.count() == 0 || done.next - clock.now() <= spec.poll) {
        relax();
      } else {
        clock.sleep(spec.poll);
      }
    }
  }

  void start() {
    std::promise<RealtimeGrant> granted;
    try {
      thread = std::thread([this, &granted] {
        pthread_setname_np(pthread_self(), "halotap-async");
        const RealtimeScope realtime(spec.realtime, {});
        granted.set_value(realtime.grant());
        work();
      });
    } catch (const std::system_error& error) {
      throw ConfigError("own_thread: the system refused to start a thread: " + std::string(error.what()));
    }
    grant = granted.get_future().get();
  }

  // --- consumer -----------------------------------------------------------------------------------------------------

  bool has_answer(std::uint32_t slot) const {
    // acquire, with give's release
    return answered[slot].load(std::memory_order_acquire) != consumers[slot].collected;
  }

  // kOk: the next answer is there.
  Status wait_for_answer(std::uint32_t slot, Instant deadline) {
    for (;;) {
      // In front of the look: what was answered before the end is seen by it.
      const bool has_failed = failed.load(std::memory_order_acquire);  // pairs with fail's release
      const bool has_stopped = stopped.load(std::memory_order_relaxed);
      if (has_answer(slot)) return Status::kOk;
      if (has_stopped) return Status::kStopped;
      if (has_failed) return Status::kDeviceFailed;
      const Instant now = clock.now();
      if (now >= deadline) return Status::kNotYet;
      if (spec.poll.count() > 0 && deadline - now > spec.poll + kWakeUp) {
        const SystemCall sleep;
        clock.sleep(spec.poll);
      } else {
        relax();
      }
    }
  }

  void show_output(std::uint32_t slot, bool fresh, AsyncResult& result) const {
    const ConsumerLane& lane = consumers[slot];
    result.output = {};
    result.fresh = fresh;
    result.output_sequence = lane.output_sequence;
    result.computed = lane.computed;
    result.age = std::chrono::nanoseconds{0};
    if (lane.frames == 0) return;
    result.output = outputs.view(lane.output_place, slot, lane.frames);
    result.age = clock.now() - lane.computed;
  }

  Status collect(StreamId stream, AsyncResult& result) {
    const std::uint32_t slot = stream.slot;
    ConsumerLane& lane = consumers[slot];
    const Entry& asked = entry(lane.collected, slot);
    const Answer given = answer(lane.collected, slot);
    const bool ends = asked.kind == EntryKind::kClose;
    result.answered = true;
    result.sequence = lane.collected - lane.first;
    result.kind = asked.kind;
    result.deadline = asked.deadline;
    if (given.frames > 0) {
      lane.output_place = given.output_place;
      lane.frames = given.frames;
      lane.output_sequence = result.sequence;
      lane.computed = given.computed;
    }
    ++lane.collected;
    if (ends) {
      lane.first = lane.collected;
      lane.frames = 0;
      lane.output_sequence = 0;
      lane.computed = {};
    }
    // release, with refusal's acquire: the place has been read
    collected[slot].store(lane.collected, std::memory_order_release);
    show_output(slot, given.frames > 0, result);
    if (ends) {
      generations[slot].store(stream.generation + 1, std::memory_order_relaxed);  // published by released
      released.add(slot);
    }
    return given.status;
  }

  const AsyncSpec spec;
  const Clock& clock;
  const std::uint64_t places;  // of entries a stream; outputs have one more
  const std::size_t slots;
  std::size_t bytes = 0;  // of the rings and what is beside them
  Engine engine;
  Samples inputs;
  Samples outputs;
  std::vector<Entry> entries;
  std::vector<Answer> answers;
  // Entries of a slot so far. Each is written by one side and read by the next: producer, worker, consumer, producer.
  std::vector<std::atomic<std::uint64_t>> submitted;
  std::vector<std::atomic<std::uint64_t>> answered;
  std::vector<std::atomic<std::uint64_t>> collected;
  std::vector<std::atomic<std::uint32_t>> generations;  // odd while a stream has the slot
  std::vector<ProducerLane> producers;
  std::vector<WorkerLane> workers;
  std::vector<ConsumerLane> consumers;
  SlotSet ready;                          // slots with a new entry
  SlotSet released;                       // slots whose stream was collected to its end
  std::vector<std::uint32_t> free_slots;  // of whoever opens, the next one last

  BatchQueue queue;
  std::vector<StreamChunk> batch;
  Instant expected = Instant::max();  // when the next call was to begin, by the last step
  AsyncCounters counters;
  Published<AsyncCounters> published;
  std::atomic<std::uint64_t> refused_full{0};
  std::atomic<bool> failed{false};
  std::atomic<bool> stopped{false};
  RealtimeGrant grant;
  enum class Joining : std::uint8_t { kNobody, kSomebody, kDone };
  std::atomic<Joining> joining{Joining::kNobody};
  std::thread thread;
};

AsyncEngine::AsyncEngine(const Model& model, const AsyncSpec& spec) {
  check(model, spec);
  const double bytes = bytes_of_rings(model, spec);
  require_memory(bytes);
  try {
    impl_ = std::make_unique<Impl>(model, spec);
    impl_->bytes = static_cast<std::size_t>(bytes);
  } catch (const std::bad_alloc&) {
    throw ConfigError("in_flight, max_chunk_frames and max_streams: the rings of " +
                      std::to_string(spec.engine.max_streams) + " streams of model '" + model.name +
                      "' do not fit in memory");
  }
  if (spec.own_thread) impl_->start();
}

AsyncEngine::~AsyncEngine() { stop(); }

void AsyncEngine::stop() noexcept {
  Impl& impl = *impl_;
  impl.stopped.store(true, std::memory_order_relaxed);
  auto nobody = Impl::Joining::kNobody;
  if (impl.joining.compare_exchange_strong(nobody, Impl::Joining::kSomebody)) {
    if (impl.thread.joinable()) impl.thread.join();
    impl.joining.store(Impl::Joining::kDone);
    impl.joining.notify_all();
  } else {
    impl.joining.wait(Impl::Joining::kSomebody);
  }
}

Status AsyncEngine::open(StreamId& stream) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (impl.stopped.load(std::memory_order_relaxed)) return Status::kStopped;
  if (impl.failed.load(std::memory_order_relaxed)) return Status::kDeviceFailed;
  if (impl.free_slots.empty()) {
    impl.released.take_all([&](std::uint32_t slot) { impl.free_slots.push_back(slot); });  // room for all
    std::reverse(impl.free_slots.begin(), impl.free_slots.end());
  }
  if (impl.free_slots.empty()) return Status::kNoFreeStream;
  const std::uint32_t slot = impl.free_slots.back();
  impl.free_slots.pop_back();
  const std::uint32_t generation = impl.generations[slot].load(std::memory_order_relaxed) + 1;
  impl.generations[slot].store(generation, std::memory_order_relaxed);
  stream = {slot, generation};
  return Status::kOk;
}

Status AsyncEngine::begin_chunk(StreamId stream, std::int64_t frames, FrameView& view) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (const Status status = impl.refusal_to_compute(stream); status != Status::kOk) return status;
  ProducerLane& lane = impl.producers[stream.slot];
  lane.begun_frames = -1;
  if (frames < 0) return Status::kInvalidView;
  if (frames > impl.spec.engine.max_chunk_frames) return Status::kChunkTooLong;
  lane.begun_frames = static_cast<std::int32_t>(frames);
  view = impl.inputs.view(impl.place_of(lane.submitted), stream.slot, frames);
  return Status::kOk;
}

Status AsyncEngine::submit(StreamId stream, Instant deadline) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (const Status status = impl.refusal_to_compute(stream); status != Status::kOk) return status;
  const std::int32_t frames = impl.producers[stream.slot].begun_frames;
  if (frames < 0) return Status::kNoChunkBegun;
  impl.publish(stream.slot, {deadline, frames, EntryKind::kChunk, FillKind::kZeros});
  return Status::kOk;
}

Status AsyncEngine::submit(StreamId stream, ConstFrameView chunk, Instant deadline) noexcept HALOTAP_NONBLOCKING {
  FrameView view;
  if (const Status status = begin_chunk(stream, chunk.frames, view); status != Status::kOk) return status;
  const bool sound = chunk.channels >= 0 && (chunk.frames == 0 || chunk.data != nullptr);
  if (!sound || chunk.channels != view.channels) {
    impl_->producers[stream.slot].begun_frames = -1;
    return sound ? Status::kChannelMismatch : Status::kInvalidView;
  }
  for (std::int64_t c = 0; c < view.channels; ++c) {
    for (std::int64_t t = 0; t < view.frames; ++t) view(c, t) = chunk(c, t);
  }
  return submit(stream, deadline);
}

Status AsyncEngine::skip(StreamId stream) noexcept HALOTAP_NONBLOCKING {
  const Status status = impl_->refusal_to_compute(stream);
  if (status == Status::kOk) impl_->publish(stream.slot, {Instant::max(), 0, EntryKind::kSkip, FillKind::kZeros});
  return status;
}

Status AsyncEngine::reset(StreamId stream, const Fill& fill) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (const Status status = impl.refusal_to_compute(stream); status != Status::kOk) return status;
  if (fill.kind == FillKind::kFrame) {
    if (fill.frame == nullptr) return Status::kInvalidFill;
    const FrameView place = impl.inputs.whole(impl.place_of(impl.producers[stream.slot].submitted), stream.slot);
    std::copy_n(fill.frame, place.channels, place.data);
  }
  impl.publish(stream.slot, {Instant::max(), 0, EntryKind::kReset, fill.kind});
  return Status::kOk;
}

Status AsyncEngine::flush(StreamId stream) noexcept HALOTAP_NONBLOCKING {
  const Status status = impl_->refusal_to_compute(stream);
  if (status == Status::kOk) impl_->publish(stream.slot, {Instant::max(), 0, EntryKind::kFlush, FillKind::kZeros});
  return status;
}

Status AsyncEngine::close(StreamId stream) noexcept HALOTAP_NONBLOCKING {
  const Status status = impl_->refusal(stream);
  if (status != Status::kOk) return status;
  // release, with refusal's acquire: the generation of the stream
  impl_->producers[stream.slot].closed_generation.store(stream.generation, std::memory_order_release);
  impl_->publish(stream.slot, {Instant::max(), 0, EntryKind::kClose, FillKind::kZeros});
  return status;
}

Status AsyncEngine::try_collect(StreamId stream, Instant deadline, AsyncResult& result) noexcept HALOTAP_NONBLOCKING {
  Impl& impl = *impl_;
  if (!impl.is_open(stream)) {
    result = {};
    return Status::kUnknownStream;
  }
  const Status status = impl.wait_for_answer(stream.slot, deadline);
  if (status == Status::kOk) return impl.collect(stream, result);
  ConsumerLane& lane = impl.consumers[stream.slot];
  result.answered = false;
  result.sequence = lane.collected - lane.first;
  result.kind = EntryKind::kChunk;
  result.deadline = {};
  impl.show_output(stream.slot, false, result);
  return status;
}

AsyncEngine::Step AsyncEngine::step() noexcept HALOTAP_NONBLOCKING {
  assert(!impl_->thread.joinable());
  return impl_->step();
}

const Engine& AsyncEngine::engine() const noexcept { return impl_->engine; }
const RealtimeGrant& AsyncEngine::realtime_grant() const noexcept { return impl_->grant; }
AsyncCounters AsyncEngine::counters() const noexcept { return impl_->published.load(); }
std::uint64_t AsyncEngine::refused_full() const noexcept {
  return impl_->refused_full.load(std::memory_order_relaxed);  // one number
}
std::size_t AsyncEngine::ring_bytes() const noexcept { return impl_->bytes; }

}  // namespace halotap::pipeline
