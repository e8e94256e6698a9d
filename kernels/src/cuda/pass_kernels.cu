// Pure copies of rows, a row being one channel of one layer of one item:
//
//     grid   (ceil(most_channels / rows of a block), layers, items)        block   128 threads
//
// The lanes of a row are as many as take its longest copy at once, 16 bytes each: a lane for 4 frames, a warp for 128
// and more. So short rows of neighbouring channels, which lie side by side in a caller's memory and in the state, share
// a warp's access. No shared memory, a few registers. Bytes a pass: every halo read and written twice, input and output
// once each.
#include <algorithm>
#include <bit>
#include <cstdint>

#include "cuda/pass_kernels.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kThreads = 4 * kWarp;
constexpr std::int64_t kQuad = kAlignFrames;

// The row that this lane has a part in.
struct Row {
  std::int64_t channel;
  std::int64_t layer;
  std::int64_t item;
  unsigned lane;
  unsigned lanes;  // of the row: a power of two up to a warp
};

__device__ Row row_of_lane(std::int64_t layer, unsigned lanes) {
  return {static_cast<std::int64_t>(blockIdx.x) * (kThreads / lanes) + threadIdx.x / lanes, layer,
          static_cast<std::int64_t>(blockIdx.z), threadIdx.x % lanes, lanes};
}

// The first new frame of the row in its window.
__device__ float* first_new_frame(const PassArrays& arrays, const PassLayer& layer, const Row& row) {
  return arrays.d_windows + row.item * arrays.window_floats + layer.window_offset + row.channel * layer.window_stride +
         layer.lead_frames;
}

__device__ float* state_of(const PassArrays& arrays, const PassLayer& layer, const Row& row, std::int64_t slot) {
  return arrays.d_state + slot * arrays.state_floats + layer.state_offset + row.channel * layer.halo_frames;
}

__device__ void copy_frames(const Row& row, const float* from, float* to, std::int64_t frames) {
  const auto places = reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to);
  if (places % sizeof(float4) == 0 && frames % kQuad == 0) {
    for (std::int64_t q = row.lane; q < frames / kQuad; q += row.lanes) {
      reinterpret_cast<float4*>(to)[q] = reinterpret_cast<const float4*>(from)[q];
    }
  } else {
    for (std::int64_t t = row.lane; t < frames; t += row.lanes) to[t] = from[t];
  }
}

__device__ void fill_frames(const Row& row, float value, float* to, std::int64_t frames) {
  for (std::int64_t t = row.lane; t < frames; t += row.lanes) to[t] = value;
}

// What changes from pass to pass of a layer's item; the rest was written when the device was made.
__device__ void set_frames(const PassArrays& arrays, const Row& row, std::int64_t frames, RealFrames y) {
  Item& item = arrays.d_items[row.layer * arrays.max_items + row.item];
  item.frames = frames;
  item.x_end = frames + arrays.d_layers[row.layer].right_frames;
  item.y_begin = y.begin;
  item.y_end = y.end;
}

__global__ void __launch_bounds__(kThreads)
    hold_layer_kernel(PassArrays arrays, std::int64_t layer_index, unsigned lanes) {
  const Row row = row_of_lane(layer_index, lanes);
  const PassLayer& layer = arrays.d_layers[layer_index];
  if (row.channel >= layer.channels) return;
  const bool starts = arrays.entries[row.item].start_hold;
  if (row.channel == 0 && row.lane == 0 && layer_index < arrays.layer_count) {
    set_frames(arrays, row, starts ? 1 : 0, {0, 1});
  }
  if (!starts) return;
  float* first = first_new_frame(arrays, layer, row);
  const float held = layer_index == 0 ? arrays.frames_to_hold[row.item * layer.channels + row.channel] : *first;
  fill_frames(row, held, first - layer.halo_frames, layer.halo_frames);
  if (layer_index == 0 && row.lane == 0) *first = held;
}

