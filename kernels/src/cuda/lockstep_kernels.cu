// Transposition: a stream's samples lie channel after channel, frame after frame, in the state and in host memory
// ([elements] of one item), and stream after stream in a window ([rows, group]). A block turns a tile of both:
//
//     grid   (ceil(items / 32), ceil(most elements / 128), layers + 1)        block   256 threads
//     most elements: of any layer's halo, and of any layer's new frames
//     z = 0: input or output; z = 1 + l: state of layer l
//
// Elements are read and written 512 bytes a warp where they lie so, rows in pieces of `group` samples. 16.5 KiB of
// shared memory. Bytes a pass: every halo read and written twice, input and output once each.
#include <algorithm>
#include <cstdint>

#include "cuda/lockstep_kernels.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kTileItems = kWarp;
constexpr int kTileElements = 128;
static_assert(kMostLockstepHaloSamples == std::int64_t{65535} * kTileElements);

// One more than the items: a warp's samples of one item, or of one element, then lie in different banks.
using TileRows = float[kTileElements][kTileItems + 1];

// What a block moves: `row_frames` frames of every channel of a layer, which begin at `first_row` of its window.
struct Share {
  const PassLayer* layer;
  int row_frames;
  int first_row;
  int first;  // element of the tile
  int count;  // elements of it: none for a block that is too much

  __device__ Share(const PassLayer& of, std::int64_t frames, std::int64_t first_frame)
      : layer(&of),
        row_frames(static_cast<int>(frames)),
        first_row(static_cast<int>(first_frame)),
        first(static_cast<int>(blockIdx.y) * kTileElements),
        count(min(kTileElements, static_cast<int>(of.channels * frames) - first)) {}
};

// Calls take(sample of the window, sample of the tile) for every one that this thread moves.
template <typename Take>
__device__ void for_each_of_window(const PassArrays& arrays, const Share& share, int groups, int frames,
                                   TileRows& s_tile, const Take& take) {
  const PassLayer& layer = *share.layer;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int item = static_cast<int>(blockIdx.x) * kTileItems + lane;
  const int group = static_cast<int>(arrays.group);
  if (item >= groups * group) return;
  const int rows = static_cast<int>(layer.halo_frames) + frames;
  float* windows = arrays.d_windows + layer.window_offset * arrays.window_items;
  for (int j = static_cast<int>(threadIdx.x) / kWarp; j < share.count; j += kWarps) {
    const int channel = (share.first + j) / share.row_frames;
    const int row = share.first_row + (share.first + j) % share.row_frames;
    const std::int64_t place = (std::int64_t{channel} * groups + item / group) * rows + row;
    take(windows[place * group + item % group], s_tile[j][lane]);
  }
}

// An item's [channels, row_frames] in memory; data null: zeros.
template <typename Sample>
struct Elements {
  Sample* data;
  std::int64_t stride;  // from a channel to the next

  // Whether four side by side are one access, of those from `first` on, a multiple of four.
  __device__ bool has_quads(const Share& share) const {
    return stride == share.row_frames && share.count % 4 == 0 && reinterpret_cast<std::uintptr_t>(data) % 16 == 0;
  }
  __device__ Sample* at(const Share& share, int element) const {
    if (stride == share.row_frames) return data + element;
    return data + element / share.row_frames * stride + element % share.row_frames;
  }
};

// A warp copies what the tile has of its item i, from or to memory: 512 bytes at once where it can. To the host in
// smaller pieces takes several times as long.
__device__ void read_item(const Share& share, const Elements<const float>& elements, int i, TileRows& s_tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (elements.data == nullptr || elements.has_quads(share)) {
    const int j = 4 * lane;
    if (j >= share.count) return;
    float4 quad = make_float4(0, 0, 0, 0);
    if (elements.data != nullptr) quad = *reinterpret_cast<const float4*>(elements.data + share.first + j);
    s_tile[j][i] = quad.x;
    s_tile[j + 1][i] = quad.y;
    s_tile[j + 2][i] = quad.z;
    s_tile[j + 3][i] = quad.w;
    return;
  }
  for (int j = lane; j < share.count; j += kWarp) s_tile[j][i] = *elements.at(share, share.first + j);
}
__device__ void write_item(const Share& share, const Elements<float>& elements, int i, const TileRows& s_tile) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (elements.has_quads(share)) {
    const int j = 4 * lane;
    if (j >= share.count) return;
    *reinterpret_cast<float4*>(elements.data + share.first + j) =
        make_float4(s_tile[j][i], s_tile[j + 1][i], s_tile[j + 2][i], s_tile[j + 3][i]);
    return;
  }
  for (int j = lane; j < share.count; j += kWarp) *elements.at(share, share.first + j) = s_tile[j][i];
}

