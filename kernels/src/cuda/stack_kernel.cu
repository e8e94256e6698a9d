// A stack of layers, for many streams, in one kernel: what block.hpp's kernels do layer by layer. For layer l's input x
//
//     z[c,t] = bias[c] + sum_k taps[c,k] * x[c, t + k*dilation - left]     a = activation(z)
//     y[o,t] = row_bias[o] + sum_b (sum_(c in b) mix[o,c] * a[c,t])        (+ x[o,t])
//
// with the inner sums of block b's 16 channels in one matrix step each, two float16 terms an operand, and the outer
// ones in the order of blocks: a frame's bits depend on nothing else in its tile.
//
//     grid   (clusters * plan.blocks)   a cluster takes every clusters-th tile: up to 64 columns, items side by side
//     block  256 threads                up to 16 columns: a thread a (column, channel); more: a column, four channels
//
// A layer, in each block:
//   partial sums of the block's channels, out of all blocks, arrive -> y, into the layer's window (with its halo)
//   sums over taps, activation, scaling, splitting -> operands
//   a warp multiplies them with the columns of the mix for one block, and sends it its partial sums
//
// Shared memory: the plan's, 221 KiB, and 5 KiB beside. Up to 255 registers. Bytes a pass: inputs and outputs once,
// from and to the host; halos read, new frames of them written. A layer moves 64 bytes a column from each block to each
// other.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device_math.cuh"
#include "cuda/pass.hpp"
#include "cuda/stack_kernel.hpp"

namespace halotap::kernels::cuda {
namespace {

using Tile = StackTile;

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ std::uint32_t rank_in_cluster() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ std::uint32_t cluster_index() {
  std::uint32_t index;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ std::uint32_t cluster_count() {
  std::uint32_t count;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
  return count;
}

// The same place of shared memory in another block of the cluster.
__device__ __forceinline__ std::uint32_t address_in_block(std::uint32_t address, std::uint32_t block) {
  std::uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(block));
  return mapped;
}
// Orders reads alone, which are over when a barrier of the block has let its threads go on: a release would wait for
// what was written to the host.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

__device__ __forceinline__ void barrier_init(std::uint32_t barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_expect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}
// 16 bytes into any block's shared memory, counted by a barrier there.
__device__ __forceinline__ void send(std::uint32_t address, std::uint32_t barrier, float a, float b, float c, float d) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
      : "memory");
}

