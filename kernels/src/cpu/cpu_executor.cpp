#include <algorithm>
#include <cassert>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cpu/history_ring.hpp"
#include "cpu/layer_kernels.hpp"
#include "float_mode.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels {
namespace cpu {
namespace {

// A chunk goes through the whole stack in even steps, so that a layer's activations stay in the first-level cache
// between depthwise and mix, and the state does not grow with the chunk. 48 fills the registers' tiles of 12 and 6
// frames.
constexpr std::int64_t kStepFrames = 48;
// Long dilated kernels take longer steps, of up to 64 KiB a row of activations: a step then has this many frames a
// dilation apart, which share their input rows.
constexpr std::int64_t kStepDilations = 8;
constexpr std::int64_t kMaxStepFloats = 16384;
constexpr std::int64_t kMaxStreams = std::int64_t{1} << 20;
constexpr std::int64_t kMaxWorkers = 1024;
constexpr std::int64_t kForever = std::int64_t{1} << 62;  // sums with it stay inside 64 bits

AlignedFloats allocate_zeros(std::int64_t count) {
  AlignedFloats floats = hwy::AllocateAligned<float>(static_cast<std::size_t>(std::max<std::int64_t>(count, 1)));
  if (floats == nullptr) throw std::bad_alloc();
  std::memset(floats.get(), 0, static_cast<std::size_t>(count) * sizeof(float));
  return floats;
}

AlignedFloats pack_vector(const std::vector<double>& values, std::int64_t stride) {
  AlignedFloats packed = allocate_zeros(std::max(stride, kRowFloats));
  std::transform(values.begin(), values.end(), packed.get(), [](double value) { return static_cast<float>(value); });
  return packed;
}

// Repeats each narrow row, the first `stride` floats of kRowFloats, to the end of those.
void repeat_rows(std::int64_t rows, std::int64_t stride, float* packed) {
  for (std::int64_t row = 0; row < rows; ++row, packed += kRowFloats) {
    for (std::int64_t i = stride; i < kRowFloats; ++i) packed[i] = packed[i - stride];
  }
}

PackedLayer pack(const Layer& layer, const LayerKernels& kernels) {
  const LayerSpec& spec = layer.spec;
  PackedLayer packed{spec.type,
                     spec.activation,
                     spec.residual,
                     layer.has_mix(),
                     spec.in_channels,
                     spec.out_channels,
                     row_stride(spec.in_channels),
                     row_stride(spec.out_channels),
                     spec.kernel_size,
                     spec.dilation,
                     spec.left_frames(),
                     spec.right_frames(),
                     nullptr,
                     nullptr,
                     allocate_zeros(kernels.pointwise_size(spec.in_channels, spec.out_channels)),
                     pack_vector(layer.weights.pw_bias, row_stride(spec.out_channels))};
  kernels.pack_pointwise(layer.weights.pw_weight.data(), spec.in_channels, spec.out_channels, packed.pw_weight.get());
  if (spec.type == LayerType::kPointwise) return packed;

  const FoldedDepthwise folded = fold_batch_norm(spec, layer.weights);
  packed.dw_bias = pack_vector(folded.bias, packed.in_stride);
  const std::int64_t tap = std::max(packed.in_stride, kRowFloats);
  packed.dw_weight = allocate_zeros(spec.kernel_size * tap);
  for (std::int64_t c = 0; c < spec.in_channels; ++c) {
    for (std::int64_t k = 0; k < spec.kernel_size; ++k) {
      packed.dw_weight[static_cast<std::size_t>(k * tap + c)] =
          static_cast<float>(folded.weight[static_cast<std::size_t>(c * spec.kernel_size + k)]);
    }
  }
  if (packed.in_stride < kRowFloats) {
    repeat_rows(1, packed.in_stride, packed.dw_bias.get());
    repeat_rows(spec.kernel_size, packed.in_stride, packed.dw_weight.get());
  }
  return packed;
}

std::int64_t longest_step(const Stack& stack) {
  std::int64_t frames = kStepFrames;
  std::int64_t widest = 0;
  for (const Layer& layer : stack.layers()) {
    const LayerSpec& spec = layer.spec;
    widest = std::max({widest, row_stride(spec.in_channels), row_stride(spec.out_channels)});
    if (spec.kernel_size >= kLongKernel) frames = std::max(frames, kStepDilations * spec.dilation);
  }
  return std::min(frames, std::max(kStepFrames, kMaxStepFloats / widest));
}

// Runs all layers over a step of m frames at a time. Layer l's input lags the stream's by D_l = sum of right_frames of
// the layers before it, so every layer takes m frames and gives m frames a step:
//
//     layer l takes its input at times [n - D_l, n - D_l + m) and gives its output at times [n - D_(l+1), ... + m)
//
// with n the frames received before. A row whose time lies outside the recording [first time, end) is not computed but
// set to zero, as the offline run pads every layer. A held stream has no first time: its past is endless.
class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const Stack& stack, const ExecutorSpec& spec)
      : kernels_(layer_kernels()),
        step_frames_(std::min(spec.max_chunk_frames, longest_step(stack))),
        lookahead_(stack.lookahead_frames()),
        streams_(static_cast<std::size_t>(spec.max_streams)) {
    const FloatMode mode;  // weights are rounded below
    std::int64_t widest = 0;
    for (const Layer& layer : stack.layers()) {
      layers_.push_back(pack(layer, kernels_));
      const PackedLayer& packed = layers_.back();
      widest = std::max({widest, packed.in_stride, packed.out_stride});
      history_offset_.push_back(state_floats_);
      if (packed.halo_frames() > 0) {
        state_floats_ += HistoryRing::size(packed.halo_frames(), step_frames_, packed.in_stride);
      }
    }
    if (state_floats_ > std::numeric_limits<std::int64_t>::max() / 4 / spec.max_streams) throw std::bad_alloc();
    state_ = allocate_zeros(state_floats_ * spec.max_streams);
    ring_starts_.assign(layers_.size() * streams_.size(), 0);
    for (std::int64_t worker = 0; worker < spec.max_workers; ++worker) scratch_.emplace_back(step_frames_, widest);
  }

