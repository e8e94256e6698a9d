#include "failover_executor.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <utility>

#include "memory.hpp"

namespace halotap::pipeline {

using kernels::ConstFrameView;
using kernels::Fill;
using kernels::FillKind;
using kernels::FrameView;
using kernels::SlotChunk;

namespace {

constexpr std::size_t kMostReason = 200;         // characters
constexpr std::int64_t kLeastPlanarFrames = 16;  // a cache line: shorter runs cost a line each

// What is kept of every stream, so many frames of the input and the CPU's state, is to fit in this machine's memory.
std::size_t require_memory(std::int64_t streams, std::int64_t frames, std::int64_t channels, std::size_t state_bytes) {
  const double stream_bytes =
      static_cast<double>(frames) * static_cast<double>(channels) * sizeof(float) + static_cast<double>(state_bytes);
  if (static_cast<double>(streams) * stream_bytes > memory_bytes()) throw std::bad_alloc();
  return static_cast<std::size_t>(streams);
}

void copy(const ConstFrameView& from, const FrameView& to) {
  if (from.frame_stride == 1 && to.frame_stride == 1) {
    for (std::int64_t c = 0; c < from.channels; ++c) std::copy_n(&from(c, 0), from.frames, &to(c, 0));
  } else if (from.channel_stride == 1 && to.channel_stride == 1) {
    for (std::int64_t t = 0; t < from.frames; ++t) std::copy_n(&from(0, t), from.channels, &to(0, t));
  } else {
    for (std::int64_t t = 0; t < from.frames; ++t) {
      for (std::int64_t c = 0; c < from.channels; ++c) to(c, t) = from(c, t);
    }
  }
}

}  // namespace

FailoverExecutor::FailoverExecutor(const kernels::Stack& stack, const kernels::ExecutorSpec& spec,
                                   std::int64_t piece_frames, std::unique_ptr<kernels::Executor> device,
                                   std::unique_ptr<kernels::Executor> cpu, const Clock& clock)
    : in_channels_(stack.in_channels()),
      out_channels_(stack.out_channels()),
      history_frames_(stack.receptive_field() - 1),
      piece_frames_(piece_frames),
      ring_frames_(history_frames_ + piece_frames),
      device_(std::move(device)),
      cpu_(std::move(cpu)),
      clock_(clock),
      streams_(require_memory(spec.max_streams, ring_frames_ + 1, in_channels_, cpu_->state_bytes())),
      kept_(static_cast<std::size_t>(spec.max_streams * ring_frames_ * in_channels_)),
      frames_to_hold_(static_cast<std::size_t>(spec.max_streams * in_channels_)),
      unwanted_(static_cast<std::size_t>(out_channels_)) {
  pieces_.reserve(streams_.size());
  chunk_of_piece_.reserve(streams_.size());
  failover_.from = device_->description();
  failover_.precision = spec.precision;
  failover_.to = cpu_->description();
  failover_.reason.reserve(kMostReason);
}

std::int64_t FailoverExecutor::piece_frames(const kernels::Stack& stack, const kernels::ExecutorSpec& spec) {
  constexpr std::int64_t kPieceSamples = std::int64_t{1} << 24;
  constexpr std::int64_t kLeastPieceFrames = 64;
  return std::min(std::max(kPieceSamples / (spec.max_streams * stack.in_channels()), kLeastPieceFrames),
                  spec.max_chunk_frames);
}

bool FailoverExecutor::is_on_cpu() const noexcept {
  return is_on_cpu_.load(std::memory_order_relaxed);  // only the worker writes it, and it asks here
}

const Failover* FailoverExecutor::failover() const noexcept {
  return is_on_cpu_.load(std::memory_order_acquire) ? &failover_ : nullptr;  // pairs with fail_over
}

std::string FailoverExecutor::description() const { return failover() != nullptr ? failover_.to : failover_.from; }

std::size_t FailoverExecutor::state_bytes() const noexcept {
  return device_->state_bytes() + cpu_->state_bytes() + kept_.size() / streams_.size() * sizeof(float);
}

float* FailoverExecutor::allocate_samples(std::int64_t count) {
  return (is_on_cpu() ? cpu_ : device_)->allocate_samples(count);
}

void FailoverExecutor::reset(std::int64_t slot, const Fill& fill) noexcept HALOTAP_NONBLOCKING {
  if (is_on_cpu()) {
    cpu_->reset(slot, fill);
    return;
  }
  stream(slot) = {0, fill.kind};
  if (fill.kind == FillKind::kFrame) std::copy_n(fill.frame, in_channels_, &frames_to_hold_[slot * in_channels_]);
  device_->reset(slot, fill);
}

void FailoverExecutor::process(std::span<SlotChunk> chunks, std::int64_t worker) noexcept HALOTAP_NONBLOCKING {
  assert(worker == 0);
  static_cast<void>(worker);
  for (SlotChunk& chunk : chunks) chunk.frames_emitted = 0;
  for (std::int64_t first = 0;; first += piece_frames_) {
    pieces_.clear();
    chunk_of_piece_.clear();
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const SlotChunk& chunk = chunks[i];
      const std::int64_t frames = std::min(chunk.input.frames - first, piece_frames_);
      if (frames <= 0) continue;
      const std::int64_t room = chunk.output.frames - chunk.frames_emitted;
      pieces_.push_back({chunk.slot, chunk.input.slice(first, frames), chunk.output.slice(chunk.frames_emitted, room)});
      chunk_of_piece_.push_back(i);
    }
    if (pieces_.empty()) return;
    run_pieces(first);
    for (std::size_t p = 0; p < pieces_.size(); ++p) {
      chunks[chunk_of_piece_[p]].frames_emitted += pieces_[p].frames_emitted;
    }
  }
}