// What the host writes while the kernel runs. Not as loads of system scope, which are served one thread at a time, 30
// ns each: no line of it stays in a first-level cache, which the fence in tell_host has emptied behind the pass before,
// and into which these loads put none.
__device__ __forceinline__ float4 load_host(const float4* address) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ float load_host(const float* address) {
  float v;
  asm volatile("ld.global.L1::no_allocate.f32 %0, [%1];" : "=f"(v) : "l"(address) : "memory");
  return v;
}
__device__ __forceinline__ int4 load_host(const int4* address) {
  int4 v;
  asm volatile("ld.global.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ void tell_host(std::uint32_t* word, std::uint32_t value) {
  // What the block's threads wrote before their last barrier comes first.
  asm volatile("fence.acq_rel.sys;\nst.relaxed.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}
__device__ __forceinline__ std::uint64_t nanoseconds() {
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// 16 bytes from global to shared memory, past the first-level cache, which other blocks' writes do not reach.
__device__ __forceinline__ void copy_16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// All groups of copies but the last `pending`; waiting for more of them is no error.
__device__ __forceinline__ void wait_copies_but(int pending) {
  if (pending >= 7) {
    wait_copies<7>();
  } else if (pending >= 3) {
    wait_copies<3>();
  } else if (pending == 2) {
    wait_copies<2>();
  } else if (pending == 1) {
    wait_copies<1>();
  } else {
    wait_copies<0>();
  }
}

// Among the first `warps` warps.
__device__ __forceinline__ void barrier_of_warps(int warps) {
  if (warps == 1) {
    __syncwarp();
  } else {
    asm volatile("bar.sync 1, %0;" ::"r"(32 * warps) : "memory");
  }
}

__device__ __forceinline__ void multiply(float (&sums)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// As many samples as a thread has channels, 1 or 4, side by side.
template <int kChannels>
struct Samples {
  float of[kChannels];
};
template <int kChannels>
__device__ __forceinline__ Samples<kChannels> load_samples(const char* s_address) {
  if constexpr (kChannels == 4) {
    const float4 samples = *reinterpret_cast<const float4*>(s_address);
    return {samples.x, samples.y, samples.z, samples.w};
  } else {
    return {*reinterpret_cast<const float*>(s_address)};
  }
}
template <int kChannels>
__device__ __forceinline__ void store_samples(void* address, const Samples<kChannels>& samples) {
  if constexpr (kChannels == 4) {
    *static_cast<float4*>(address) = make_float4(samples.of[0], samples.of[1], samples.of[2], samples.of[3]);
  } else {
    *static_cast<float*>(address) = samples.of[0];
  }
}

template <int kChannels>
__device__ __forceinline__ void add(Samples<kChannels>& sum, const Samples<kChannels>& samples) {
#pragma unroll
  for (int i = 0; i < kChannels; ++i) sum.of[i] += samples.of[i];
}

// A thread's taps: in registers where the kernel size is compiled, else read in a loop.
template <int kTaps, int kChannels>
struct ThreadTaps {
  Samples<kChannels> taps[kTaps > 0 ? kTaps : 1];
  Samples<kChannels> bias;

  __device__ __forceinline__ ThreadTaps(const char* s_taps, int count) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) taps[k] = load_samples<kChannels>(s_taps + k * Tile::kRowBytes);
    bias = load_samples<kChannels>(s_taps + (kTaps > 0 ? kTaps : count) * Tile::kRowBytes);
  }
};

template <int kChannels>
__device__ __forceinline__ void add_tap(Samples<kChannels>& z, const Samples<kChannels>& tap,
                                        const Samples<kChannels>& x) {
#pragma unroll
  for (int i = 0; i < kChannels; ++i) z.of[i] = fmaf(tap.of[i], x.of[i], z.of[i]);
}

// Sums over taps of a thread's channels in one frame, into z. What the last tap reads comes back: the newest frame.
template <int kTaps, int kChannels>
__device__ __forceinline__ Samples<kChannels> sum_taps(const ThreadTaps<kTaps, kChannels>& t, const StackLayer& layer,
                                                       const char* s_taps, const char* s_frame, Samples<kChannels>& z) {
  z = t.bias;
  Samples<kChannels> x = {};
  if constexpr (kTaps > 0) {
    Samples<kChannels> all[kTaps];
#pragma unroll
    for (int k = 0; k < kTaps; ++k) all[k] = load_samples<kChannels>(s_frame + k * layer.step_bytes);
#pragma unroll
    for (int k = 0; k < kTaps; ++k) add_tap(z, t.taps[k], all[k]);
    x = all[kTaps - 1];
  } else {
#pragma unroll 4
    for (int k = 0; k < layer.taps; ++k) {
      x = load_samples<kChannels>(s_frame);
      add_tap(z, load_samples<kChannels>(s_taps), x);
      s_frame += layer.step_bytes;
      s_taps += Tile::kRowBytes;
    }
  }
  return x;
}

// Out of line, so that the path of SiLU stays short.
__device__ __noinline__ float activate_rarely(Activation activation, float z) {
  with_activation(activation, [&](auto function) { z = function(z); });
  return z;
}

// One block's view of the tile that it computes, and what lasts from tile to tile.
struct Block {
  const StackArgs& args;
  char* s_memory;
  StackEntry* s_entries;
  const StackLayer* s_layers;
  const char* s_partials;  // those that have come: two buffers, as of everything that follows
  char* s_operands;
  char* s_inverses;
  std::uint32_t buffer_bytes;   // of partial sums
  std::uint32_t partials_full;  // the first of two barriers
  std::uint32_t sent_to;        // where a warp's partial sums go in its destination, for the first buffer
  std::uint32_t sent_full;      // and the barrier there
  std::uint32_t rank;
  int warp;
  int lane;
  std::uint32_t message = 0;   // messages sent, whoever took part: the next one's buffer is message % 2
  std::uint32_t parities = 0;  // a bit a barrier: of its next phase

  __device__ __forceinline__ const StackPlan& plan() const { return args.plan; }
};

// The tile: `items` items from the first on, 2^size columns each.
struct TileOfItems {
  std::int64_t first;
  int items;
  int size;
  int most_items;    // of the pass's tiles; a power of two
  int windows;       // layers' inputs in shared memory at a time
  int window_bytes;  // from one to the next

  __device__ __forceinline__ int columns() const { return items << size; }
  __device__ __forceinline__ int units() const { return (columns() + Tile::kUnitColumns - 1) / Tile::kUnitColumns; }
};

__device__ __forceinline__ char* window_at(const Block& block, const TileOfItems& tile, int place) {
  return block.s_memory + block.plan().windows_offset + place * tile.window_bytes;
}

// Queues copies of a layer's halos into its window, of frames `first`, `first` + `step` and so on, by four threads
// each. A fresh stream's halos are zeros, there and in its ring.
__device__ __forceinline__ void fetch_halos(const Block& block, const TileOfItems& tile, int index, char* s_window,
                                            int first, int step) {
  const StackLayer layer = block.s_layers[index];
  if (static_cast<int>(block.rank) >= layer.in_blocks || layer.halo_frames == 0) return;
  const int item_bytes = layer.halo_bytes + (Tile::kRowBytes << tile.size);
  const int quad = block.lane % 4;
  for (int item = 0; item < tile.items; ++item) {
    const StackEntry& entry = block.s_entries[item];
    const int oldest = static_cast<int>(entry.received) - layer.halo_frames;
    char* s_halo = s_window + item * item_bytes + 16 * quad;
    float* d_ring =
        block.args.d_state + 4 * quad +
        ((static_cast<std::int64_t>(entry.slot) * block.plan().blocks + block.rank) * block.plan().ring_rows +
         layer.ring_row) *
            Tile::kBlockChannels;
    if (entry.fresh == 0) {
#pragma unroll 4
      for (int frame = first; frame < layer.halo_frames; frame += step) {
        copy_16(shared_address(s_halo + frame * Tile::kRowBytes),
                d_ring + ((oldest + frame) & layer.ring_mask) * Tile::kBlockChannels);
      }
    } else {
      for (int frame = first; frame < layer.halo_frames; frame += step) {
        *reinterpret_cast<float4*>(s_halo + frame * Tile::kRowBytes) = float4{};
        if (frame >= entry.frames) {
          *reinterpret_cast<float4*>(d_ring + ((oldest + frame) & layer.ring_mask) * Tile::kBlockChannels) = float4{};
        }
      }
    }
  }
}

// Brings entries and new frames in. kHold: each stream's frame to hold instead, as its only one and its halo.
template <bool kHold>
__device__ __forceinline__ void load_input(Block& block, const TileOfItems& tile) {
  const StackArgs& args = block.args;
  const StackLayer layer = block.s_layers[0];
  const int thread = static_cast<int>(threadIdx.x);
  char* s_window = window_at(block, tile, 0);
  const int item_bytes = layer.halo_bytes + (Tile::kRowBytes << tile.size);
  const std::int64_t item_floats = std::int64_t{block.plan().in_channels} * args.in_stride;
  const int first_channel = static_cast<int>(block.rank) * Tile::kBlockChannels;
  const int channels = min(block.plan().in_channels - first_channel, Tile::kBlockChannels);

  // A quad of frames of a channel a thread: columns and items of a whole tile are powers of two.
  const int quad_bits = 31 - __clz(tile.most_items) + tile.size - 2;
  const bool quads = !kHold && tile.size >= 2;
  const int column = 4 * (thread & ((1 << quad_bits) - 1));
  const int channel = thread >> quad_bits;
  const int frame = column & ((1 << tile.size) - 1);
  const bool mine = quads && channel < Tile::kBlockChannels && column < tile.columns();
  float4 samples = {};
  if (mine && channel < channels && frame < args.in_stride) {
    samples =
        load_host(reinterpret_cast<const float4*>(args.input + (tile.first + (column >> tile.size)) * item_floats +
                                                  (first_channel + channel) * args.in_stride + frame));
  }
  // Or a sample a thread, of the items' few frames or of those to hold.
  const bool few = !kHold && tile.size < 2;
  const int most = (kHold ? tile.items : tile.columns()) * Tile::kBlockChannels;
  const auto load_single = [&](int i) {
    const int c = i % Tile::kBlockChannels;
    const int k = i / Tile::kBlockChannels;
    if (c >= channels) return 0.0f;
    return kHold ? load_host(args.frames_to_hold + (tile.first + k) * block.plan().in_channels + first_channel + c)
                 : load_host(args.input + (tile.first + (k >> tile.size)) * item_floats +
                             (first_channel + c) * args.in_stride + (k & ((1 << tile.size) - 1)));
  };
  float single = 0;
  if ((few || kHold) && thread < most) single = load_single(thread);
  if (!kHold) {
    if (thread < 2 * tile.items) {
      reinterpret_cast<int4*>(block.s_entries)[thread] =
          load_host(reinterpret_cast<const int4*>(args.entries + tile.first) + thread);
    }
  }
  __syncthreads();  // entries are there
  if (!kHold) {
    // A warp a layer.
    for (int index = block.warp; index < tile.windows; index += Tile::kWarps) {
      fetch_halos(block, tile, index, window_at(block, tile, index), block.lane / 4, Tile::kUnitColumns);
    }
    commit_copies();
  }
  if (mine) {
    const StackEntry& entry = block.s_entries[column >> tile.size];
    const std::int64_t left = entry.end - entry.received - frame;  // real frames from here on
    char* s_frame =
        s_window + (column >> tile.size) * item_bytes + (layer.halo_frames + frame) * Tile::kRowBytes + 4 * channel;
    *reinterpret_cast<float*>(s_frame) = left > 0 ? samples.x : 0.0f;
    *reinterpret_cast<float*>(s_frame + Tile::kRowBytes) = left > 1 ? samples.y : 0.0f;
    *reinterpret_cast<float*>(s_frame + 2 * Tile::kRowBytes) = left > 2 ? samples.z : 0.0f;
    *reinterpret_cast<float*>(s_frame + 3 * Tile::kRowBytes) = left > 3 ? samples.w : 0.0f;
  }
  if (few || kHold) {
    for (int i = thread; i < most; i += Tile::kThreads) {
      const int item = kHold ? i / Tile::kBlockChannels : i / Tile::kBlockChannels >> tile.size;
      const int f = kHold ? 0 : i / Tile::kBlockChannels & ((1 << tile.size) - 1);
      const StackEntry& entry = block.s_entries[item];
      char* s_frame =
          s_window + item * item_bytes + (layer.halo_frames + f) * Tile::kRowBytes + 4 * (i % Tile::kBlockChannels);
      const float sample = i == thread ? single : load_single(i);
      if (kHold) {
        for (int h = 1; h <= layer.halo_frames; ++h) *reinterpret_cast<float*>(s_frame - h * Tile::kRowBytes) = sample;
      }
      *reinterpret_cast<float*>(s_frame) = kHold || entry.received + f < entry.end ? sample : 0.0f;
    }
  }
  wait_copies<0>();
  __syncthreads();  // halos, and layer 0's new frames, are in the windows
}

// What a thread knows of its column and of its own channels, one or four.
struct Column {
  int place;               // bytes: among partial sums
  int operand;             // bytes: among operands
  int channel_bytes;       // among floats of a block's channels
  int row;                 // bytes: in a window, without halos; a column behind the tile's last reads what that does
  int item;                // of the tile
  int frame;               // of the item
  bool inside;             // belongs to the tile
  bool real;               // and to a frame that was received
  std::int32_t most_lag;   // a layer's frame lies inside the recording when its lag is at most this
  std::int32_t above_lag;  // and above this
};

// The output of a layer, `before`: its partial sums in the order of blocks, scaled, biased, activated, and the
// residual.
template <int kChannels>
__device__ __forceinline__ Samples<kChannels> sum_partials(Block& block, const StackLayer& before, const char* s_before,
                                                           const Column& column) {
  const std::uint32_t buffer = (block.message + 1) % 2;
  const char* s_rows = block.s_memory + before.rows_offset + column.channel_bytes;
  const Samples<kChannels> scale = load_samples<kChannels>(s_rows);
  const Samples<kChannels> bias = load_samples<kChannels>(s_rows + Tile::kRowBytes);
  Samples<kChannels> x = {};
  if (before.residual_offset >= 0) {
    x = load_samples<kChannels>(s_before + before.residual_offset + column.row + column.item * before.halo_bytes);
  }
  const char* s_partials = block.s_partials + column.place + buffer * block.buffer_bytes;
  barrier_wait(block.partials_full + 8 * buffer, block.parities >> buffer & 1);
  Samples<kChannels> y;
  if (before.in_blocks == Tile::kMostBlocks) {
    Samples<kChannels> partials[Tile::kMostBlocks];
#pragma unroll
    for (int source = 0; source < Tile::kMostBlocks; ++source) {
      partials[source] = load_samples<kChannels>(s_partials + source * Tile::kPartialBytes);
    }
    y = partials[0];
#pragma unroll
    for (int source = 1; source < Tile::kMostBlocks; ++source) add(y, partials[source]);
  } else {
    y = load_samples<kChannels>(s_partials);
    for (int source = 1; source < before.in_blocks; ++source) {
      add(y, load_samples<kChannels>(s_partials + source * Tile::kPartialBytes));
    }
  }
#pragma unroll
  for (int i = 0; i < kChannels; ++i) y.of[i] = fmaf(y.of[i], scale.of[i], bias.of[i]);
  if (before.after_mix != Activation::kIdentity) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) y.of[i] = activate_rarely(before.after_mix, y.of[i]);
  }
  if (before.residual_offset >= 0) add(y, x);
  return y;
}

// Activated sums over taps, `z`, scaled and split in two terms, as the matrix instruction's operand. The scale is one
// for the frame's 16 channels: the common one if it fits, which two ballots tell.
//
// The operand of two units, 16 frames, is 16 bytes a lane and term: {k 0, k 1} of frame f, f + 8, {k 2, k 3} of both,
// with f = lane / 4 and four channels k from 4 * (lane % 4) on. A thread of four channels stores what it has side by
// side instead: {k 0 to 3} of a frame, in both terms.
template <int kChannels>
__device__ __forceinline__ void store_operand(Samples<kChannels> z, Activation activation, int lane, char* s_operand,
                                              float* s_inverse) {
  if (activation == Activation::kSilu) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) z.of[i] = scaled_silu_of_log2(z.of[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) {
      if (activation != Activation::kIdentity) z.of[i] = activate_rarely(activation, z.of[i]);
      z.of[i] *= CommonScale::kScale;
    }
  }
  float largest = fabsf(z.of[0]);
#pragma unroll
  for (int i = 1; i < kChannels; ++i) largest = fmaxf(largest, fabsf(z.of[i]));
  // As CommonScale says; from 32752 on, float16 rounds to 2^15. A NaN is not below anything.
  constexpr int kLanes = Tile::kBlockChannels / kChannels;
  const std::uint32_t frame_lanes = (kLanes == 16 ? 0xffffu : 0xfu) << (lane / kLanes * kLanes);
  const bool fits = (__ballot_sync(0xffffffffu, !(largest < 32752.0f)) & frame_lanes) == 0 &
                    (__ballot_sync(0xffffffffu, largest >= 0.125f) & frame_lanes) != 0;
  float inverse = 1.0f / CommonScale::kScale;
  if (__any_sync(0xffffffffu, !fits)) {
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if (!fits && largest != 0) {
      // Undone first: a frame's own scale may be far from the common one.
      const FrameScale own = frame_scale(largest * (1.0f / CommonScale::kScale));
      inverse = own.inverse;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) z.of[i] = z.of[i] * (1.0f / CommonScale::kScale) * own.scale;
    }
  }
  if constexpr (kChannels == 4) {
    const SplitPair first = split_pair(z.of[0], z.of[1]);
    const SplitPair second = split_pair(z.of[2], z.of[3]);
    *reinterpret_cast<uint4*>(s_operand) = make_uint4(first.high, second.high, first.low, second.low);
  } else {
    const __half high = __float2half_rn(z.of[0]);
    *reinterpret_cast<__half*>(s_operand) = high;
    *reinterpret_cast<__half*>(s_operand + Tile::kUnitBytes) = __float2half_rn(z.of[0] - __half2float(high));
  }
  if (lane % kLanes == 0) *s_inverse = inverse;
}