__global__ void __launch_bounds__(kThreads)
    begin_lockstep_kernel(PassArrays arrays, int items, int groups, int frames) {
  __shared__ TileRows s_tile;
  const bool is_input = blockIdx.z == 0;
  const PassLayer& layer = arrays.d_layers[is_input ? 0 : blockIdx.z - 1];
  const Share share(layer, is_input ? frames : layer.halo_frames, is_input ? layer.halo_frames : 0);
  if (share.count <= 0) return;
#pragma unroll
  for (int turn = 0; turn < kTileItems; turn += kWarps) {
    const int i = turn + static_cast<int>(threadIdx.x) / kWarp;
    const int item = static_cast<int>(blockIdx.x) * kTileItems + i;
    Elements<const float> from{nullptr, share.row_frames};
    if (item < items) {
      const PassEntry& entry = arrays.entries[item];
      if (is_input) {
        from = {entry.input, entry.in_stride};
      } else if (!entry.fresh) {
        from.data = arrays.d_state + entry.slot * arrays.state_floats + layer.state_offset;
      }
    }
    read_item(share, from, i, s_tile);
  }
  __syncthreads();  // the tile is whole
  for_each_of_window(arrays, share, groups, frames, s_tile, [](float& sample, float s_sample) { sample = s_sample; });
}

__global__ void __launch_bounds__(kThreads) end_lockstep_kernel(PassArrays arrays, int items, int groups, int frames) {
  __shared__ TileRows s_tile;
  const bool is_output = blockIdx.z == 0;
  const PassLayer& layer = arrays.d_layers[is_output ? arrays.layer_count : blockIdx.z - 1];
  const Share share(layer, is_output ? frames : layer.halo_frames, is_output ? 0 : frames);
  if (share.count <= 0) return;
  for_each_of_window(arrays, share, groups, frames, s_tile, [](float sample, float& s_sample) { s_sample = sample; });
  __syncthreads();  // the tile is whole
  if (is_output && *arrays.d_given_up != 0) return;
#pragma unroll
  for (int turn = 0; turn < kTileItems; turn += kWarps) {
    const int i = turn + static_cast<int>(threadIdx.x) / kWarp;
    const int item = static_cast<int>(blockIdx.x) * kTileItems + i;
    if (item >= items) return;
    const PassEntry& entry = arrays.entries[item];
    float* state = arrays.d_state + entry.slot * arrays.state_floats + layer.state_offset;
    write_item(share,
               is_output ? Elements<float>{entry.output, entry.out_stride} : Elements<float>{state, share.row_frames},
               i, s_tile);
  }
}

dim3 grid_of(const PassArrays& arrays, std::int64_t items, std::int64_t frames) {
  const std::int64_t elements = std::max(arrays.most_halo_samples, arrays.most_channels * frames);
  return {static_cast<unsigned>((items + kTileItems - 1) / kTileItems),
          static_cast<unsigned>((elements + kTileElements - 1) / kTileElements),
          static_cast<unsigned>(arrays.layer_count + 1)};
}

}  // namespace

cudaError_t begin_lockstep(const PassArrays& arrays, std::int64_t items, std::int64_t frames,
                           cudaStream_t stream) noexcept {
  const std::int64_t groups = (items + arrays.group - 1) / arrays.group;
  begin_lockstep_kernel<<<grid_of(arrays, items, frames), kThreads, 0, stream>>>(
      arrays, static_cast<int>(items), static_cast<int>(groups), static_cast<int>(frames));
  return cudaGetLastError();
}

cudaError_t end_lockstep(const PassArrays& arrays, std::int64_t items, std::int64_t frames,
                         cudaStream_t stream) noexcept {
  const std::int64_t groups = (items + arrays.group - 1) / arrays.group;
  end_lockstep_kernel<<<grid_of(arrays, items, frames), kThreads, 0, stream>>>(
      arrays, static_cast<int>(items), static_cast<int>(groups), static_cast<int>(frames));
  return cudaGetLastError();
}

}  // namespace halotap::kernels::cuda
