// A stack of layers, for many streams, in one kernel: what block.hpp's kernels do layer by layer. For layer l's input x
//
//     z[c,t] = bias[c] + sum_k taps[c,k] * x[c, t + k*dilation - left]     a = activation(z)
//     y[o,t] = row_bias[o] + sum_b (sum_(c in b) mix[o,c] * a[c,t])        (+ x[o,t])
//
// with the inner sums of block b's 16 channels in one matrix step each, two float16 terms an operand, and the outer
// ones in one order: a frame's bits depend on nothing else in its tile.
//
//     grid   (clusters * teams * plan.blocks)   a team has the whole stack, and takes every so many-th tile: up to 64
//                                               columns, items side by side; or two teams share an item's frames
//     block  512 threads                        256 compute: one, two or four channels of a column, of 16, 32 or 64
//                                               columns; 256 multiply: a warp the partial sums for a block
//
// A layer, in each block:
//   compute   partial sums of the block's channels, out of all blocks, arrive -> y, into the layer's window (with its
//             halo); sums over taps, activation, scaling, splitting -> operands
//   multiply  the operands with the columns of the mix for one block, to which the partial sums are sent
//
// Shared memory: the plan's, 221 KiB, and 6 KiB beside. 128 registers. Bytes a pass: inputs and outputs once, from and
// to the host; halos read, new frames of them written. A layer moves 64 bytes a column from each block to each other,
// and a processor sends and receives 16 in a cycle.
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
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ __forceinline__ std::uint32_t cluster_index() {
  std::uint32_t index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ std::uint32_t cluster_count() {
  std::uint32_t count;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
  return count;
}

// As many samples as a thread has channels, 1, 2 or 4, side by side.
template <int kChannels>
struct Samples {
  float of[kChannels];
};

// threadIdx.x, read where it is asked for: what follows from it, kept from tile to tile, takes more registers than
// there are.
__device__ __forceinline__ int this_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  __builtin_assume(thread >= 0 && thread < Tile::kThreads);
  return thread;
}