// Multiplies the tile's operands, of pairs of units from `first_pair` on, with a warp's weights, to `to` and its
// barrier in the destination. kPairs at a time, so that their instructions overlap.
template <int kPairs>
__device__ __forceinline__ void multiply_and_send(const char* s_operands, const char* s_inverses, int first_pair,
                                                  int step, int units, const uint4& high, const uint4& low,
                                                  std::uint32_t to, std::uint32_t barrier) {
#pragma unroll 1
  for (int start = first_pair; 2 * start < units; start += kPairs * step) {
    float y[kPairs][2][4];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      // No branch: one that is not there is computed as the first.
      const int pair = 2 * (start + p * step) < units ? start + p * step : start;
      uint4 large = *reinterpret_cast<const uint4*>(s_operands + 2 * pair * Tile::kUnitBytes);
      uint4 small = *reinterpret_cast<const uint4*>(s_operands + (2 * pair + 1) * Tile::kUnitBytes);
      if (kPairs > 1) {
        const uint4 even = large;
        const uint4 odd = small;
        large = make_uint4(even.x, odd.x, even.y, odd.y);
        small = make_uint4(even.z, odd.z, even.w, odd.w);
      }
      const float inverses[2] = {*reinterpret_cast<const float*>(s_inverses + 64 * pair),
                                 *reinterpret_cast<const float*>(s_inverses + 64 * pair + 32)};
      float sums[2][4] = {};
      float corrections[2][4] = {};
      multiply(corrections[0], small, high.x, high.y);
      multiply(corrections[1], small, high.z, high.w);
      multiply(sums[0], large, high.x, high.y);
      multiply(sums[1], large, high.z, high.w);
      multiply(corrections[0], large, low.x, low.y);
      multiply(corrections[1], large, low.z, low.w);
#pragma unroll
      for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) y[p][t][i] = (sums[t][i] + corrections[t][i]) * inverses[i / 2];
      }
    }
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      const int pair = start + p * step;
      if (kPairs > 1 && 2 * pair >= units) break;
      send(to + 2 * pair * Tile::kUnitBytes, barrier, y[p][0][0], y[p][0][1], y[p][1][0], y[p][1][1]);
      if (2 * pair + 1 < units) {
        send(to + (2 * pair + 1) * Tile::kUnitBytes, barrier, y[p][0][2], y[p][0][3], y[p][1][2], y[p][1][3]);
      }
    }
  }
}