void FailoverExecutor::run_pieces(std::int64_t frames_before) noexcept {
  if (is_on_cpu()) {
    cpu_->process(pieces_, 0);
    return;
  }
  for (const SlotChunk& piece : pieces_) keep(piece.slot, piece.input);
  device_->process(pieces_, 0);
  if (device_->failure() == nullptr) return;
  for (const SlotChunk& piece : pieces_) stream(piece.slot).received -= piece.input.frames;
  failover_.frames_before = frames_before;
  fail_over();
  for (SlotChunk& piece : pieces_) compute_kept(piece);
}

std::int64_t FailoverExecutor::flush(std::int64_t slot, FrameView output) noexcept HALOTAP_NONBLOCKING {
  if (!is_on_cpu()) {
    const std::int64_t emitted = device_->flush(slot, output);
    if (device_->failure() == nullptr) {
      stream(slot) = {};
      return emitted;
    }
    fail_over();
  }
  return cpu_->flush(slot, output);
}

void FailoverExecutor::keep(std::int64_t slot, const ConstFrameView& frames) noexcept {
  Stream& stream = this->stream(slot);
  if (stream.received == 0) stream.is_planar = frames.frame_stride == 1 && frames.frames >= kLeastPlanarFrames;
  std::int64_t taken = 0;
  for_kept(slot, stream.received, stream.received + frames.frames, [&](const FrameView& kept) {
    copy(frames.slice(taken, kept.frames), kept);
    taken += kept.frames;
  });
  stream.received += frames.frames;
}

// Calls take(view) for the slot's frames [first, end), where the ring's end lies between them in two turns; and no view
// is longer than a chunk may be.
template <typename Take>
void FailoverExecutor::for_kept(std::int64_t slot, std::int64_t first, std::int64_t end, Take take) noexcept {
  float* kept = &kept_[static_cast<std::size_t>(slot * ring_frames_ * in_channels_)];
  const FrameView ring = stream(slot).is_planar ? kernels::planar(kept, in_channels_, ring_frames_)
                                                : kernels::interleaved(kept, in_channels_, ring_frames_);
  while (first < end) {
    const std::int64_t at = first % ring_frames_;
    const std::int64_t frames = std::min({end - first, ring_frames_ - at, piece_frames_});
    take(ring.slice(at, frames));
    first += frames;
  }
}

void FailoverExecutor::fail_over() noexcept {
  failover_.at = clock_.now();
  const char* reason = device_->failure();
  failover_.reason.assign(reason, std::min(std::strlen(reason), kMostReason));
  for (std::size_t slot = 0; slot < streams_.size(); ++slot) {
    if (streams_[slot].received == 0 && streams_[slot].fill == FillKind::kZeros) continue;  // as the CPU's is
    rebuild(static_cast<std::int64_t>(slot));
    ++failover_.streams;
  }
  failover_.rebuild_time = clock_.now() - failover_.at;
  is_on_cpu_.store(true, std::memory_order_release);  // pairs with failover
}

void FailoverExecutor::rebuild(std::int64_t slot) noexcept {
  const Stream& stream = this->stream(slot);
  const bool has_begin = stream.received < history_frames_;
  cpu_->reset(slot,
              has_begin ? Fill{stream.fill, &frames_to_hold_[static_cast<std::size_t>(slot * in_channels_)]} : Fill{});
  // Every frame to the same place.
  const auto nowhere = [this](std::int64_t frames) { return FrameView{unwanted_.data(), out_channels_, frames, 1, 0}; };
  for_kept(slot, has_begin ? 0 : stream.received - history_frames_, stream.received, [&](const FrameView& frames) {
    SlotChunk chunk{slot, frames, nowhere(frames.frames)};
    cpu_->process({&chunk, 1}, 0);
  });
}

void FailoverExecutor::compute_kept(SlotChunk& piece) noexcept {
  const std::int64_t first = stream(piece.slot).received;
  piece.frames_emitted = 0;
  for_kept(piece.slot, first, first + piece.input.frames, [&](const FrameView& frames) {
    const std::int64_t room = piece.output.frames - piece.frames_emitted;
    SlotChunk part{piece.slot, frames, piece.output.slice(piece.frames_emitted, room)};
    cpu_->process({&part, 1}, 0);
    piece.frames_emitted += part.frames_emitted;
  });
}

}  // namespace halotap::pipeline