__global__ void __launch_bounds__(kThreads) begin_pass_kernel(PassArrays arrays, unsigned lanes) {
  const Row row = row_of_lane(blockIdx.y, lanes);
  const PassLayer& layer = arrays.d_layers[row.layer];
  if (row.channel >= layer.channels) return;
  const PassEntry& entry = arrays.entries[row.item];
  if (row.channel == 0 && row.lane == 0) {
    set_frames(arrays, row, entry.frames, real_frames(entry, arrays.d_layers[row.layer + 1].lag_frames));
  }
  float* first = first_new_frame(arrays, layer, row);
  if (entry.fresh && !entry.start_hold) {
    fill_frames(row, 0.0f, first - layer.halo_frames, layer.halo_frames);
  } else if (!entry.start_hold) {
    copy_frames(row, state_of(arrays, layer, row, entry.slot), first - layer.halo_frames, layer.halo_frames);
  }
  if (row.layer == 0) {
    const std::int64_t end = real_frames(entry, 0).end;
    copy_frames(row, entry.input + row.channel * entry.in_stride, first, end);
    fill_frames(row, 0.0f, first + end, entry.frames - end);
  }
}

__global__ void __launch_bounds__(kThreads) end_pass_kernel(PassArrays arrays, unsigned lanes) {
  const Row row = row_of_lane(blockIdx.y, lanes);
  const PassLayer& layer = arrays.d_layers[row.layer];
  if (row.channel >= layer.channels) return;
  const PassEntry& entry = arrays.entries[row.item];
  const float* first = first_new_frame(arrays, layer, row);
  if (row.layer == arrays.layer_count) {
    if (*arrays.d_given_up != 0) return;
    copy_frames(row, first, entry.output + row.channel * entry.out_stride, entry.frames);
    return;
  }
  copy_frames(row, first + entry.frames - layer.halo_frames, state_of(arrays, layer, row, entry.slot),
              layer.halo_frames);
}

// Lanes of a row for copies of up to so many frames.
unsigned lanes_of(std::int64_t frames) {
  const std::int64_t quads = std::clamp<std::int64_t>((frames + kQuad - 1) / kQuad, 1, kWarp);
  return std::bit_ceil(static_cast<unsigned>(quads));
}

dim3 grid_of(const PassArrays& arrays, unsigned lanes, std::int64_t layers, std::int64_t items) {
  const std::int64_t rows = kThreads / lanes;
  return {static_cast<unsigned>((arrays.most_channels + rows - 1) / rows), static_cast<unsigned>(layers),
          static_cast<unsigned>(items)};
}

}  // namespace

cudaError_t hold_layer(const PassArrays& arrays, std::int64_t layer, std::int64_t items, cudaStream_t stream) noexcept {
  const unsigned lanes = lanes_of(arrays.longest_halo);
  hold_layer_kernel<<<grid_of(arrays, lanes, 1, items), kThreads, 0, stream>>>(arrays, layer, lanes);
  return cudaGetLastError();
}

cudaError_t begin_pass(const PassArrays& arrays, std::int64_t items, std::int64_t max_frames,
                       cudaStream_t stream) noexcept {
  const unsigned lanes = lanes_of(std::max(arrays.longest_halo, max_frames));
  begin_pass_kernel<<<grid_of(arrays, lanes, arrays.layer_count, items), kThreads, 0, stream>>>(arrays, lanes);
  return cudaGetLastError();
}

cudaError_t end_pass(const PassArrays& arrays, std::int64_t items, std::int64_t max_frames,
                     cudaStream_t stream) noexcept {
  const unsigned lanes = lanes_of(std::max(arrays.longest_halo, max_frames));
  end_pass_kernel<<<grid_of(arrays, lanes, arrays.layer_count + 1, items), kThreads, 0, stream>>>(arrays, lanes);
  return cudaGetLastError();
}

cudaError_t load_pass_kernels() noexcept {
  cudaError_t result = cudaSuccess;
  cudaFuncAttributes attributes;
  for (const void* kernel :
       {reinterpret_cast<const void*>(hold_layer_kernel), reinterpret_cast<const void*>(begin_pass_kernel),
        reinterpret_cast<const void*>(end_pass_kernel)}) {
    if (result == cudaSuccess) result = cudaFuncGetAttributes(&attributes, kernel);
  }
  return result;
}

}  // namespace halotap::kernels::cuda