// Runs a tile through the stack. kHold: only what fills the rings of streams that start to hold.
// kNarrow: a tile of up to 16 columns. Its time is that of a thread's instructions one behind the other: a thread has
// one channel, where it has four in a wide tile. Sums are the same.
template <bool kHold, int kTaps, bool kNarrow>
__device__ __forceinline__ void run_tile(Block& block, const TileOfItems& tile) {
  const StackArgs& args = block.args;
  const StackPlan& plan = block.plan();
  const int rank = static_cast<int>(block.rank);
  const int warp = block.warp;
  const int lane = block.lane;
  const int units = tile.units();
  const int layer_count = plan.layer_count;
  constexpr int kChannels = kNarrow ? 1 : 4;
  constexpr int kWarpColumns = 32 * kChannels / Tile::kBlockChannels;
  const int computing_warps = (tile.columns() + kWarpColumns - 1) / kWarpColumns;
  const bool computes = warp < computing_warps;
  // All windows are there from the start, or their halos are fetched on the way.
  const bool fetches = tile.windows < layer_count;

  cluster_wait();  // the others have read the last tile's partial sums
  load_input<kHold>(block, tile);

  Column column;
  const int column_index = static_cast<int>(threadIdx.x) * kChannels / Tile::kBlockChannels;
  const int channel = static_cast<int>(threadIdx.x) * kChannels % Tile::kBlockChannels;
  const int own_column = min(column_index, tile.columns() - 1);
  column.place = 4 * kChannels * static_cast<int>(threadIdx.x);
  column.operand =
      kNarrow ? (column_index % 8 * 4 + channel / 4) * 16 + channel % 4 / 2 * 8 + column_index / 8 * 4 + channel % 2 * 2
              : column.place;
  column.channel_bytes = 4 * channel;
  column.row = own_column * Tile::kRowBytes + column.channel_bytes;
  column.item = own_column >> tile.size;
  column.frame = own_column & ((1 << tile.size) - 1);
  column.inside = computes && column_index == own_column;
  const StackEntry entry = block.s_entries[column.item];
  column.real = column.inside &&
                (kHold ? (entry.hold & StackEntry::kStartHold) != 0 && column.frame == 0 : column.frame < entry.frames);
  constexpr std::int64_t kMostLag = std::int64_t{1} << 30;
  column.most_lag = kHold || (entry.hold & StackEntry::kHeld) != 0
                        ? static_cast<std::int32_t>(kMostLag)
                        : static_cast<std::int32_t>(min(entry.received + column.frame, kMostLag));
  column.above_lag =
      kHold
          ? -1
          : static_cast<std::int32_t>(max(min(entry.received + column.frame - entry.end, kMostLag), std::int64_t{-1}));
  float* const d_state =
      args.d_state +
      (static_cast<std::int64_t>(entry.slot) * plan.blocks + rank) * plan.ring_rows * Tile::kBlockChannels + channel;
  const int newest_place = static_cast<int>(static_cast<std::uint32_t>(entry.received) + column.frame);
  const int destination = warp & (plan.blocks - 1);
  const int first_pair = warp >> plan.block_bits;
  const int pair_step = Tile::kWarps >> plan.block_bits;

  char* s_window = window_at(block, tile, 0);
  char* s_window_before = s_window;
  char* const s_windows_end = window_at(block, tile, tile.windows);
  StackLayer before;
  StackLayer following = block.s_layers[0];
#pragma unroll 1
  for (int index = 0; index < layer_count; ++index) {
    const StackLayer layer = following;
    const bool owns = rank < layer.in_blocks;
    const bool sends = owns && destination < layer.out_blocks;
    const char* s_mix = block.s_memory + layer.mix_offset + destination * Tile::kMixBytes + 16 * lane;
    uint4 high = {};
    uint4 low = {};
    if (sends) {
      high = *reinterpret_cast<const uint4*>(s_mix);
      low = *reinterpret_cast<const uint4*>(s_mix + Tile::kUnitBytes);
    }
    const char* s_taps = block.s_memory + layer.taps_offset + column.channel_bytes;
    const ThreadTaps<kTaps, kChannels> taps(s_taps, layer.taps);
    char* s_frame = s_window + column.row + column.item * layer.halo_bytes;  // the column's first tap
    const std::uint32_t next = block.message % 2;
    // A thread of a warp that computes little tells how much is to come.
    if (threadIdx.x == Tile::kThreads - 1 && rank < layer.out_blocks) {
      barrier_expect(block.partials_full + 8 * next,
                     static_cast<std::uint32_t>(layer.in_blocks * units * Tile::kUnitColumns * Tile::kRowBytes));
    }
    Samples<kChannels> newest = {};
    if (owns && computes) {
      if (index > 0) {
        Samples<kChannels> y = sum_partials<kChannels>(block, before, s_window_before, column);
        // Frames outside the recording are zeros to the layer behind.
        if (layer.lag_frames > column.most_lag || layer.lag_frames <= column.above_lag) y = {};
        if (column.inside) store_samples(s_frame + layer.halo_bytes, y);
        if (kHold && column.inside && column.frame == 0) {
          for (int h = 0; h < layer.halo_frames; ++h) store_samples(s_frame + h * Tile::kRowBytes, y);
        }
        // Behind the input's windows: a group of copies a layer, one layer after the other.
        if (!kHold && fetches) wait_copies_but(tile.windows - 2);
        barrier_of_warps(
            computing_warps);  // halos and new frames are there; of the window before, the residual was read
      }
      Samples<kChannels> z;
      newest = sum_taps<kTaps>(taps, layer, s_taps, s_frame, z);
      store_operand<kChannels>(
          z, layer.before_mix, lane, block.s_operands + (index % 2) * Tile::kOperandBytes + column.operand,
          reinterpret_cast<float*>(block.s_inverses + (index % 2) * Tile::kInverseBytes) + column_index);
    } else if (!kHold && fetches && index > 0 && computes) {
      wait_copies_but(tile.windows - 2);
    }
    if (index > 0 && owns) block.parities ^= 1u << ((block.message + 1) % 2);

    following = block.s_layers[min(index + 1, layer_count - 1)];
    __syncthreads();  // operands are there; everyone has read those of two layers ago
    if (sends) {
      multiply_and_send<kNarrow ? 1 : 2>(block.s_operands + (index % 2) * Tile::kOperandBytes + 16 * lane,
                                         block.s_inverses + (index % 2) * Tile::kInverseBytes + (lane & ~3), first_pair,
                                         pair_step, units, high, low, block.sent_to + next * block.buffer_bytes,
                                         block.sent_full + 8 * next);
    }
    ++block.message;
    if (owns && column.real && layer.halo_frames > 0) {
      float* d_ring = d_state + layer.ring_row * Tile::kBlockChannels;
      if (kHold) {
        for (int h = 0; h <= layer.ring_mask; ++h) store_samples(d_ring + h * Tile::kBlockChannels, newest);
      } else if (column.frame >= entry.frames - layer.halo_frames) {
        store_samples(d_ring + static_cast<std::uint32_t>(newest_place & layer.ring_mask) * Tile::kBlockChannels,
                      newest);
      }
    }
    // The window before is free: see the barriers above.
    if (!kHold && fetches && computes && index > 0) {
      if (index - 1 + tile.windows < layer_count) {
        fetch_halos(block, tile, index - 1 + tile.windows, s_window_before, static_cast<int>(threadIdx.x) / 4,
                    computing_warps * Tile::kUnitColumns);
      }
      commit_copies();
    }
    before = layer;
    s_window_before = s_window;
    s_window += tile.window_bytes;
    if (s_window == s_windows_end) s_window = window_at(block, tile, 0);
  }

  const StackLayer last = before;
  if (rank < last.out_blocks) {
    if (computes) {
      Samples<kChannels> y = sum_partials<kChannels>(block, last, s_window_before, column);
      if (plan.out_lag_frames > column.most_lag || plan.out_lag_frames <= column.above_lag) y = {};
      float* s_output =
          reinterpret_cast<float*>(block.s_memory + plan.output_offset) + channel * Tile::kOutputStride + column_index;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) s_output[i * Tile::kOutputStride] = y.of[i];
    }
    block.parities ^= 1u << ((block.message + 1) % 2);
  }

  if (!kHold && rank < last.out_blocks) {
    const int first_channel = rank * Tile::kBlockChannels;
    const int channels = min(plan.out_channels - first_channel, Tile::kBlockChannels);
    const std::int64_t item_floats = std::int64_t{plan.out_channels} * args.out_stride;
    const float* s_output = reinterpret_cast<const float*>(block.s_memory + plan.output_offset);
    __syncthreads();  // the output is in shared memory
    if (tile.size >= 2) {
      const int quad_bits = 31 - __clz(tile.most_items) + tile.size - 2;
      const int c = static_cast<int>(threadIdx.x) >> quad_bits;
      const int first = 4 * (static_cast<int>(threadIdx.x) & ((1 << quad_bits) - 1));
      const int f = first & ((1 << tile.size) - 1);
      if (c < channels && first < tile.columns() && f < block.s_entries[first >> tile.size].frames) {
        float* to =
            args.output + (tile.first + (first >> tile.size)) * item_floats + (first_channel + c) * args.out_stride + f;
        *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(s_output + c * Tile::kOutputStride + first);
      }
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < tile.columns() * Tile::kBlockChannels; i += Tile::kThreads) {
        const int c = i % Tile::kBlockChannels;
        const int k = i / Tile::kBlockChannels;
        const int f = k & ((1 << tile.size) - 1);
        if (c < channels && f < block.s_entries[k >> tile.size].frames) {
          args.output[(tile.first + (k >> tile.size)) * item_floats + (first_channel + c) * args.out_stride + f] =
              s_output[c * Tile::kOutputStride + k];
        }
      }
    }
  }
  if (kHold) __threadfence();
  __syncthreads();  // what comes next overwrites entries, windows and output
  cluster_arrive();
}