// The same place of shared memory in another block of the cluster.
__device__ __forceinline__ std::uint32_t address_in_block(std::uint32_t address, std::uint32_t block) {
  std::uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(block));
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
__device__ __forceinline__ void barrier_expect(std::uint32_t barrier, int bytes) {
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
// __syncthreads for threads that come to it in different places.
__device__ __forceinline__ void barrier_of_all() { asm volatile("bar.sync 1, %0;" ::"n"(Tile::kThreads) : "memory"); }
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

__device__ __forceinline__ void multiply(float (&sums)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

template <int kChannels>
__device__ __forceinline__ Samples<kChannels> load_samples(const char* s_address) {
  if constexpr (kChannels == 4) {
    const float4 samples = *reinterpret_cast<const float4*>(s_address);
    return {samples.x, samples.y, samples.z, samples.w};
  } else if constexpr (kChannels == 2) {
    const float2 samples = *reinterpret_cast<const float2*>(s_address);
    return {samples.x, samples.y};
  } else {
    return {*reinterpret_cast<const float*>(s_address)};
  }
}
template <int kChannels>
__device__ __forceinline__ void store_samples(void* address, const Samples<kChannels>& samples) {
  if constexpr (kChannels == 4) {
    *static_cast<float4*>(address) = make_float4(samples.of[0], samples.of[1], samples.of[2], samples.of[3]);
  } else if constexpr (kChannels == 2) {
    *static_cast<float2*>(address) = make_float2(samples.of[0], samples.of[1]);
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
  std::uint32_t partials_full;  // the first of two barriers
  std::uint32_t halos_full;     // and of one a layer: of the halo that the leading team sends
  int team;
  int rank;                    // in its team
  std::uint32_t message = 0;   // messages sent, whoever took part: the next one's buffer is message % 2
  std::uint32_t parities = 0;  // a bit a barrier: of its next phase
  std::uint32_t halo_parity = 0;

  __device__ __forceinline__ const StackPlan& plan() const { return args.plan; }
  // Two buffers each: partial sums that have come, operands and the inverses of their scales.
  __device__ __forceinline__ int buffer_bytes() const { return plan().blocks * Tile::kPartialBytes; }
  __device__ __forceinline__ char* s_partials() const { return s_memory + plan().partials_offset; }
  __device__ __forceinline__ char* s_operands() const { return s_memory + plan().operand_offset; }
  __device__ __forceinline__ char* s_inverses() const { return s_memory + plan().inverse_offset; }
};

// The tile: `items` items from the first on, 2^size columns each. Or half an item, whose other half the other team has:
// a layer of the trailing team waits for what the leading one has sent of its layer's input.
struct TileOfItems {
  std::int64_t first;
  int items;
  int size;
  int most_items;    // of the pass's tiles; a power of two
  int windows;       // layers' inputs in shared memory at a time
  int window_bytes;  // from one to the next
  int before;        // frames of the item before the first column: the leading team's
  bool leads;        // the other team has the frames behind

  __device__ __forceinline__ int columns() const { return items << size; }
};

__device__ __forceinline__ char* window_at(const Block& block, const TileOfItems& tile, int place) {
  return block.s_memory + block.plan().windows_offset + place * tile.window_bytes;
}

// Queues copies of a layer's halos into its window, of frames `first`, `first` + `step` and so on, by four threads
// each. A fresh stream's halos are zeros, there and in its ring.
__device__ __forceinline__ void fetch_halos(const Block& block, const TileOfItems& tile, int index, char* s_window,
                                            int thread, int first, int step) {
  const StackLayer layer = block.s_layers[index];
  // The leading team sends the newer ones.
  const int halo_frames = layer.halo_frames - tile.before;
  if (block.rank >= layer.in_blocks || halo_frames <= 0) return;
  const int item_bytes = layer.halo_bytes + (Tile::kRowBytes << tile.size);
  const int quad = thread % 4;
  for (int item = 0; item < tile.items; ++item) {
    const StackEntry& entry = block.s_entries[item];
    const int oldest = static_cast<int>(static_cast<std::uint32_t>(entry.received) - halo_frames);
    char* s_halo = s_window + item * item_bytes + 16 * quad;
    float* d_ring =
        block.args.d_state + 4 * quad +
        ((static_cast<std::int64_t>(entry.slot) * block.plan().blocks + block.rank) * block.plan().ring_rows +
         layer.ring_row) *
            Tile::kBlockChannels;
    if (entry.fresh == 0) {
#pragma unroll 4
      for (int frame = first; frame < halo_frames; frame += step) {
        copy_16(shared_address(s_halo + frame * Tile::kRowBytes),
                d_ring + ((oldest + frame) & layer.ring_mask) * Tile::kBlockChannels);
      }
    } else {
      for (int frame = first; frame < halo_frames; frame += step) {
        *reinterpret_cast<float4*>(s_halo + frame * Tile::kRowBytes) = float4{};
        if (frame >= entry.frames - tile.before) {
          *reinterpret_cast<float4*>(d_ring + ((oldest + frame) & layer.ring_mask) * Tile::kBlockChannels) = float4{};
        }
      }
    }
  }
}

// Half an entry a thread. A launch of one item brings it along: it needs not be asked for before its halos are.
__device__ __forceinline__ int4 load_entries(const StackArgs& args, std::int64_t first, int thread) {
  if (StackCommand::count(args.command) == 1) return reinterpret_cast<const int4*>(&args.entry)[thread];
  return load_host(reinterpret_cast<const int4*>(args.entries + first) + thread);
}

// Brings entries and new frames in. kHold: each stream's frame to hold instead, as its only one and its halo.
template <bool kHold>
__device__ __forceinline__ void load_input(Block& block, const TileOfItems& tile, int thread) {
  const StackArgs& args = block.args;
  const StackLayer layer = block.s_layers[0];
  char* s_window = window_at(block, tile, 0);
  const int item_bytes = layer.halo_bytes + (Tile::kRowBytes << tile.size);
  const std::int64_t item_floats = std::int64_t{block.plan().in_channels} * args.in_stride;
  const int first_channel = block.rank * Tile::kBlockChannels;
  const int channels = min(block.plan().in_channels - first_channel, Tile::kBlockChannels);

  // A quad of frames of a channel a thread: columns and items of a whole tile are powers of two.
  const int quad_bits = 31 - __clz(tile.most_items) + tile.size - 2;
  const bool quads = !kHold && tile.size >= 2;
  const int column = 4 * (thread & ((1 << quad_bits) - 1));
  const int channel = thread >> quad_bits;
  const int frame = column & ((1 << tile.size) - 1);
  const bool mine = quads && channel < Tile::kBlockChannels && column < tile.columns();
  float4 samples = {};
  if (mine && channel < channels && tile.before + frame < args.in_stride) {
    samples =
        load_host(reinterpret_cast<const float4*>(args.input + (tile.first + (column >> tile.size)) * item_floats +
                                                  (first_channel + channel) * args.in_stride + tile.before + frame));
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
      reinterpret_cast<int4*>(block.s_entries)[thread] = load_entries(args, tile.first, thread);
    }
  }
  __syncthreads();  // entries are there
  if (!kHold) {
    // A warp a layer.
    for (int index = thread / 32; index < tile.windows; index += Tile::kWarps) {
      fetch_halos(block, tile, index, window_at(block, tile, index), thread, thread % 32 / 4, Tile::kUnitColumns);
    }
    commit_copies();
  }
  if (mine) {
    const StackEntry& entry = block.s_entries[column >> tile.size];
    const std::int64_t left = entry.end - entry.received - tile.before - frame;  // real frames from here on
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

// What a computing thread knows of its column and of its own channels.
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

template <bool kHold, int kChannels>
__device__ __forceinline__ Column column_of(const Block& block, const TileOfItems& tile, int thread) {
  const int index = thread * kChannels / Tile::kBlockChannels;
  const int channel = thread * kChannels % Tile::kBlockChannels;
  const int own = min(index, tile.columns() - 1);
  Column column;
  column.place = 4 * kChannels * thread;
  column.operand = index / 16 * 2 * Tile::kUnitBytes + (index % 8 * 4 + channel / 4) * 16 + channel % 4 / 2 * 8 +
                   index / 8 % 2 * 4 + channel % 2 * 2;
  column.channel_bytes = 4 * channel;
  column.row = own * Tile::kRowBytes + column.channel_bytes;
  column.item = own >> tile.size;
  column.frame = tile.before + (own & ((1 << tile.size) - 1));
  column.inside = index == own;
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
  return column;
}

// The output of a layer, `before`: its partial sums, scaled, biased, activated, and the residual.
template <int kChannels>
__device__ __forceinline__ Samples<kChannels> sum_partials(Block& block, const StackLayer& before, const char* s_before,
                                                           const Column& column) {
  // Before the wait, as all that can be.
  const int in_blocks = before.in_blocks;
  const Activation after_mix = before.after_mix;
  const bool residual = before.residual_offset >= 0;
  const std::uint32_t buffer = (block.message + 1) % 2;
  const char* s_rows = block.s_memory + before.rows_offset + column.channel_bytes;
  const Samples<kChannels> scale = load_samples<kChannels>(s_rows);
  const Samples<kChannels> bias = load_samples<kChannels>(s_rows + Tile::kRowBytes);
  Samples<kChannels> x = {};
  if (residual) {
    x = load_samples<kChannels>(s_before + before.residual_offset + column.row + column.item * before.halo_bytes);
  }
  const char* s_partials = block.s_partials() + column.place + buffer * block.buffer_bytes();
  barrier_wait(block.partials_full + 8 * buffer, block.parities >> buffer & 1);
  Samples<kChannels> y;
  if (in_blocks == Tile::kMostBlocks) {
    Samples<kChannels> partials[Tile::kMostBlocks];
#pragma unroll
    for (int source = 0; source < Tile::kMostBlocks; ++source) {
      partials[source] = load_samples<kChannels>(s_partials + source * Tile::kPartialBytes);
    }
    // In pairs, which are fewer additions behind each other.
#pragma unroll
    for (int step = 1; step < Tile::kMostBlocks; step *= 2) {
#pragma unroll
      for (int source = 0; source < Tile::kMostBlocks; source += 2 * step) {
        add(partials[source], partials[source + step]);
      }
    }
    y = partials[0];
  } else {
    y = load_samples<kChannels>(s_partials);
    for (int source = 1; source < in_blocks; ++source) {
      add(y, load_samples<kChannels>(s_partials + source * Tile::kPartialBytes));
    }
  }
#pragma unroll
  for (int i = 0; i < kChannels; ++i) y.of[i] = fmaf(y.of[i], scale.of[i], bias.of[i]);
  if (after_mix != Activation::kIdentity) {
#pragma unroll
    for (int i = 0; i < kChannels; ++i) y.of[i] = activate_rarely(after_mix, y.of[i]);
  }
  if (residual) add(y, x);
  return y;
}

// Activated sums over taps, `z`, scaled and split in two terms, as the matrix instruction's operand. The scale is one
// for the frame's 16 channels: the common one if it fits, which two votes tell.
//
// The operand of two units, 16 frames, is 16 bytes a lane and term: {k 0, k 1} of frame f, f + 8, {k 2, k 3} of both,
// with f = lane / 4 and four channels k from 4 * (lane % 4) on.
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
  // fmaxf forgets a NaN: the sum does not. As CommonScale says; from 32752 on, float16 rounds to 2^15.
  bool below = true;
#pragma unroll
  for (int i = 0; i < kChannels; ++i) below = below && fabsf(z.of[i]) < 32752.0f;
  constexpr int kLanes = Tile::kBlockChannels / kChannels;
  constexpr std::uint32_t kOneFrame = (1u << kLanes) - 1;
  constexpr std::uint32_t kFirstLanes = 0xffffffffu / kOneFrame;  // one of each frame
  const std::uint32_t heard = __ballot_sync(0xffffffffu, largest >= 0.125f);
  std::uint32_t heard_frames = heard;
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) heard_frames |= heard_frames >> step;
  float inverse = 1.0f / CommonScale::kScale;
  if (__all_sync(0xffffffffu, below) == 0 || (heard_frames & kFirstLanes) != kFirstLanes) {
    const std::uint32_t frame_lanes = kOneFrame << (lane / kLanes * kLanes);
    const bool fits = (__ballot_sync(0xffffffffu, !below) & frame_lanes) == 0 && (heard & frame_lanes) != 0;
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
  if constexpr (kChannels == 1) {
    const __half high = __float2half_rn(z.of[0]);
    *reinterpret_cast<__half*>(s_operand) = high;
    *reinterpret_cast<__half*>(s_operand + Tile::kUnitBytes) = __float2half_rn(z.of[0] - __half2float(high));
  } else {
#pragma unroll
    for (int i = 0; i < kChannels; i += 2) {
      const SplitPair pair = split_pair(z.of[i], z.of[i + 1]);
      *reinterpret_cast<std::uint32_t*>(s_operand + 4 * i) = pair.high;
      *reinterpret_cast<std::uint32_t*>(s_operand + 4 * i + Tile::kUnitBytes) = pair.low;
    }
  }
  if (lane % kLanes == 0) *s_inverse = inverse;
}

// Of the warps that compute: what of a tile's layers is not products, and of the last one's output.
template <bool kHold, int kTaps, int kChannels>
__device__ __forceinline__ void compute_layers(Block& block, const TileOfItems& tile, int thread) {
  const StackArgs& args = block.args;
  const StackPlan& plan = block.plan();
  const int rank = block.rank;
  const int lane = thread % 32;
  const int layer_count = plan.layer_count;
  constexpr int kWarpColumns = 32 * kChannels / Tile::kBlockChannels;
  const bool computes = thread / 32 * kWarpColumns < tile.columns();
  // All windows are there from the start, or their halos are fetched on the way.
  const bool fetches = !kHold && tile.windows < layer_count;

  const Column column = column_of<kHold, kChannels>(block, tile, thread);
  const int item_frames = block.s_entries[column.item].frames;
  const int newest_place =
      static_cast<int>(static_cast<std::uint32_t>(block.s_entries[column.item].received) + column.frame);
  float* const d_state = args.d_state +
                         (static_cast<std::int64_t>(block.s_entries[column.item].slot) * plan.blocks + rank) *
                             plan.ring_rows * Tile::kBlockChannels +
                         column.channel_bytes / 4;
  float* s_inverse = reinterpret_cast<float*>(block.s_inverses()) + thread * kChannels / Tile::kBlockChannels;
  char* s_operand = block.s_operands() + column.operand;

  char* s_window = window_at(block, tile, 0);
  char* s_window_before = s_window;
  char* const s_windows_end = window_at(block, tile, tile.windows);
#pragma unroll 1
  for (int index = 0; index < layer_count; ++index) {
    const StackLayer layer = block.s_layers[index];
    const bool owns = rank < layer.in_blocks;
    const char* s_taps = block.s_memory + layer.taps_offset + column.channel_bytes;
    const ThreadTaps<kTaps, kChannels> taps(s_taps, layer.taps);
    char* s_frame = s_window + column.row + column.item * layer.halo_bytes;  // the column's first tap
    Samples<kChannels> newest = {};
    if (owns && computes) {
      if (index > 0) {
        Samples<kChannels> y = sum_partials<kChannels>(block, block.s_layers[index - 1], s_window_before, column);
        // Frames outside the recording are zeros to the layer behind.
        if (layer.lag_frames > column.most_lag || layer.lag_frames <= column.above_lag) y = {};
        if (column.inside) store_samples(s_frame + layer.halo_bytes, y);
        if (kHold && column.inside && column.frame == 0) {
          for (int h = 0; h < layer.halo_frames; ++h) store_samples(s_frame + h * Tile::kRowBytes, y);
        }
      }
      if constexpr (kChannels < 4) {
        if (tile.before > 0 && layer.halo_frames > 0) barrier_wait(block.halos_full + 8 * index, block.halo_parity);
      }
    }
    if (index > 0) {
      // Behind the input's windows: a group of copies a layer, one layer after the other.
      if (fetches) wait_copies_but(tile.windows - 2);
      barrier_of_all();  // halos and new frames are there; of the window before, the residual was read
    }
    if (owns && computes) {
      Samples<kChannels> z;
      newest = sum_taps<kTaps>(taps, layer, s_taps, s_frame, z);
      store_operand<kChannels>(z, layer.before_mix, lane, s_operand + (index % 2) * Tile::kOperandBytes,
                               s_inverse + (index % 2) * (Tile::kInverseBytes / 4));
    }
    if (owns && index > 0) block.parities ^= 1u << ((block.message + 1) % 2);
    barrier_of_all();  // operands are there; those of two layers ago were read
    ++block.message;
    if (owns && column.real && layer.halo_frames > 0) {
      float* d_ring = d_state + layer.ring_row * Tile::kBlockChannels;
      if (kHold) {
        for (int h = 0; h <= layer.ring_mask; ++h) store_samples(d_ring + h * Tile::kBlockChannels, newest);
      } else if (column.frame >= item_frames - layer.halo_frames) {
        store_samples(d_ring + static_cast<std::uint32_t>(newest_place & layer.ring_mask) * Tile::kBlockChannels,
                      newest);
      }
    }
    // The window before is free: see the barriers above.
    if (fetches && index > 0) {
      if (index - 1 + tile.windows < layer_count) {
        fetch_halos(block, tile, index - 1 + tile.windows, s_window_before, thread, thread / 4,
                    Tile::kComputingThreads / 4);
      }
      commit_copies();
    }
    s_window_before = s_window;
    s_window += tile.window_bytes;
    if (s_window == s_windows_end) s_window = window_at(block, tile, 0);
  }

  const StackLayer& last = block.s_layers[layer_count - 1];
  if (rank < last.out_blocks) {
    if (computes) {
      Samples<kChannels> y = sum_partials<kChannels>(block, last, s_window_before, column);
      if (plan.out_lag_frames > column.most_lag || plan.out_lag_frames <= column.above_lag) y = {};
      float* s_output = reinterpret_cast<float*>(block.s_memory + plan.output_offset) +
                        column.channel_bytes / 4 * Tile::kOutputStride + thread * kChannels / Tile::kBlockChannels;
#pragma unroll
      for (int i = 0; i < kChannels; ++i) s_output[i * Tile::kOutputStride] = y.of[i];
    }
    block.parities ^= 1u << ((block.message + 1) % 2);
  }
  if (tile.before > 0) block.halo_parity ^= 1;
}

// The trailing team's halo of a layer, as far as it is frames of this one. Four samples a thread: the network between
// processors takes a thread's sample or its four in the same time.
__device__ __forceinline__ void send_halo(const Block& block, const TileOfItems& tile, int index, int thread) {
  const StackLayer& layer = block.s_layers[index];
  const int frames = min(layer.halo_frames, tile.columns());
  if (block.rank >= layer.in_blocks || thread >= 4 * frames) return;
  const int row = tile.columns() - frames + thread / 4;
  const char* s_frame = window_at(block, tile, index) + layer.halo_bytes + row * Tile::kRowBytes + thread % 4 * 16;
  const float4 samples = *reinterpret_cast<const float4*>(s_frame);
  // This block's like in the other team has its frame 0 where the frame behind ours would be.
  const auto follower = static_cast<std::uint32_t>(block.plan().blocks + block.rank);
  send(address_in_block(shared_address(s_frame) - tile.columns() * Tile::kRowBytes, follower),
       address_in_block(block.halos_full + 8 * index, follower), samples.x, samples.y, samples.z, samples.w);
}

// Of the other warps: each multiplies the tile's operands, up to kPairs of two units, with the columns of every layer's
// mix for one block, and sends it its partial sums.
template <int kPairs>
__device__ __forceinline__ void multiply_layers(Block& block, const TileOfItems& tile, int thread) {
  const StackPlan& plan = block.plan();
  const int warp = thread / 32 - Tile::kComputingThreads / 32;
  const int lane = thread % 32;
  const int destination = warp & (plan.blocks - 1);
  const int first_pair = warp >> plan.block_bits;
  const int pair_step = Tile::kMostBlocks >> plan.block_bits;
  const int columns = tile.columns();
  const auto rank_of_destination = static_cast<std::uint32_t>(destination + block.team * plan.blocks);
  const std::uint32_t sent_to = address_in_block(
      shared_address(block.s_partials() + block.rank * Tile::kPartialBytes + 16 * lane), rank_of_destination);
  const std::uint32_t sent_full = address_in_block(block.partials_full, rank_of_destination);
  const char* const s_operands = block.s_operands() + 16 * lane;
  const char* const s_inverses = block.s_inverses() + (lane & ~3);
#pragma unroll 1
  for (int index = 0; index < plan.layer_count; ++index) {
    const StackLayer& layer = block.s_layers[index];
    const std::uint32_t buffer = block.message++ % 2;
    const std::uint32_t to = sent_to + buffer * block.buffer_bytes();
    const std::uint32_t full = sent_full + 8 * buffer;
    if (thread == Tile::kThreads - 1 && block.rank < layer.out_blocks) {
      barrier_expect(block.partials_full + 8 * buffer, layer.in_blocks * columns * Tile::kRowBytes);
    }
    const bool sends = block.rank < layer.in_blocks && destination < layer.out_blocks;
    uint4 high = {};
    uint4 low = {};
    if (sends) {
      const char* s_mix = block.s_memory + layer.mix_offset + destination * Tile::kMixBytes + 16 * lane;
      high = *reinterpret_cast<const uint4*>(s_mix);
      low = *reinterpret_cast<const uint4*>(s_mix + Tile::kUnitBytes);
    }
    if (index > 0) barrier_of_all();  // the layer's new frames are there
    if (tile.leads) send_halo(block, tile, index, thread - Tile::kComputingThreads);
    barrier_of_all();  // operands are there
    if (!sends) continue;
    float y[kPairs][2][4];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) {
      // No branch, so that the pairs' instructions overlap: what is not there is computed too, and not sent.
      const int pair = min(first_pair + p * pair_step, Tile::kMostColumns / (2 * Tile::kUnitColumns) - 1);
      const char* s_pair = s_operands + (index % 2) * Tile::kOperandBytes + 2 * pair * Tile::kUnitBytes;
      const uint4 large = *reinterpret_cast<const uint4*>(s_pair);
      const uint4 small = *reinterpret_cast<const uint4*>(s_pair + Tile::kUnitBytes);
      const char* s_inverse = s_inverses + (index % 2) * Tile::kInverseBytes + 64 * pair;
      const float inverses[2] = {*reinterpret_cast<const float*>(s_inverse),
                                 *reinterpret_cast<const float*>(s_inverse + 32)};
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
      const int pair = first_pair + p * pair_step;
      const int left = columns - 2 * pair * Tile::kUnitColumns - lane / 4;
      if (left > 0) send(to + 2 * pair * Tile::kUnitBytes, full, y[p][0][0], y[p][0][1], y[p][1][0], y[p][1][1]);
      if (left > Tile::kUnitColumns) {
        send(to + (2 * pair + 1) * Tile::kUnitBytes, full, y[p][0][2], y[p][0][3], y[p][1][2], y[p][1][3]);
      }
    }
  }
}

// Runs a tile through the stack. kHold: only what fills the rings of streams that start to hold.
// kChannels: of a thread that computes, for tiles of up to 16 times as many columns. A tile's time is that of a
// thread's instructions one behind the other, so there are two kinds of threads, each with a part of them. Sums are the
// same.
template <bool kHold, int kTaps, int kChannels>
__device__ __forceinline__ void run_tile(Block& block, const TileOfItems& tile) {
  const StackArgs& args = block.args;
  const StackPlan& plan = block.plan();
  const int rank = block.rank;
  const int thread = this_thread();

  cluster_wait();  // the others have read the last tile's partial sums, and halos
  load_input<kHold>(block, tile, thread);
  if (tile.before > 0 && thread < plan.layer_count) {
    const StackLayer& layer = block.s_layers[thread];
    if (layer.halo_frames > 0 && rank < layer.in_blocks) {
      barrier_expect(block.halos_full + 8 * thread, min(layer.halo_frames, tile.before) * Tile::kRowBytes);
    }
  }
  if (thread < Tile::kComputingThreads) {
    compute_layers<kHold, kTaps, kChannels>(block, tile, thread);
  } else {
    multiply_layers<kChannels>(block, tile, thread);
  }

  if (!kHold && rank < block.s_layers[plan.layer_count - 1].out_blocks) {
    const int first_channel = rank * Tile::kBlockChannels;
    const int channels = min(plan.out_channels - first_channel, Tile::kBlockChannels);
    const std::int64_t item_floats = std::int64_t{plan.out_channels} * args.out_stride;
    const float* s_output = reinterpret_cast<const float*>(block.s_memory + plan.output_offset);
    __syncthreads();  // the output is in shared memory
    if (tile.size >= 2) {
      const int quad_bits = 31 - __clz(tile.most_items) + tile.size - 2;
      const int c = thread >> quad_bits;
      const int first = 4 * (thread & ((1 << quad_bits) - 1));
      const int f = tile.before + (first & ((1 << tile.size) - 1));
      if (c < channels && first < tile.columns() && f < block.s_entries[first >> tile.size].frames) {
        float* to =
            args.output + (tile.first + (first >> tile.size)) * item_floats + (first_channel + c) * args.out_stride + f;
        *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(s_output + c * Tile::kOutputStride + first);
      }
    } else {
      for (int i = thread; i < tile.columns() * Tile::kBlockChannels; i += Tile::kThreads) {
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

// All of a pass that is this block's: of each of the cluster's teams every so many-th tile, or half an item.
template <int kTaps>
__device__ __forceinline__ void run_pass(Block& block, std::uint64_t command) {
  const StackPlan& plan = block.plan();
  const int count = StackCommand::count(command);
  const bool holds = StackCommand::holds(command);
  const int clusters = static_cast<int>(cluster_count());
  TileOfItems tile;
  tile.size = StackCommand::size(command);
  const bool splits = block.args.teams > 1 && plan.splits(tile.size, count, holds, clusters);
  if (splits) --tile.size;
  const int teams = splits ? 1 : block.args.teams;  // that work apart
  const int team = splits ? 0 : block.team;
  // Spread over all teams before tiles grow.
  const int share = clusters * teams == 1 ? count : (count + clusters * teams - 1) / (clusters * teams);
  const int most_items = min(plan.items[tile.size], share <= 1 ? 1 : 1 << (32 - __clz(share - 1)));
  tile.most_items = most_items;
  tile.windows = splits ? plan.layer_count : plan.windows[tile.size];
  tile.window_bytes = most_items * (plan.window_frames + (1 << tile.size)) * Tile::kRowBytes;
  tile.before = splits ? block.team << tile.size : 0;
  tile.leads = splits && block.team == 0;
  const int own_first = static_cast<int>(cluster_index()) * teams * most_items;
  if (own_first >= count) {
    // As with a tile: who waits behind this pass knows that every thread has read the command.
    cluster_wait();
    cluster_arrive();
  }
  for (int first = own_first; first < count; first += clusters * teams * most_items) {
    tile.first = first + team * most_items;
    tile.items = min(count - first - team * most_items, most_items);
    if (tile.items <= 0) {
      // The other team has a tile.
      for (int barriers = holds ? 2 : 1; barriers > 0; --barriers) {
        cluster_wait();
        cluster_arrive();
      }
      return;
    }
    if (holds) {
      const int thread = static_cast<int>(threadIdx.x);
      if (thread < 2 * tile.items) {
        reinterpret_cast<int4*>(block.s_entries)[thread] = load_entries(block.args, tile.first, thread);
      }
      run_tile<true, 0, 4>(block, tile);
    }
    if (tile.columns() <= 16) {
      run_tile<false, kTaps, 1>(block, tile);
    } else if (tile.columns() <= 32) {
      run_tile<false, kTaps, 2>(block, tile);
    } else {
      run_tile<false, kTaps, 4>(block, tile);
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
  __shared__ std::uint64_t s_halos_full[Tile::kMostLayers];
  __shared__ std::uint64_t s_image_full;
  __shared__ std::uint64_t s_command_full;
  __shared__ std::uint64_t s_command;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int blocks = args.plan.blocks;
  const int rank = static_cast<int>(rank_in_cluster()) & (blocks - 1);
  const int team = static_cast<int>(rank_in_cluster()) >> args.plan.block_bits;
  Block block{args,
              s_memory,
              s_entries,
              reinterpret_cast<const StackLayer*>(s_memory + Tile::kSharedBytes),
              shared_address(s_partials_full),
              shared_address(s_halos_full),
              team,
              rank};
  std::uint32_t* const done =
      args.done + (static_cast<int>(cluster_index()) * args.teams + team) * Tile::kMostBlocks + rank;
  const bool first_of_cluster = rank == 0 && team == 0;
  for (int i = static_cast<int>(threadIdx.x); i < args.plan.layer_count * 4; i += Tile::kThreads) {
    reinterpret_cast<int4*>(s_memory + Tile::kSharedBytes)[i] = reinterpret_cast<const int4*>(args.plan.layers)[i];
  }
  const std::uint32_t image_full = shared_address(&s_image_full);
  const std::uint32_t command_full = shared_address(&s_command_full);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) barrier_init(block.partials_full + 8 * i, 1);
    for (int i = 0; i < args.plan.layer_count; ++i) barrier_init(block.halos_full + 8 * i, 1);
    barrier_init(image_full, 1);
    barrier_init(command_full, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    const std::uint32_t bytes = static_cast<std::uint32_t>(args.plan.image_bytes);
    barrier_expect(image_full, args.plan.image_bytes);
    const std::byte* d_image = args.d_image + std::int64_t{args.plan.image_bytes} * block.rank;
    for (std::uint32_t at = 0; at < bytes; at += 16384) {
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       shared_address(s_memory + at)),
                   "l"(d_image + at), "r"(min(16384u, bytes - at)), "r"(image_full)
                   : "memory");
    }
  }
  __syncthreads();  // layers are there
  cluster_arrive();
  cluster_wait();  // every block's barriers are there
  cluster_arrive();
  barrier_wait(image_full, 0);
  if constexpr (!kResident) {
    run_pass(block, args.command);
    if (threadIdx.x == 0) tell_host(done, StackCommand::sequence(args.command));
  } else {
    std::uint32_t sequence = args.d_done[cluster_index()];
    std::uint32_t command_parity = 0;
    const std::uint64_t start = nanoseconds();
    for (;;) {
      if (first_of_cluster && warp == 0) {
        // One thread looks. Bounded: a command, an end that was asked for, too long idle or too old.
        std::uint64_t command = 0;
        if (lane == 0) {
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
        if (lane < blocks * args.teams) {
          // The word itself is what the others wait for: they ask for what the host wrote before it only afterwards.
          asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(
                           address_in_block(shared_address(&s_command), static_cast<std::uint32_t>(lane))),
                       "l"(command), "r"(address_in_block(command_full, static_cast<std::uint32_t>(lane)))
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
        tell_host(done, sequence);
        if (first_of_cluster) args.d_done[cluster_index()] = sequence;
      }
      // The next command overwrites this one: every block has read it.
      cluster_wait();
      cluster_arrive();
    }
    if (threadIdx.x == 0 && first_of_cluster) tell_host(args.gone + cluster_index(), args.epoch);
  }
  cluster_wait();  // nobody sends to a block that has ended
#endif
}

constexpr int kLaunchBytes = Tile::kSharedBytes + Tile::kMostLayers * static_cast<int>(sizeof(StackLayer));

struct Launch {
  Launch(int blocks, int clusters, cudaStream_t stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    config.gridDim = dim3(static_cast<unsigned>(clusters * blocks));
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
  const Launch launch(args.plan.blocks * args.teams, clusters, stream);
  return resident ? cudaLaunchKernelEx(&launch.config, stack_kernel<true>, args)
                  : cudaLaunchKernelEx(&launch.config, stack_kernel<false>, args);
}

cudaError_t prepare_stack(const StackPlan& plan, StackRoom& room) noexcept {
  for (const auto kernel : {stack_kernel<false>, stack_kernel<true>}) {
    cudaFuncAttributes attributes;
    cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
    // No body in this build: see the kernel.
    if (attributes.sharedSizeBytes == 0) return cudaErrorInvalidKernelImage;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kLaunchBytes);
    if (error != cudaSuccess) return error;
    // Two teams of eight blocks are more than every card promises.
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
  }
  const Launch one(plan.blocks, 1, nullptr);
  const cudaError_t error = cudaOccupancyMaxActiveClusters(&room.clusters, stack_kernel<false>, &one.config);
  if (error != cudaSuccess) return error;
  const Launch two(2 * plan.blocks, 1, nullptr);
  if (cudaOccupancyMaxActiveClusters(&room.clusters_of_two, stack_kernel<false>, &two.config) != cudaSuccess) {
    cudaGetLastError();  // a card that has none so large
    room.clusters_of_two = 0;
  }
  return cudaSuccess;
}

}  // namespace halotap::kernels::cuda
