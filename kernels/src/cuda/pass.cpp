#include "cuda/pass.hpp"

#include <algorithm>
#include <limits>
#include <new>
#include <stdexcept>

namespace halotap::kernels::cuda {
namespace {

constexpr std::int64_t kMaxStreams = std::int64_t{1} << 20;
// A quarter of a gigabyte of windows. 16 recordings of 2048 frames of 128 channels, which fill the largest cards, are
// 8 million floats a layer.
constexpr std::int64_t kMostWindowFloats = std::int64_t{1} << 26;
// Below this, halos and launches cost more than frames; fewer items then, not shorter steps.
constexpr std::int64_t kLeastStepFrames = 16;
constexpr std::int64_t kMostItems = 65535;  // the third axis of a grid

std::int64_t aligned(std::int64_t frames) { return (frames + kAlignFrames - 1) / kAlignFrames * kAlignFrames; }

void require_range(const char* field, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most) {
    throw std::invalid_argument(std::string(field) + ": expected 1 to " + std::to_string(most) + ", got " +
                                std::to_string(value));
  }
}

}  // namespace

PassShape make_pass_shape(const Stack& stack, const ExecutorSpec& spec) {
  require_range("max_streams", spec.max_streams, kMaxStreams);
  require_range("max_chunk_frames", spec.max_chunk_frames, std::numeric_limits<std::int64_t>::max());
  if (spec.max_workers != 1) {
    throw std::invalid_argument(
        "max_workers: the cuda backend computes on the device for one thread, expected 1, got " +
        std::to_string(spec.max_workers));
  }
  PassShape shape;
  shape.max_slots = spec.max_streams;
  shape.macs_per_frame = stack.macs_per_frame();
  std::int64_t lead_floats = 0;  // an item's windows before their new frames
  std::int64_t frame_floats = 0;
  std::int64_t lag = 0;
  const auto add = [&](std::int64_t channels, std::int64_t halo, std::int64_t right) {
    PassLayer layer;
    layer.channels = channels;
    layer.halo_frames = halo;
    layer.right_frames = right;
    layer.lag_frames = lag;
    layer.lead_frames = aligned(halo);
    layer.state_offset = shape.state_floats;
    shape.layers.push_back(layer);
    lag += right;
    shape.state_floats += channels * halo;
    lead_floats += channels * layer.lead_frames;
    frame_floats += channels;
  };
  for (const Layer& layer : stack.layers()) {
    add(layer.spec.in_channels, layer.spec.halo_frames(), layer.spec.right_frames());
  }
  add(stack.out_channels(), 0, 0);

  const std::int64_t streams = std::min(spec.max_streams, kMostItems);
  const std::int64_t room = (kMostWindowFloats / streams - lead_floats) / frame_floats;  // frames; negative: none
  shape.step_frames = std::min(spec.max_chunk_frames, std::max(room, kLeastStepFrames));
  const std::int64_t step_stride = aligned(shape.step_frames);
  for (PassLayer& layer : shape.layers) {
    layer.window_stride = layer.lead_frames + step_stride;
    layer.window_offset = shape.window_floats;
    shape.window_floats += layer.channels * layer.window_stride;
  }
  shape.max_items = std::clamp<std::int64_t>(kMostWindowFloats / shape.window_floats, 1, streams);
  shape.in_stride = step_stride;
  shape.out_stride = step_stride;
  if (shape.state_floats > std::numeric_limits<std::int64_t>::max() / 8 / shape.max_slots) throw std::bad_alloc();
  return shape;
}

std::int64_t answer_limit_ns(const PassShape& shape, std::span<const PassEntry> entries) noexcept {
  constexpr std::int64_t kAnswerNs = 100'000'000;
  constexpr std::int64_t kMacsPerNs = 100;
  constexpr std::int64_t kNsPerFloat = 4;
  std::int64_t frames = 0;
  for (const PassEntry& entry : entries) frames += entry.frames;
  std::int64_t frame_floats = 0;
  for (const PassLayer& layer : shape.layers) frame_floats += layer.channels;
  const std::int64_t floats = frames * frame_floats + std::ssize(entries) * shape.state_floats;
  return kAnswerNs + frames * shape.macs_per_frame / kMacsPerNs + floats * kNsPerFloat;
}

}  // namespace halotap::kernels::cuda