// All of a pass that is this cluster's: every cluster_count()-th tile.
template <int kTaps>
__device__ __forceinline__ void run_pass(Block& block, std::uint64_t command) {
  const StackPlan& plan = block.plan();
  const int count = StackCommand::count(command);
  const bool holds = StackCommand::holds(command);
  TileOfItems tile;
  tile.size = StackCommand::size(command);
  // Spread over all clusters before tiles grow.
  const int clusters = static_cast<int>(cluster_count());
  const int share = clusters == 1 ? count : (count + clusters - 1) / clusters;
  const int most_items = min(plan.items[tile.size], share <= 1 ? 1 : 1 << (32 - __clz(share - 1)));
  tile.most_items = most_items;
  tile.windows = plan.windows[tile.size];
  tile.window_bytes = most_items * (plan.window_frames + (1 << tile.size)) * Tile::kRowBytes;
  for (int first = static_cast<int>(cluster_index()) * most_items; first < count; first += clusters * most_items) {
    tile.first = first;
    tile.items = min(count - first, most_items);
    if (holds) {
      const int thread = static_cast<int>(threadIdx.x);
      if (thread < 2 * tile.items) {
        reinterpret_cast<int4*>(block.s_entries)[thread] =
            load_host(reinterpret_cast<const int4*>(block.args.entries + first) + thread);
      }
      run_tile<true, 0, false>(block, tile);
    }
    if (tile.columns() <= 16) {
      run_tile<false, kTaps, true>(block, tile);
    } else {
      run_tile<false, kTaps, false>(block, tile);
    }
  }
}

