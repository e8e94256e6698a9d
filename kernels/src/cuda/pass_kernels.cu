// Pure copies, a warp a row of a window (one channel of one layer of one item), 128 bytes an access:
//
//     grid   (ceil(most_channels / 8), layers, items)        block   256 threads, 8 rows
//
// No shared memory, a few registers. Bytes a pass: every halo read and written twice, input and output once each.
#include <cstdint>

#include "cuda/pass_kernels.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kRows = 8;  // of a block
constexpr unsigned kThreads = kRows * kWarp;

// The row that this warp copies.
struct Row {
  std::int64_t channel;
  std::int64_t layer;
  std::int64_t item;
  unsigned lane;
};

__device__ Row row_of_warp(std::int64_t layer) {
  return {static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp, layer,
          static_cast<std::int64_t>(blockIdx.z), threadIdx.x % kWarp};
}

// The first new frame of the row in its window.
__device__ float* first_new_frame(const PassArrays& arrays, const PassLayer& layer, const Row& row) {
  return arrays.d_windows + row.item * arrays.window_floats + layer.window_offset + row.channel * layer.window_stride +
         layer.lead_frames;
}

__device__ float* state_of(const PassArrays& arrays, const PassLayer& layer, const Row& row, std::int64_t slot) {
  return arrays.d_state + slot * arrays.state_floats + layer.state_offset + row.channel * layer.halo_frames;
}

// What changes from pass to pass of a layer's item; the rest was written when the device was made.
__device__ void set_frames(const PassArrays& arrays, const Row& row, std::int64_t frames, RealFrames y) {
  Item& item = arrays.d_items[row.layer * arrays.max_items + row.item];
  item.frames = frames;
  item.x_end = frames + arrays.d_layers[row.layer].right_frames;
  item.y_begin = y.begin;
  item.y_end = y.end;
}

__global__ void __launch_bounds__(kThreads) hold_layer_kernel(PassArrays arrays, std::int64_t layer_index) {
  const Row row = row_of_warp(layer_index);
  const PassLayer& layer = arrays.d_layers[layer_index];
  if (row.channel >= layer.channels) return;
  const bool starts = arrays.entries[row.item].start_hold;
  if (row.channel == 0 && row.lane == 0 && layer_index < arrays.layer_count) {
    set_frames(arrays, row, starts ? 1 : 0, {0, 1});
  }
  if (!starts) return;
  float* first = first_new_frame(arrays, layer, row);
  const float held = layer_index == 0 ? arrays.frames_to_hold[row.item * layer.channels + row.channel] : *first;
  for (std::int64_t t = row.lane; t < layer.halo_frames; t += kWarp) first[t - layer.halo_frames] = held;
  if (layer_index == 0 && row.lane == 0) *first = held;
}

__global__ void __launch_bounds__(kThreads) begin_pass_kernel(PassArrays arrays) {
  const Row row = row_of_warp(blockIdx.y);
  const PassLayer& layer = arrays.d_layers[row.layer];
  if (row.channel >= layer.channels) return;
  const PassEntry entry = arrays.entries[row.item];
  if (row.channel == 0 && row.lane == 0) {
    set_frames(arrays, row, entry.frames, real_frames(entry, arrays.d_layers[row.layer + 1].lag_frames));
  }
  float* first = first_new_frame(arrays, layer, row);
  if (!entry.start_hold) {
    const float* state = state_of(arrays, layer, row, entry.slot);
    for (std::int64_t t = row.lane; t < layer.halo_frames; t += kWarp) {
      first[t - layer.halo_frames] = entry.fresh ? 0.0f : state[t];
    }
  }
  if (row.layer == 0) {
    const std::int64_t end = real_frames(entry, 0).end;
    const float* input = arrays.input + (row.item * layer.channels + row.channel) * arrays.in_stride;
    for (std::int64_t t = row.lane; t < entry.frames; t += kWarp) first[t] = t < end ? input[t] : 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads) end_pass_kernel(PassArrays arrays) {
  const Row row = row_of_warp(blockIdx.y);
  const PassLayer& layer = arrays.d_layers[row.layer];
  if (row.channel >= layer.channels) return;
  const std::int64_t frames = arrays.entries[row.item].frames;
  const float* first = first_new_frame(arrays, layer, row);
  if (row.layer == arrays.layer_count) {
    float* output = arrays.output + (row.item * layer.channels + row.channel) * arrays.out_stride;
    for (std::int64_t t = row.lane; t < frames; t += kWarp) output[t] = first[t];
    return;
  }
  float* state = state_of(arrays, layer, row, arrays.entries[row.item].slot);
  for (std::int64_t t = row.lane; t < layer.halo_frames; t += kWarp) state[t] = first[frames - layer.halo_frames + t];
}

dim3 grid_of(const PassArrays& arrays, std::int64_t layers, std::int64_t items) {
  return {static_cast<unsigned>((arrays.most_channels + kRows - 1) / kRows), static_cast<unsigned>(layers),
          static_cast<unsigned>(items)};
}

}  // namespace

cudaError_t hold_layer(const PassArrays& arrays, std::int64_t layer, std::int64_t items, cudaStream_t stream) noexcept {
  hold_layer_kernel<<<grid_of(arrays, 1, items), kThreads, 0, stream>>>(arrays, layer);
  return cudaGetLastError();
}

cudaError_t begin_pass(const PassArrays& arrays, std::int64_t items, cudaStream_t stream) noexcept {
  begin_pass_kernel<<<grid_of(arrays, arrays.layer_count, items), kThreads, 0, stream>>>(arrays);
  return cudaGetLastError();
}

cudaError_t end_pass(const PassArrays& arrays, std::int64_t items, cudaStream_t stream) noexcept {
  end_pass_kernel<<<grid_of(arrays, arrays.layer_count + 1, items), kThreads, 0, stream>>>(arrays);
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