  void reset(std::int64_t slot, const Fill& fill) noexcept HALOTAP_NONBLOCKING override {
    const FloatMode mode;
    Stream& stream = this->stream(slot);
    stream = Stream{};
    switch (fill.kind) {
      case FillKind::kZeros:
        for (std::size_t l = 0; l < layers_.size(); ++l) {
          if (layers_[l].halo_frames() > 0) ring(slot, l).clear();
        }
        break;
      case FillKind::kHoldFirst:
        stream.hold_first = true;
        break;
      case FillKind::kFrame:
        hold(slot, ConstFrameView{fill.frame, layers_.front().in_channels, 1, 1, 0}, scratch_.front());
        break;
    }
  }

  void process(std::span<SlotChunk> chunks, std::int64_t worker) noexcept HALOTAP_NONBLOCKING override {
    const FloatMode mode;
    Scratch& scratch = scratch_[static_cast<std::size_t>(worker)];
    for (SlotChunk& chunk : chunks) {
      Stream& stream = this->stream(chunk.slot);
      if (stream.hold_first && chunk.input.frames > 0) hold(chunk.slot, chunk.input.slice(0, 1), scratch);
      chunk.frames_emitted = 0;
      for (std::int64_t done = 0; done < chunk.input.frames;) {
        const std::int64_t frames = step_of(chunk.input.frames - done);
        const float* rows = step(chunk.slot, &chunk.input, done, frames, kForever, scratch);
        const std::int64_t early = std::clamp<std::int64_t>(lookahead_ - stream.received, 0, frames);
        emit(rows, early, frames, chunk.output, chunk.frames_emitted);
        chunk.frames_emitted += frames - early;
        stream.received += frames;
        done += frames;
      }
    }
  }

  std::int64_t flush(std::int64_t slot, FrameView output) noexcept HALOTAP_NONBLOCKING override {
    std::int64_t emitted = 0;
    {
      const FloatMode mode;
      const std::int64_t end = stream(slot).received;
      for (std::int64_t done = 0; end > 0 && done < lookahead_;) {
        const std::int64_t frames = step_of(lookahead_ - done);
        const float* rows = step(slot, nullptr, 0, frames, end, scratch_.front());
        const std::int64_t early = std::clamp<std::int64_t>(lookahead_ - stream(slot).received, 0, frames);
        emit(rows, early, frames, output, emitted);
        emitted += frames - early;
        stream(slot).received += frames;
        done += frames;
      }
    }
    reset(slot, Fill{});
    return emitted;
  }

  std::size_t state_bytes() const noexcept override { return static_cast<std::size_t>(state_floats_) * sizeof(float); }

  std::string description() const override { return std::string("cpu (") + kernels_.level + ")"; }