__device__ __forceinline__ void run_pass(Block& block, std::uint64_t command) {
  if (block.plan().taps == 5) return run_pass<5>(block, command);
  if (block.plan().taps == 3) return run_pass<3>(block, command);
  run_pass<0>(block, command);
}

#endif  // __CUDA_ARCH__ >= 900

template <bool kResident>
__global__ void __launch_bounds__(Tile::kThreads, 1) stack_kernel(const __grid_constant__ StackArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char s_memory[];
  __shared__ StackEntry s_entries[Tile::kMostColumns];
  __shared__ std::uint64_t s_partials_full[2];
  __shared__ std::uint64_t s_image_full;
  __shared__ std::uint64_t s_command_full;
  __shared__ std::uint64_t s_command;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t rank = rank_in_cluster();
  const auto destination = static_cast<std::uint32_t>(warp & (args.plan.blocks - 1));
  Block block{
      args,
      s_memory,
      s_entries,
      reinterpret_cast<const StackLayer*>(s_memory + Tile::kSharedBytes),
      s_memory + args.plan.partials_offset,
      s_memory + args.plan.operand_offset,
      s_memory + args.plan.inverse_offset,
      static_cast<std::uint32_t>(args.plan.blocks * Tile::kPartialBytes),
      shared_address(s_partials_full),
      address_in_block(shared_address(s_memory) + args.plan.partials_offset + rank * Tile::kPartialBytes + 16 * lane,
                       destination),
      address_in_block(shared_address(s_partials_full), destination),
      rank,
      warp,
      lane};
  for (int i = static_cast<int>(threadIdx.x); i < args.plan.layer_count * 4; i += Tile::kThreads) {
    reinterpret_cast<int4*>(s_memory + Tile::kSharedBytes)[i] = reinterpret_cast<const int4*>(args.plan.layers)[i];
  }
  const std::uint32_t image_full = shared_address(&s_image_full);
  const std::uint32_t command_full = shared_address(&s_command_full);
  if (threadIdx.x == 0) {
    barrier_init(block.partials_full, 1);
    barrier_init(block.partials_full + 8, 1);
    barrier_init(image_full, 1);
    barrier_init(command_full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const std::uint32_t bytes = static_cast<std::uint32_t>(args.plan.image_bytes);
    barrier_expect(image_full, bytes);
    const std::byte* d_image = args.d_image + std::int64_t{args.plan.image_bytes} * block.rank;
    for (std::uint32_t done = 0; done < bytes; done += 16384) {
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       shared_address(s_memory + done)),
                   "l"(d_image + done), "r"(min(16384u, bytes - done)), "r"(image_full)
                   : "memory");
    }
  }
  __syncthreads();  // layers are there
  cluster_arrive();
  cluster_wait();  // every block's barriers are there
  cluster_arrive();
  if constexpr (!kResident) {
    barrier_wait(image_full, 0);
    run_pass(block, args.command);
    if (threadIdx.x == 0) {
      tell_host(args.done + cluster_index() * Tile::kMostBlocks + block.rank, StackCommand::sequence(args.command));
    }
  } else {
    barrier_wait(image_full, 0);
    std::uint32_t sequence = args.d_done[cluster_index()];
    std::uint32_t command_parity = 0;
    const std::uint64_t start = nanoseconds();
    for (;;) {
      if (block.rank == 0 && block.warp == 0) {
        // One thread looks. Bounded: a command, an end that was asked for, too long idle or too old.
        std::uint64_t command = 0;
        if (block.lane == 0) {
          const std::uint64_t idle_since = nanoseconds();
          for (int looks = 0;; ++looks) {
            asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(command) : "l"(args.mailbox) : "memory");
            const bool ours = StackCommand::epoch(command) == args.epoch;
            if (ours && StackCommand::sequence(command) != sequence) break;
            bool over = !ours;
            if (looks % 16 == 15) {
              const std::uint64_t now = nanoseconds();
              over = over || now - idle_since > args.idle_ns || now - start > args.life_ns;
            }
            if (over) {
              command = 0;
              break;
            }
          }
        }
        command = __shfl_sync(0xffffffffu, command, 0);
        if (block.lane < args.plan.blocks) {
          // The word itself is what the others wait for: they ask for what the host wrote before it only afterwards.
          asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(
                           address_in_block(shared_address(&s_command), static_cast<std::uint32_t>(block.lane))),
                       "l"(command), "r"(address_in_block(command_full, static_cast<std::uint32_t>(block.lane)))
                       : "memory");
        }
      }
      if (threadIdx.x == Tile::kThreads - 1) barrier_expect(command_full, sizeof s_command);
      barrier_wait(command_full, command_parity);
      command_parity ^= 1;
      const std::uint64_t command = *reinterpret_cast<volatile std::uint64_t*>(&s_command);
      if (command == 0) break;
      sequence = StackCommand::sequence(command);
      run_pass(block, command);
      if (threadIdx.x == 0) {
        tell_host(args.done + cluster_index() * Tile::kMostBlocks + block.rank, sequence);
        if (block.rank == 0) args.d_done[cluster_index()] = sequence;
      }
      // The next command overwrites this one: every block has read it.
      cluster_wait();
      cluster_arrive();
    }
    if (threadIdx.x == 0 && block.rank == 0) {
      tell_host(args.gone + cluster_index(), args.epoch);
    }
  }
  cluster_wait();  // nobody sends to a block that has ended