 private:
  struct Stream {
    std::int64_t received = 0;  // frames since the beginning; during flush also the frames after the end
    bool held = false;          // the past is a frame repeated for ever, not zeros
    bool hold_first = false;    // the first frame to come will be that frame
  };

  // What a computation needs besides the streams' state; one a worker.
  struct Scratch {
    AlignedFloats activations;  // [step_frames_, widest row]
    AlignedFloats rows[2];      // [step_frames_, widest row] each

    Scratch(std::int64_t step_frames, std::int64_t widest)
        : activations(allocate_zeros(rows_floats(step_frames, widest))),
          rows{allocate_zeros(rows_floats(step_frames, widest)), allocate_zeros(rows_floats(step_frames, widest))} {}
  };

  // The next step of `frames` frames that are left: as few steps as there can be, of even length.
  std::int64_t step_of(std::int64_t frames) const {
    const std::int64_t steps = (frames + step_frames_ - 1) / step_frames_;
    return (frames + steps - 1) / steps;
  }

  Stream& stream(std::int64_t slot) { return streams_[static_cast<std::size_t>(slot)]; }

  HistoryRing ring(std::int64_t slot, std::size_t l) {
    const PackedLayer& layer = layers_[l];
    return HistoryRing(state_.get() + slot * state_floats_ + history_offset_[l],
                       ring_starts_[static_cast<std::size_t>(slot) * layers_.size() + l], layer.halo_frames(),
                       step_frames_, layer.in_stride);
  }

  // Where the rows that layer l takes are: its stream's ring behind the halo, or, without a halo, scratch rows that the
  // layers use in turn. One past the last layer: the stack's output.
  float* input_rows(std::int64_t slot, std::size_t l, Scratch& scratch) {
    if (l < layers_.size() && layers_[l].halo_frames() > 0) {
      return ring(slot, l).window() + layers_[l].halo_frames() * layers_[l].in_stride;
    }
    return scratch.rows[l % 2].get();
  }