#endif
}

constexpr int kLaunchBytes = Tile::kSharedBytes + Tile::kMostLayers * static_cast<int>(sizeof(StackLayer));

struct Launch {
  Launch(const StackPlan& plan, int clusters, cudaStream_t stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(plan.blocks);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    config.gridDim = dim3(static_cast<unsigned>(clusters * plan.blocks));
    config.blockDim = dim3(Tile::kThreads);
    config.dynamicSmemBytes = kLaunchBytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
  }
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t config = {};
};

}  // namespace

cudaError_t launch_stack(const StackArgs& args, bool resident, int clusters, cudaStream_t stream) noexcept {
  const Launch launch(args.plan, clusters, stream);
  return resident ? cudaLaunchKernelEx(&launch.config, stack_kernel<true>, args)
                  : cudaLaunchKernelEx(&launch.config, stack_kernel<false>, args);
}

cudaError_t prepare_stack(const StackPlan& plan, int& clusters) noexcept {
  for (const auto kernel : {stack_kernel<false>, stack_kernel<true>}) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
    // No body in this build: see the kernel.
    if (attributes.sharedSizeBytes == 0) return cudaErrorInvalidKernelImage;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kLaunchBytes);
    if (error != cudaSuccess) return error;
  }
  const Launch launch(plan, 1, nullptr);
  return cudaOccupancyMaxActiveClusters(&clusters, stack_kernel<false>, &launch.config);
}

}  // namespace halotap::kernels::cuda