  // Runs one step of `frames` frames, taken from `input` (zeros when null: past the end) at frame `first`, and returns
  // the output rows.
  const float* step(std::int64_t slot, const ConstFrameView* input, std::int64_t first, std::int64_t frames,
                    std::int64_t end, Scratch& scratch) {
    const std::int64_t begin = stream(slot).held ? -kForever : 0;
    float* rows = input_rows(slot, 0, scratch);
    if (input != nullptr) {
      read(*input, first, frames, layers_.front().in_stride, rows);
    } else {
      std::fill_n(rows, frames * layers_.front().in_stride, 0.0f);
    }
    std::int64_t time = stream(slot).received;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      time -= layers_[l].right_frames;
      const auto row_of = [&](std::int64_t t) { return std::clamp<std::int64_t>(t - time, 0, frames); };
      run_layer(slot, l, row_of(begin), row_of(end), frames, scratch);
      if (layers_[l].halo_frames() > 0) ring(slot, l).advance(frames);
    }
    return input_rows(slot, layers_.size(), scratch);
  }

  // Layer l's output rows for its current window: rows [from, to) computed, the others of `frames` zero.
  void run_layer(std::int64_t slot, std::size_t l, std::int64_t from, std::int64_t to, std::int64_t frames,
                 Scratch& scratch) {
    const PackedLayer& layer = layers_[l];
    const float* window = layer.halo_frames() > 0 ? ring(slot, l).window() : input_rows(slot, l, scratch);
    float* output = input_rows(slot, l + 1, scratch);
    std::fill_n(output, from * layer.out_stride, 0.0f);
    if (from < to) {
      compute(layer, window + from * layer.in_stride, to - from, output + from * layer.out_stride, scratch);
    }
    std::fill_n(output + to * layer.out_stride, (frames - to) * layer.out_stride, 0.0f);
  }

  // `frames` (at least 1) output rows from the window that begins with the first row's halo.
  void compute(const PackedLayer& layer, const float* window, std::int64_t frames, float* output, Scratch& scratch) {
    if (layer.type == LayerType::kPointwise) {
      kernels_.pointwise(layer, window, nullptr, frames, output);
      return;
    }
    if (!layer.has_mix) {
      kernels_.depthwise(layer, window, frames, output);
      return;
    }
    kernels_.depthwise(layer, window, frames, scratch.activations.get());
    const float* residual = layer.residual ? window + layer.left_frames * layer.in_stride : nullptr;
    kernels_.pointwise(layer, scratch.activations.get(), residual, frames, output);
  }

  // Gives the stream an endless past of one frame: each layer's history is its own steady input, found by running the
  // layers once over constant windows. The same kernels in the same order, so the bits are those of a stream that did
  // receive the frame for ever.
  void hold(std::int64_t slot, const ConstFrameView& frame, Scratch& scratch) {
    stream(slot) = Stream{.held = true};
    read(frame, 0, 1, layers_.front().in_stride, scratch.rows[0].get());
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const PackedLayer& layer = layers_[l];
      const float* steady = scratch.rows[l % 2].get();
      const float* window = steady;
      if (layer.halo_frames() > 0) {
        HistoryRing history = ring(slot, l);
        history.fill(steady);
        std::copy_n(steady, layer.in_stride, history.window() + layer.halo_frames() * layer.in_stride);
        window = history.window();
      }
      compute(layer, window, 1, scratch.rows[(l + 1) % 2].get(), scratch);
    }
  }

  // Copies frames out of a caller's view into rows.
  void read(const ConstFrameView& input, std::int64_t first, std::int64_t frames, std::int64_t stride,
            float* rows) const {
    assert(input.channels <= stride);
    if (input.channel_stride == 1) {
      for (std::int64_t t = 0; t < frames; ++t) std::copy_n(&input(0, first + t), input.channels, rows + t * stride);
    } else if (input.frame_stride == 1) {
      kernels_.read_planar(&input(0, first), input.channel_stride, input.channels, frames, rows, stride);
    } else {
      for (std::int64_t t = 0; t < frames; ++t) {
        for (std::int64_t c = 0; c < input.channels; ++c) rows[t * stride + c] = input(c, first + t);
      }
    }
  }

  // Copies rows [from, to) into a caller's view, from its frame `first` on.
  void emit(const float* rows, std::int64_t from, std::int64_t to, const FrameView& output, std::int64_t first) const {
    if (from >= to) return;
    assert(first + to - from <= output.frames);
    const std::int64_t stride = layers_.back().out_stride;
    rows += from * stride;
    if (output.channel_stride == 1) {
      for (std::int64_t t = 0; t < to - from; ++t) {
        std::copy_n(rows + t * stride, output.channels, &output(0, first + t));
      }
    } else if (output.frame_stride == 1) {
      kernels_.write_planar(rows, stride, output.channels, to - from, &output(0, first), output.channel_stride);
    } else {
      for (std::int64_t t = 0; t < to - from; ++t) {
        for (std::int64_t o = 0; o < output.channels; ++o) output(o, first + t) = rows[t * stride + o];
      }
    }
  }

  const LayerKernels& kernels_;
  const std::int64_t step_frames_;
  const std::int64_t lookahead_;
  std::vector<PackedLayer> layers_;
  std::vector<std::int64_t> history_offset_;  // floats, of each layer's ring inside a stream's state
  std::int64_t state_floats_ = 0;             // a stream

  std::vector<Stream> streams_;
  AlignedFloats state_;                    // [max_streams, state_floats_]
  std::vector<std::int64_t> ring_starts_;  // [max_streams, layers]
  std::vector<Scratch> scratch_;           // [max_workers]
};

}  // namespace
}  // namespace cpu

std::unique_ptr<Executor> make_cpu_executor(std::shared_ptr<const Stack> stack, const ExecutorSpec& spec) {
  if (spec.max_streams < 1 || spec.max_streams > cpu::kMaxStreams) {
    throw std::invalid_argument("max_streams: expected 1 to " + std::to_string(cpu::kMaxStreams) + ", got " +
                                std::to_string(spec.max_streams));
  }
  if (spec.max_chunk_frames < 1) {
    throw std::invalid_argument("max_chunk_frames: expected at least 1, got " + std::to_string(spec.max_chunk_frames));
  }
  if (spec.max_workers < 1 || spec.max_workers > cpu::kMaxWorkers) {
    throw std::invalid_argument("max_workers: expected 1 to " + std::to_string(cpu::kMaxWorkers) + ", got " +
                                std::to_string(spec.max_workers));
  }
  if (spec.precision != Precision::kFp32) {
    throw std::invalid_argument("precision: the cpu backend computes in fp32, got " +
                                std::string(to_string(spec.precision)));
  }
  return std::make_unique<cpu::CpuExecutor>(*stack, spec);
}

}  // namespace halotap::kernels
