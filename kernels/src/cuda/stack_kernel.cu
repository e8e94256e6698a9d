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
//     block  512 threads                        256 compute: a channel of a column each, of 16 columns, a part of the
//                                               tile, at a time; 256 multiply: a warp the partial sums for a block
//
// A step, a part of a layer, in each block:
//   compute   partial sums of the block's channels, out of all blocks, arrive -> y, into the layer's window (with its
//             halo); sums over taps, activation, scaling, splitting -> operands
//   multiply  the operands with the columns of the mix for one block, to which the partial sums are sent; before that,
//             the leading team's new frames go out, as the trailing one's halo
// Both go on at the same time, a step apart, and while a part's partial sums are on their way, the others are computed.
// Before the first layer all threads bring the stack's input in, those that multiply first.
//
// Shared memory: the plan's, 217 KiB, and 10 KiB beside. Up to 118 registers of 128. Bytes a pass: inputs and outputs
// once, from and to the host; halos read, new frames of them written. A layer moves 64 bytes a column from each block
// to each other, and a processor sends and receives 16 in a cycle.
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "cuda/device_math.cuh"
#include "cuda/pass.hpp"
#include "cuda/sm90.cuh"
#include "cuda/stack_kernel.hpp"

namespace halotap::kernels::cuda {
namespace {

using Tile = StackTile;

// A column of the tile. One behind the tile's last has what that has.
struct alignas(16) Column {
  std::int32_t place;      // bytes: in its part's partial sums
  std::int32_t row;        // bytes: in a window, without halos
  std::int32_t item;       // of the tile
  std::int32_t inside;     // whether it belongs to the tile
  std::int32_t most_lag;   // a layer's frame lies inside the recording when its lag is at most this
  std::int32_t above_lag;  // and above this
  std::int32_t from_end;   // frames from this one, which was received, to the end of the item; 0: it was not
  std::int32_t slot_row;   // its frame's place in rings that are long enough
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
  bool last;         // of the block's

  __device__ __forceinline__ int columns() const { return items << size; }
  __device__ __forceinline__ int parts() const { return (columns() + Tile::kPartColumns - 1) / Tile::kPartColumns; }
};

// What lies in shared memory behind all that is planned.
struct alignas(128) Fixed {
  StackLayer layers[Tile::kMostLayers];
  StackEntry entries[Tile::kMostColumns];  // of the tile's items
  Column columns[Tile::kMostColumns];
  // Of a resident kernel: the entry that has come, the block's samples of a pass with words, and its tile of the last
  // pass of which it had just one.
  StackEntry entry;
  float words[Tile::kBlockChannels];
  TileOfItems only_tile;
  // Barriers: of the buffers of partial sums, of each layer's halo that the leading team sends, of the entry.
  std::uint64_t partials_full[2 * Tile::kMostParts];
  std::uint64_t halos_full[Tile::kMostLayers];
  std::uint64_t entry_full;
};

#if __CUDA_ARCH__ >= 900

using sm90::opaque;
using sm90::shared_address;

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

// threadIdx.x, read where it is asked for: what follows from it, kept from tile to tile, takes more registers than
// there are.
__device__ __forceinline__ int this_thread() {
  const int thread = sm90::thread_of_block();
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
// what was written to the host. Rings have a fence of their own.
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
__device__ __forceinline__ bool barrier_has_passed(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}
// All threads that compute wait for each other. Of a tile in one part the others are there long before, and wait with
// them: that is a barrier of the whole block, all that racecheck follows. Of more parts they only arrive.
__device__ __forceinline__ void barrier_of_computing() {
  asm volatile("bar.sync 2, %0;" ::"n"(Tile::kThreads) : "memory");
}
__device__ __forceinline__ void arrive_for_computing() {
  asm volatile("bar.arrive 2, %0;" ::"n"(Tile::kThreads) : "memory");
}
// New frames of a part that the leading team sends: the threads that compute tell those that send, before they go on to
// what the team itself makes of them. In tiles of more parts than one; racecheck does not follow it either.
__device__ __forceinline__ void tell_of_new_frames() {
  asm volatile("bar.arrive 3, %0;" ::"n"(Tile::kComputingThreads + 4 * Tile::kPartColumns) : "memory");
}
__device__ __forceinline__ void wait_for_new_frames() {
  asm volatile("bar.sync 3, %0;" ::"n"(Tile::kComputingThreads + 4 * Tile::kPartColumns) : "memory");
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

// What the host writes while the kernel runs. Not as loads of system scope, which wait for each other: no line of it
// stays in a first-level cache, which cluster_wait and the fences behind a tile empty, and into which these loads put
// none.
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

// Two words that the host tags, and one that it looks for. Each is whole by itself; what the host wrote before the last
// one of a pass is there for who has seen it.
struct TaggedPair {
  TaggedWord first;
  TaggedWord second;

  __device__ __forceinline__ bool is_of(std::uint32_t sequence) const {
    return tag_of(first) == sequence && tag_of(second) == sequence;
  }
};
__device__ __forceinline__ TaggedPair load_pair(const TaggedWord* address) {
  TaggedPair pair;
  asm volatile("ld.acquire.sys.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(pair.first), "=l"(pair.second)
               : "l"(address)
               : "memory");
  return pair;
}
__device__ __forceinline__ void store_word(TaggedWord* address, TaggedWord word) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(address), "l"(word) : "memory");
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

__device__ __forceinline__ float load_sample(const char* s_address) {
  return *reinterpret_cast<const float*>(s_address);
}

// A thread's taps: in registers where the kernel size is compiled, else read in a loop.
template <int kTaps>
struct ThreadTaps {
  float taps[kTaps > 0 ? kTaps : 1];
  float bias;

  __device__ __forceinline__ ThreadTaps(const char* s_taps, int count) {
#pragma unroll
    for (int k = 0; k < kTaps; ++k) taps[k] = load_sample(s_taps + k * Tile::kRowBytes);
    bias = load_sample(s_taps + (kTaps > 0 ? kTaps : count) * Tile::kRowBytes);
  }
  // The last one, for the newest frame.
  __device__ __forceinline__ float newest(const char* s_taps, int count) const {
    return kTaps > 0 ? taps[kTaps > 0 ? kTaps - 1 : 0] : load_sample(s_taps + (count - 1) * Tile::kRowBytes);
  }
};

// The sum of a thread's channel in one frame, but for the newest tap.
template <int kTaps>
__device__ __forceinline__ float sum_older_taps(const ThreadTaps<kTaps>& t, const StackLayer& layer, const char* s_taps,
                                                const char* s_frame) {
  float z = t.bias;
  if constexpr (kTaps > 0) {
    float all[kTaps];
#pragma unroll
    for (int k = 0; k < kTaps - 1; ++k) all[k] = load_sample(s_frame + k * layer.step_bytes);
#pragma unroll
    for (int k = 0; k < kTaps - 1; ++k) z = fmaf(t.taps[k], all[k], z);
  } else {
#pragma unroll 4
    for (int k = 0; k < layer.taps - 1; ++k) {
      z = fmaf(load_sample(s_taps), load_sample(s_frame), z);
      s_frame += layer.step_bytes;
      s_taps += Tile::kRowBytes;
    }
  }
  return z;
}

// A step's time is that of its instructions one behind the other, jumps over others included.
__device__ __forceinline__ bool rarely(bool condition) { return __builtin_expect(condition ? 1 : 0, 0) != 0; }

// Out of line, so that the path of SiLU stays short.
__device__ __noinline__ float activate_rarely(Activation activation, float z) {
  with_activation(activation, [&](auto function) { z = function(z); });
  return z;
}

// One block's view of the tile that it computes, and what lasts from tile to tile.
struct Block {
  const StackArgs& args;
  char* s_memory;
  const StackEntry* entry;  // the pass, and its first entry
  const float* s_words;     // the block's samples of a pass with words, if the kernel is resident
  std::uint32_t* done;      // in the host's memory: its last sequence
  int team;
  int rank;                    // in its team
  std::uint32_t parities = 0;  // a bit a barrier of partial sums: of its next phase
  std::uint32_t halo_parity = 0;
  std::uint32_t only_tile_shape = 0;  // of the pass that s_fixed().only_tile is of; 0: none yet

  // Tells the host that the pass is over, as far as it is this block's, whose threads have met behind what they wrote.
  // A pass with words is over when all words of its output are there.
  __device__ __forceinline__ void tell() const {
    if (threadIdx.x == 0 && !StackCommand::words(entry->command)) {
      tell_host(done, StackCommand::sequence(entry->command));
    }
  }
  __device__ __forceinline__ const StackPlan& plan() const { return args.plan; }
  __device__ __forceinline__ Fixed& s_fixed() const { return *reinterpret_cast<Fixed*>(s_memory + Tile::kSharedBytes); }
  __device__ __forceinline__ std::uint32_t partials_full(int buffer) const {
    return shared_address(&s_fixed().partials_full[buffer]);
  }
  __device__ __forceinline__ std::uint32_t halos_full(int layer) const {
    return shared_address(&s_fixed().halos_full[layer]);
  }
  // Partial sums that have come, a buffer a part, for every other layer; operands, and the inverses of their scales, a
  // buffer for every other step. Who sends partial sums of a layer has those of the layer before, from blocks that have
  // read those before these.
  static __device__ __forceinline__ int buffer_of(int layer, int part) { return layer % 2 * Tile::kMostParts + part; }
  // Until the partial sums in a buffer have come.
  __device__ __forceinline__ void wait_for_partials(int buffer) const {
    barrier_wait(partials_full(buffer), parities >> buffer & 1);
  }
  // Behind the waits for all parts of a layer, in every thread.
  __device__ __forceinline__ void have_waited(int layer, int parts) {
    parities ^= ((1u << parts) - 1) << buffer_of(layer, 0);
  }
  __device__ __forceinline__ int buffer_bytes() const { return plan().blocks * Tile::kPartialBytes; }
  __device__ __forceinline__ char* s_partials() const { return s_memory + plan().partials_offset; }
  __device__ __forceinline__ char* s_operands() const { return s_memory + plan().operand_offset; }
  __device__ __forceinline__ char* s_inverses() const { return s_memory + plan().inverse_offset; }
};

__device__ __forceinline__ char* window_at(const Block& block, const TileOfItems& tile, int place) {
  return block.s_memory + block.plan().windows_offset + place * tile.window_bytes;
}

// Where the ring of a layer's input is, of a stream's state, as this block has it.
__device__ __forceinline__ float* ring_of(const Block& block, const StackLayer& layer, std::int32_t slot) {
  const StackPlan& plan = block.plan();
  return block.args.d_state +
         ((static_cast<std::int64_t>(slot) * plan.blocks + block.rank) * plan.ring_rows + layer.ring_row) *
             Tile::kBlockChannels;
}

// Queues copies of a layer's halos into its window, of frames `first`, `first` + `step` and so on, by four threads
// each. A fresh stream's halos are zeros, there and in its ring.
__device__ __forceinline__ void fetch_halos(const Block& block, const TileOfItems& tile, int index, char* s_window,
                                            int thread, int first, int step) {
  const StackLayer layer = block.s_fixed().layers[index];
  // The leading team sends the newer ones.
  const int halo_frames = layer.halo_frames - tile.before;
  if (block.rank >= layer.in_blocks || halo_frames <= 0) return;
  const int item_bytes = layer.halo_bytes + (Tile::kRowBytes << tile.size);
  const int quad = thread % 4;
  for (int item = 0; item < tile.items; ++item) {
    const StackEntry& entry = block.s_fixed().entries[item];
    const int oldest = static_cast<int>(static_cast<std::uint32_t>(entry.received) - halo_frames);
    char* s_halo = s_window + item * item_bytes + 16 * quad;
    float* d_ring = ring_of(block, layer, entry.slot) + 4 * quad;
    if ((entry.flags & StackEntry::kFresh) == 0) {
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

template <bool kHold>
__device__ __forceinline__ Column column_of(const Block& block, const TileOfItems& tile, int index) {
  const int own = min(index, tile.columns() - 1);
  Column column;
  column.place = (own - index / Tile::kPartColumns * Tile::kPartColumns) * Tile::kRowBytes;
  column.row = own * Tile::kRowBytes;
  column.item = own >> tile.size;
  column.inside = index == own ? 1 : 0;
  const StackEntry& entry = block.s_fixed().entries[column.item];
  const int frame = tile.before + (own & ((1 << tile.size) - 1));
  const std::int64_t time = entry.received + frame;
  const bool received = kHold ? (entry.flags & StackEntry::kStartHold) != 0 && frame == 0 : frame < entry.frames;
  constexpr std::int64_t kMostLag = std::int64_t{1} << 30;
  const bool held = kHold || (entry.flags & StackEntry::kHeld) != 0;
  column.most_lag = static_cast<std::int32_t>(held ? kMostLag : min(time, kMostLag));
  column.above_lag = kHold ? -1 : static_cast<std::int32_t>(max(min(time - entry.end, kMostLag), std::int64_t{-1}));
  column.from_end = index == own && received ? (kHold ? 1 : entry.frames - frame) : 0;
  column.slot_row = static_cast<std::int32_t>(static_cast<std::uint32_t>(time));
  return column;
}

// Brings entries and new frames in, but for what input_is_there waits for. kHold: each stream's frame to hold instead,
// as its only one and its halo.
template <bool kHold>
__device__ __forceinline__ void load_input(Block& block, const TileOfItems& tile, int thread) {
  const StackArgs& args = block.args;
  const StackLayer layer = block.s_fixed().layers[0];
  char* s_window = window_at(block, tile, 0);
  const int item_bytes = layer.halo_bytes + (Tile::kRowBytes << tile.size);
  const int first_channel = block.rank * Tile::kBlockChannels;
  const int channels = min(block.plan().in_channels - first_channel, Tile::kBlockChannels);
  const std::uint64_t command = block.entry->command;
  const bool alone = StackCommand::count(command) == 1;

  // A quarter of an entry a thread. An entry alone came along with the command.
  if (thread < 4 * tile.items) {
    reinterpret_cast<int4*>(block.s_fixed().entries)[thread] =
        alone ? reinterpret_cast<const int4*>(block.entry)[thread]
              : load_host(reinterpret_cast<const int4*>(args.entries + tile.first) + thread);
  }
  if (!alone) __syncthreads();  // entries are there
  const auto entry_of = [&](int item) -> const StackEntry& {
    return alone ? *block.entry : block.s_fixed().entries[item];
  };

  // A quad of frames of a channel a thread: columns and items of a whole tile are powers of two.
  const int quad_bits = 31 - __clz(tile.most_items) + tile.size - 2;
  const bool quads = !kHold && tile.size >= 2;
  const int column = 4 * (thread & ((1 << quad_bits) - 1));
  const int channel = thread >> quad_bits;
  const int frame = column & ((1 << tile.size) - 1);
  const bool mine = quads && channel < Tile::kBlockChannels && column < tile.columns();
  float4 samples = {};
  if (mine && channel < channels) {
    const StackEntry& entry = entry_of(column >> tile.size);
    const float* from = entry.input + (first_channel + channel) * entry.in_stride + tile.before + frame;
    const int left = entry.frames - tile.before - frame;
    if (left > 0) samples = load_host(reinterpret_cast<const float4*>(from));
  }
  // Or a sample a thread, of the items' few frames or of those to hold.
  const bool few = !kHold && tile.size < 2;
  const int most = (kHold ? tile.items : tile.columns()) * Tile::kBlockChannels;
  const auto load_single = [&](int i) {
    const int c = i % Tile::kBlockChannels;
    const int k = i / Tile::kBlockChannels;
    if (c >= channels) return 0.0f;
    if (kHold) return load_host(args.frames_to_hold + (tile.first + k) * block.plan().in_channels + first_channel + c);
    const StackEntry& entry = entry_of(k >> tile.size);
    const int f = k & ((1 << tile.size) - 1);
    return f < entry.frames ? load_host(entry.input + (first_channel + c) * entry.in_stride + f) : 0.0f;
  };
  const bool words = block.s_words != nullptr && StackCommand::words(command);
  float single = 0;
  if ((few || kHold) && thread < most && !words) single = load_single(thread);
  if (alone) __syncthreads();  // the entry is there, and words are
  if (words && thread < Tile::kBlockChannels) single = block.s_words[thread];
  if (!kHold) {
    // A warp a layer.
    for (int index = thread / 32; index < tile.windows; index += Tile::kWarps) {
      fetch_halos(block, tile, index, window_at(block, tile, index), thread, thread % 32 / 4, Tile::kUnitColumns);
    }
    commit_copies();
  }
  if (mine) {
    const StackEntry& entry = block.s_fixed().entries[column >> tile.size];
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
      const StackEntry& entry = block.s_fixed().entries[item];
      char* s_frame =
          s_window + item * item_bytes + (layer.halo_frames + f) * Tile::kRowBytes + 4 * (i % Tile::kBlockChannels);
      const float sample = i == thread ? single : load_single(i);
      if (kHold) {
        for (int h = 1; h <= layer.halo_frames; ++h) *reinterpret_cast<float*>(s_frame - h * Tile::kRowBytes) = sample;
      }
      *reinterpret_cast<float*>(s_frame) = kHold || entry.received + f < entry.end ? sample : 0.0f;
    }
  }
  const int last_column = thread - (Tile::kThreads - Tile::kMostColumns);
  if (last_column >= 0) block.s_fixed().columns[last_column] = column_of<kHold>(block, tile, last_column);
}

// Until halos and layer 0's new frames are in the windows, and columns are there.
__device__ __forceinline__ void input_is_there() {
  wait_copies<0>();
  barrier_of_all();
}

// What gives a thread's sample of a layer's output besides partial sums; loaded before these are waited for.
struct Finish {
  std::int32_t in_blocks;
  Activation after_mix;
  bool residual;
  float scale;
  float bias;
  float x;  // another one in each part

  __device__ __forceinline__ Finish(const Block& block, const StackLayer& layer, int channel)
      : in_blocks(layer.in_blocks), after_mix(layer.after_mix), residual(layer.residual_offset >= 0), x(0) {
    const char* s_rows = block.s_memory + layer.rows_offset + 4 * channel;
    scale = load_sample(s_rows);
    bias = load_sample(s_rows + Tile::kRowBytes);
  }
};

// The sum of a sample's partial sums, of eight blocks: one of pairs of pairs. Of fewer the others are zeros; that is
// out of line, as all that is rare.
__device__ __forceinline__ float sum_pairs(float (&partials)[Tile::kMostBlocks]) {
#pragma unroll
  for (int step = 1; step < Tile::kMostBlocks; step *= 2) {
#pragma unroll
    for (int source = 0; source < Tile::kMostBlocks; source += 2 * step) {
      partials[source] += partials[source + step];
    }
  }
  return partials[0];
}
__device__ __noinline__ float sum_few(std::uint32_t address, int blocks) {
  const auto* s_partials = static_cast<const char*>(__cvta_shared_to_generic(address));
  float partials[Tile::kMostBlocks];
#pragma unroll
  for (int source = 0; source < Tile::kMostBlocks; ++source) {
    partials[source] = source < blocks ? load_sample(s_partials + source * Tile::kPartialBytes) : 0.0f;
  }
  return sum_pairs(partials);
}

// The output: the partial sums in a buffer, scaled, biased, activated, and the residual.
__device__ __forceinline__ float sum_partials(const Finish& finish, const char* s_partials) {
  float sum;
  if (rarely(finish.in_blocks != Tile::kMostBlocks)) {
    sum = sum_few(shared_address(s_partials), finish.in_blocks);
  } else {
    float partials[Tile::kMostBlocks];
#pragma unroll
    for (int source = 0; source < Tile::kMostBlocks; ++source) {
      partials[source] = load_sample(s_partials + source * Tile::kPartialBytes);
    }
    sum = sum_pairs(partials);
  }
  float y = fmaf(sum, finish.scale, finish.bias);
  if (rarely(finish.after_mix != Activation::kIdentity)) y = activate_rarely(finish.after_mix, y);
  return finish.residual ? y + finish.x : y;
}

// An activated sum, of which some frame of the warp's two does not fit the common scale: scaled as it needs, and the
// inverse.
__device__ __noinline__ float2 scale_frames(float z, std::uint32_t heard, int lane) {
  const std::uint32_t frame_lanes = 0xffffu << (lane & 16);
  const bool below = fabsf(z) < 32752.0f;
  const bool fits = (__ballot_sync(0xffffffffu, !below) & frame_lanes) == 0 && (heard & frame_lanes) != 0;
  float largest = fabsf(z);
#pragma unroll
  for (int step = 1; step < Tile::kBlockChannels; step *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  }
  if (fits || largest == 0) return {z, 1.0f / CommonScale::kScale};
  // Undone first: a frame's own scale may be far from the common one.
  const FrameScale own = frame_scale(largest * (1.0f / CommonScale::kScale));
  return {z * (1.0f / CommonScale::kScale) * own.scale, own.inverse};
}

// An activated sum over taps, `z`, scaled and split in two terms, as the matrix instruction's operand. The scale is one
// for the frame's 16 channels: the common one if it fits, which two votes tell.
//
// The operand of two units, 16 frames, is 16 bytes a lane and term: {k 0, k 1} of frame f, f + 8, {k 2, k 3} of both,
// with f = lane / 4 and four channels k from 4 * (lane % 4) on.
__device__ __forceinline__ void store_operand(float z, Activation activation, int lane, char* s_operand,
                                              char* s_inverse) {
  if (rarely(activation != Activation::kSilu)) {
    if (activation != Activation::kIdentity) z = activate_rarely(activation, z);
    z *= CommonScale::kScale;
  } else {
    z = scaled_silu_of_log2(z);
  }
  // As CommonScale says; from 32752 on, float16 rounds to 2^15, and a NaN is not below.
  const bool below = fabsf(z) < 32752.0f;
  const std::uint32_t heard = __ballot_sync(0xffffffffu, fabsf(z) >= 0.125f);
  float inverse = 1.0f / CommonScale::kScale;
  if (rarely(__all_sync(0xffffffffu, below) == 0 || (heard & 0xffffu) == 0 || heard >> 16 == 0)) {
    const float2 scaled = scale_frames(z, heard, lane);
    z = scaled.x;
    inverse = scaled.y;
  }
  const __half high = __float2half_rn(z);
  *reinterpret_cast<__half*>(s_operand) = high;
  *reinterpret_cast<__half*>(s_operand + Tile::kUnitBytes) = __float2half_rn(z - __half2float(high));
  if (lane % Tile::kBlockChannels == 0) *reinterpret_cast<float*>(s_inverse) = inverse;
}

// How a tile goes through the stack.
enum class Route {
  kHold,      // only what fills the rings of streams that start to hold
  kFetching,  // shared memory has not room for all layers' windows: halos are fetched on the way
  kWhole,     // it has
  kApart,     // it has, and no column reads another's new frame
};

// Of the warps that compute: what of a tile's layers is not products, and of the last one's output.
template <Route kRoute, int kTaps>
__device__ __forceinline__ void compute_layers(Block& block, const TileOfItems& tile, int thread) {
  const StackArgs& args = block.args;
  const StackPlan& plan = block.plan();
  const int rank = block.rank;
  const int lane = thread % 32;
  const int channel = thread % Tile::kBlockChannels;
  const int in_part = thread / Tile::kBlockChannels;
  const int layer_count = plan.layer_count;
  const int parts = tile.parts();
  const auto computes = [&](int part) { return part * Tile::kPartColumns + thread / 32 * 2 < tile.columns(); };

  char* const s_inverse = opaque(block.s_inverses() + 4 * in_part);
  char* const s_partials = opaque(block.s_partials() + 4 * channel);
  char* s_operand = block.s_operands() + (in_part % 8 * 4 + channel / 4) * 16 + channel % 4 / 2 * 8 + in_part / 8 * 4 +
                    channel % 2 * 2;
  const Column* const s_columns = block.s_fixed().columns + in_part;
  char* s_window = window_at(block, tile, 0) + 4 * channel;
  char* s_window_before = s_window;
  StackLayer layer = block.s_fixed().layers[0];
  Finish finish(block, layer, channel);  // of the layer before
  std::int32_t x_offset = 0;  // in the window before: its residual's frame 0, and the bytes of an item's halo
  std::int32_t x_halo_bytes = 0;
  int operand = 0;
  input_is_there();
  Column column = s_columns[0];
#pragma unroll 1
  for (int index = 0; index < layer_count; ++index) {
    const bool owns = rank < layer.in_blocks;
    const char* s_taps = block.s_memory + layer.taps_offset + 4 * channel;
    const ThreadTaps<kTaps> taps(s_taps, layer.taps);
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      const bool works = owns && computes(part);
      const int buffer = Block::buffer_of(index + 1, part);                    // of the layer before
      char* s_frame = s_window + column.row + column.item * layer.halo_bytes;  // the column's first tap
      float newest = 0;
      float z = 0;
      if (works) {
        if (kRoute == Route::kApart) z = sum_older_taps<kTaps>(taps, layer, s_taps, s_frame);
        if (rarely(index == 0)) {
          newest = load_sample(s_frame + layer.halo_bytes);
        } else {
          if (finish.residual)
            finish.x = load_sample(s_window_before + x_offset + column.row + column.item * x_halo_bytes);
          // Of more parts than one, the others have waited.
          if (parts == 1) block.wait_for_partials(buffer);
          newest = sum_partials(finish, s_partials + column.place + buffer * block.buffer_bytes());
          // Frames outside the recording are zeros to the layer behind.
          if (layer.lag_frames > column.most_lag || layer.lag_frames <= column.above_lag) newest = 0;
          if (column.inside != 0) *reinterpret_cast<float*>(s_frame + layer.halo_bytes) = newest;
          if (kRoute == Route::kHold && column.from_end != 0) {
            for (int h = 0; h < layer.halo_frames; ++h) {
              *reinterpret_cast<float*>(s_frame + h * Tile::kRowBytes) = newest;
            }
          }
        }
        if (kRoute == Route::kWhole && part == 0 && tile.before > 0 && layer.halo_frames > 0) {
          barrier_wait(block.halos_full(index), block.halo_parity);
        }
      }
      if (kRoute == Route::kWhole && tile.leads && parts > 1 && index > 0) tell_of_new_frames();
      if (kRoute != Route::kApart && index > 0) {
        // Behind the input's windows: a group of copies a layer, one layer after the other.
        if (kRoute == Route::kFetching && part == 0) wait_copies_but(tile.windows - 2);
        barrier_of_computing();  // halos and new frames are there; of the window before, the residual was read
      }
      if (works) {
        if (kRoute != Route::kApart) z = sum_older_taps<kTaps>(taps, layer, s_taps, s_frame);
        z = fmaf(taps.newest(s_taps, layer.taps), newest, z);
        store_operand(z, layer.before_mix, lane, s_operand + operand * Tile::kOperandBytes,
                      s_inverse + operand * Tile::kInverseBytes);
      }
      operand ^= 1;
      if (parts > 1) column = s_columns[(part + 1 < parts ? part + 1 : 0) * Tile::kPartColumns];
      barrier_of_all();  // operands are there; those of two steps ago were read
    }
    if (owns && index > 0) block.have_waited(index - 1, parts);
    // The window before is free: see the barriers above.
    if (kRoute == Route::kFetching && index > 0) {
      if (index - 1 + tile.windows < layer_count) {
        fetch_halos(block, tile, index - 1 + tile.windows, s_window_before - 4 * channel, thread, thread / 4,
                    Tile::kComputingThreads / 4);
      }
      commit_copies();
    }
    s_window_before = s_window;
    s_window += tile.window_bytes;
    if (kRoute == Route::kFetching || kRoute == Route::kHold) {
      if (s_window == window_at(block, tile, tile.windows) + 4 * channel)
        s_window = window_at(block, tile, 0) + 4 * channel;
    }
    finish = Finish(block, layer, channel);
    x_offset = layer.residual_offset;
    x_halo_bytes = layer.halo_bytes;
    layer = block.s_fixed().layers[min(index + 1, layer_count - 1)];
  }

  if (rank < layer.out_blocks) {
    const bool words = StackCommand::words(block.entry->command);
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      const int buffer = Block::buffer_of(layer_count - 1, part);
      if (computes(part)) {
        if (finish.residual)
          finish.x = load_sample(s_window_before + x_offset + column.row + column.item * x_halo_bytes);
        block.wait_for_partials(buffer);
        float y = sum_partials(finish, s_partials + column.place + buffer * block.buffer_bytes());
        if (plan.out_lag_frames > column.most_lag || plan.out_lag_frames <= column.above_lag) y = 0;
        if (words) {
          if (in_part == 0) {
            store_word(args.out_words + rank * Tile::kBlockChannels + channel,
                       tagged(__float_as_uint(y), StackCommand::sequence(block.entry->command)));
          }
        } else {
          float* s_output = reinterpret_cast<float*>(block.s_memory + plan.output_offset);
          s_output[channel * Tile::kOutputStride + part * Tile::kPartColumns + in_part] = y;
        }
      }
      if (part + 1 < parts) column = s_columns[(part + 1) * Tile::kPartColumns];
      if (kRoute != Route::kHold && !words) barrier_of_all();  // the part's output is there
    }
    block.have_waited(layer_count - 1, parts);
  }
  if (tile.before > 0) block.halo_parity ^= 1;
}

// Stores a column's new frame of a layer's input in the stream's ring, if that reaches back so far. Four channels a
// thread.
template <Route kRoute>
__device__ __forceinline__ void store_ring(const Block& block, const StackLayer& layer, const Column& column,
                                           const char* s_window, int quad) {
  if (block.rank >= layer.in_blocks || column.from_end == 0 || column.from_end > layer.halo_frames) return;
  const float4 newest =
      *reinterpret_cast<const float4*>(s_window + column.row + (column.item + 1) * layer.halo_bytes + 16 * quad);
  float* d_ring = ring_of(block, layer, block.s_fixed().entries[column.item].slot) + 4 * quad;
  if (kRoute == Route::kHold) {
    for (int h = 0; h <= layer.ring_mask; ++h) *reinterpret_cast<float4*>(d_ring + h * Tile::kBlockChannels) = newest;
  } else {
    *reinterpret_cast<float4*>(d_ring + (column.slot_row & layer.ring_mask) * Tile::kBlockChannels) = newest;
  }
}

// What the streams' next pass needs of a tile whose layers' windows are all there: each warp stores layers of its own.
template <Route kRoute>
__device__ __forceinline__ void store_rings(const Block& block, const TileOfItems& tile, int thread) {
  for (int index = thread / 32; index < block.plan().layer_count; index += Tile::kWarps) {
    const StackLayer& layer = block.s_fixed().layers[index];
    for (int i = thread % 32 / 4; i < tile.columns(); i += 8) {
      store_ring<kRoute>(block, layer, block.s_fixed().columns[i], window_at(block, tile, index), thread % 4);
    }
  }
}

// Of the trailing team's halo of a layer, what the part's frames are. Four samples a thread: the network between
// processors takes a thread's sample or its four in the same time.
__device__ __forceinline__ void send_halo(const Block& block, const TileOfItems& tile, const StackLayer& layer,
                                          int index, int part, int thread) {
  const int row = part * Tile::kPartColumns + thread / 4;
  if (block.rank >= layer.in_blocks || row >= tile.columns() || row < tile.columns() - layer.halo_frames) return;
  const char* s_frame = window_at(block, tile, index) + layer.halo_bytes + row * Tile::kRowBytes + thread % 4 * 16;
  const float4 samples = *reinterpret_cast<const float4*>(s_frame);
  // This block's like in the other team has its frame 0 where the frame behind ours would be.
  const auto follower = static_cast<std::uint32_t>(block.plan().blocks + block.rank);
  send(address_in_block(shared_address(s_frame) - tile.columns() * Tile::kRowBytes, follower),
       address_in_block(block.halos_full(index), follower), samples.x, samples.y, samples.z, samples.w);
}

// Brings a part's output to where it is wanted. As load_input.
__device__ __forceinline__ void store_output(const Block& block, const TileOfItems& tile, int part, int thread) {
  const int first_channel = block.rank * Tile::kBlockChannels;
  const int channels = min(block.plan().out_channels - first_channel, Tile::kBlockChannels);
  const bool quads = tile.size >= 2;
  const int c = quads ? thread / 4 : thread % Tile::kBlockChannels;
  const int column = part * Tile::kPartColumns + (quads ? thread % 4 * 4 : thread / Tile::kBlockChannels);
  if (c >= channels || column >= tile.columns()) return;
  const StackEntry& entry = block.s_fixed().entries[column >> tile.size];
  const int frame = tile.before + (column & ((1 << tile.size) - 1));
  const int left = entry.frames - frame;
  float* to = entry.output + (first_channel + c) * entry.out_stride + frame;
  const float* from =
      reinterpret_cast<const float*>(block.s_memory + block.plan().output_offset) + c * Tile::kOutputStride + column;
  if (quads && left >= 4) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
  } else {
    const int most = quads ? 4 : 1;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < most && i < left) to[i] = from[i];
    }
  }
}

// Of the other warps: each multiplies a part's operands with the columns of every layer's mix for one block, and sends
// it its partial sums. Before that they hand out what the other team needs of the part's new frames, as soon as these
// are there, and behind it, where windows do not last, what the streams' next pass needs.
template <Route kRoute>
__device__ __forceinline__ void multiply_layers(Block& block, const TileOfItems& tile, int thread) {
  const StackPlan& plan = block.plan();
  const int warp = thread / 32 - Tile::kComputingThreads / 32;
  const int lane = thread % 32;
  const int parts = tile.parts();
  const auto rank_of_destination = static_cast<std::uint32_t>((warp & (plan.blocks - 1)) + block.team * plan.blocks);
  const std::uint32_t sent_to = address_in_block(
      shared_address(block.s_partials() + block.rank * Tile::kPartialBytes + 16 * lane), rank_of_destination);
  const std::uint32_t sent_full = address_in_block(block.partials_full(0), rank_of_destination);
  const char* s_operands = block.s_operands() + 16 * lane;
  const char* s_inverses = block.s_inverses() + (lane & ~3);
  const char* s_window = window_at(block, tile, 0);
  const char* const s_windows_end = window_at(block, tile, tile.windows);
  // One warp waits for the next part's partial sums, which were sent in the step before this one or earlier: so that
  // all that compute need not.
  const bool waits = warp == Tile::kMostBlocks - 1 && parts > 1;
  int operand = 0;
  input_is_there();
#pragma unroll 1
  for (int index = 0; index < plan.layer_count; ++index) {
    const StackLayer layer = block.s_fixed().layers[index];
    const bool owns = block.rank < layer.in_blocks;
    const bool receives = block.rank < layer.out_blocks;
    // Where there are fewer blocks than warps, the last ones have none.
    const bool sends = owns && warp < layer.out_blocks;
    uint4 high = {};
    uint4 low = {};
    if (sends) {
      const char* s_mix = block.s_memory + layer.mix_offset + warp * Tile::kMixBytes + 16 * lane;
      high = *reinterpret_cast<const uint4*>(s_mix);
      low = *reinterpret_cast<const uint4*>(s_mix + Tile::kUnitBytes);
    }
#pragma unroll 1
    for (int part = 0; part < parts; ++part) {
      const int buffer = Block::buffer_of(index, part);
      const int columns = min(tile.columns() - part * Tile::kPartColumns, Tile::kPartColumns);
      if (thread == Tile::kThreads - 1 && receives) {
        barrier_expect(block.partials_full(buffer), layer.in_blocks * columns * Tile::kRowBytes);
      }
      if (waits && part + 1 < parts && owns && index > 0)
        block.wait_for_partials(Block::buffer_of(index - 1, part + 1));
      if (waits && part + 1 == parts && receives && index + 1 < plan.layer_count) {
        block.wait_for_partials(Block::buffer_of(index, 0));
      }
      if (kRoute != Route::kApart && parts == 1 && index > 0) barrier_of_computing();
      if (kRoute == Route::kWhole && tile.leads && thread < Tile::kComputingThreads + 4 * Tile::kPartColumns) {
        if (parts > 1 && index > 0) wait_for_new_frames();
        send_halo(block, tile, layer, index, part, thread - Tile::kComputingThreads);
      }
      barrier_of_all();  // operands are there, and the part's new frames
      if (kRoute != Route::kApart && parts > 1 && (part + 1 < parts ? index > 0 : index + 1 < plan.layer_count)) {
        arrive_for_computing();
      }
      if (sends) {
        const char* s_pair = s_operands + operand * Tile::kOperandBytes;
        const uint4 large = *reinterpret_cast<const uint4*>(s_pair);
        const uint4 small = *reinterpret_cast<const uint4*>(s_pair + Tile::kUnitBytes);
        const char* s_inverse = s_inverses + operand * Tile::kInverseBytes;
        const float inverses[2] = {load_sample(s_inverse), load_sample(s_inverse + 4 * Tile::kUnitColumns)};
        float sums[2][4] = {};
        float corrections[2][4] = {};
        multiply(corrections[0], small, high.x, high.y);
        multiply(corrections[1], small, high.z, high.w);
        multiply(sums[0], large, high.x, high.y);
        multiply(sums[1], large, high.z, high.w);
        multiply(corrections[0], large, low.x, low.y);
        multiply(corrections[1], large, low.z, low.w);
        float y[2][4];
#pragma unroll
        for (int t = 0; t < 2; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) y[t][i] = (sums[t][i] + corrections[t][i]) * inverses[i / 2];
        }
        const std::uint32_t to = sent_to + buffer * block.buffer_bytes();
        const std::uint32_t full = sent_full + 8 * buffer;
        const int left = columns - lane / 4;
        if (left > 0) send(to, full, y[0][0], y[0][1], y[1][0], y[1][1]);
        if (left > Tile::kUnitColumns) send(to + Tile::kUnitBytes, full, y[0][2], y[0][3], y[1][2], y[1][3]);
      }
      operand ^= 1;
      if (kRoute == Route::kFetching || kRoute == Route::kHold) {
        const int own = thread - Tile::kComputingThreads;
        if (own < 4 * Tile::kPartColumns) {
          store_ring<kRoute>(block, layer, block.s_fixed().columns[part * Tile::kPartColumns + own / 4], s_window,
                             own % 4);
        }
      }
    }
    if (owns && index > 0) block.have_waited(index - 1, parts);
    s_window += tile.window_bytes;
    if (s_window == s_windows_end) s_window = window_at(block, tile, 0);
  }
  if (block.rank < block.s_fixed().layers[plan.layer_count - 1].out_blocks) {
    if (kRoute != Route::kHold && !StackCommand::words(block.entry->command)) {
      // Asked for while the others wait for partial sums.
      const bool given_up = *block.args.d_given_up != 0;
      for (int part = 0; part < parts; ++part) {
        barrier_of_all();  // the part's output is there
        if (!given_up) store_output(block, tile, part, thread - Tile::kComputingThreads);
      }
    }
    block.have_waited(plan.layer_count - 1, parts);
  }
}

// Runs a tile through the stack. A step's time is that of a thread's instructions one behind the other, so there are
// two kinds of threads, each with a part of them.
template <Route kRoute, int kTaps>
__device__ __forceinline__ void run_tile(Block& block, const TileOfItems& tile) {
  constexpr bool kHold = kRoute == Route::kHold;
  const StackPlan& plan = block.plan();
  const int rank = block.rank;
  const int thread = this_thread();

  cluster_wait();  // the others have read the last tile's partial sums, and halos
  // Threads that multiply load first, for they have less to prepare.
  load_input<kHold>(block, tile, (thread + Tile::kComputingThreads) % Tile::kThreads);
  if (tile.before > 0 && thread < plan.layer_count) {
    const StackLayer& layer = block.s_fixed().layers[thread];
    if (layer.halo_frames > 0 && rank < layer.in_blocks) {
      barrier_expect(block.halos_full(thread), min(layer.halo_frames, tile.before) * Tile::kRowBytes);
    }
  }
  if (thread < Tile::kComputingThreads) {
    compute_layers<kRoute, kTaps>(block, tile, thread);
  } else {
    multiply_layers<kRoute>(block, tile, thread);
  }

  // The answer first, unless another cluster may have a stream's next pass: it reads the rings.
  const bool tells_last = cluster_count() > 1;
  __syncthreads();  // what comes next overwrites entries and output
  if (!kHold && tile.last && !tells_last) block.tell();
  if (kRoute == Route::kWhole || kRoute == Route::kApart) store_rings<kRoute>(block, tile, thread);
  __threadfence();  // for the next tile, or pass, of this cluster, whose barrier orders nothing
  __syncthreads();  // and windows
  if (!kHold && tile.last && tells_last) block.tell();
  cluster_arrive();
}

template <int kTaps>
__device__ __forceinline__ void run_tile_of(Block& block, const TileOfItems& tile) {
  if (tile.windows < block.plan().layer_count) {
    run_tile<Route::kFetching, kTaps>(block, tile);
  } else if (tile.size == 0) {
    run_tile<Route::kApart, kTaps>(block, tile);
  } else {
    run_tile<Route::kWhole, kTaps>(block, tile);
  }
}

// All of a pass that is this block's: of each of the cluster's teams every so many-th tile, or half an item. Chunk
// after chunk is mostly divided in the same way, and to plan a tile takes 0.15 us: a resident kernel keeps the
// tile of the last pass that had just one.
template <bool kResident>
__device__ __forceinline__ void run_pass(Block& block) {
  const StackPlan& plan = block.plan();
  const std::uint64_t command = block.entry->command;
  const int count = StackCommand::count(command);
  const bool holds = StackCommand::holds(command);
  const bool planned = kResident && StackCommand::shape(command) == block.only_tile_shape;
  TileOfItems tile;
  int own_first = 0;
  int step = count;
  int team_first = 0;
  if (planned) {
    tile = block.s_fixed().only_tile;
  } else {
    const int clusters = static_cast<int>(cluster_count());
    tile.size = StackCommand::size(command);
    const bool splits = block.args.teams > 1 && plan.splits(tile.size, count, holds, clusters);
    if (splits) --tile.size;
    const int teams = splits ? 1 : block.args.teams;  // that work apart
    // Spread over all teams before tiles grow.
    const int share = clusters * teams == 1 ? count : (count + clusters * teams - 1) / (clusters * teams);
    tile.most_items = min(plan.items[tile.size], share <= 1 ? 1 : 1 << (32 - __clz(share - 1)));
    tile.window_bytes = plan.window_bytes(tile.size, tile.most_items);
    tile.windows = splits ? plan.layer_count : plan.windows(tile.size, tile.most_items);
    tile.before = splits ? block.team << tile.size : 0;
    tile.leads = splits && block.team == 0;
    tile.last = false;
    own_first = static_cast<int>(cluster_index()) * teams * tile.most_items;
    step = clusters * teams * tile.most_items;
    team_first = splits ? 0 : block.team * tile.most_items;
    if (own_first >= count) {
      // As with a tile: who waits behind this pass knows that every thread has read the command.
      block.tell();
      cluster_wait();
      cluster_arrive();
    }
  }
  for (int first = own_first; first < count; first += step) {
    if (!planned) {
      tile.first = first + team_first;
      tile.items = min(count - first - team_first, tile.most_items);
      if (tile.items <= 0) {
        // The other team has a tile.
        if (!tile.last) block.tell();  // this one has had none
        for (int barriers = holds ? 2 : 1; barriers > 0; --barriers) {
          cluster_wait();
          cluster_arrive();
        }
        break;
      }
      tile.last = first + step + team_first >= count;
      if (kResident && first == own_first && first + step >= count && !holds) {
        block.only_tile_shape = StackCommand::shape(command);
        if (threadIdx.x == 0) block.s_fixed().only_tile = tile;  // the tile's barriers come before the next pass
      }
      if (holds) run_tile<Route::kHold, 0>(block, tile);
    }
    if (plan.taps == 5) {
      run_tile_of<5>(block, tile);
    } else if (plan.taps == 3) {
      run_tile_of<3>(block, tile);
    } else {
      run_tile_of<0>(block, tile);
    }
  }
}

// What a block of a resident kernel has of the mailbox, and what its first warp sees there.
struct Mail {
  StackEntry* s_entry;  // that has come
  float* s_words;       // and the block's samples, of a pass with words
  std::uint32_t full;   // the barrier of the entry
  bool leads;           // looks into the mailbox, for the cluster
  bool takes_words;     // has channels of the stack's input
  bool has_words;       // whether the pass before had words
  std::uint32_t parity = 0;
  std::uint32_t sequence = 0;  // of the last pass

  // The first 8 lanes have the mailbox, the next 8 the block's samples.
  static constexpr int kMailLanes = kEntryWords / 2;
  static constexpr int kWordLanes = Tile::kBlockChannels / 2;
};

// Waits for the next pass: its entry, and samples that come as words. False: the kernel is to end. Bounded: a
// command, an end that was asked for, too long idle or too old.
__device__ __forceinline__ bool wait_for_mail(const StackArgs& args, Mail& mail, int rank, std::uint64_t start) {
  const int thread = this_thread();
  const int lane = thread % 32;
  const bool watches =
      thread < 32 && mail.takes_words && lane >= Mail::kMailLanes && lane < Mail::kMailLanes + Mail::kWordLanes;
  const TaggedWord* address = lane < Mail::kMailLanes
                                  ? args.mailbox + 2 * lane
                                  : args.in_words + rank * Tile::kBlockChannels + 2 * (lane - Mail::kMailLanes);
  TaggedPair pair = {};
  if (thread == Tile::kThreads - 1) barrier_expect(mail.full, sizeof(StackEntry));
  if (thread < 32 && mail.leads) {
    const bool reads = lane < Mail::kMailLanes;
    const std::uint64_t idle_since = nanoseconds();
    bool over = false;
    for (int looks = 0; !over; ++looks) {
      // The command is in the last two words. One instruction: the next one would be served behind it.
      if (reads || (watches && mail.has_words)) pair = load_pair(address);
      const std::uint32_t sequence = tag_of(__shfl_sync(0xffffffffu, pair.second, Mail::kMailLanes - 1));
      const bool whole = __all_sync(0xffffffffu, !reads || pair.is_of(sequence));
      const std::uint64_t low = __shfl_sync(0xffffffffu, pair.first, Mail::kMailLanes - 1);
      const bool ours = StackCommand::epoch(low & 0xffffffffu) == args.epoch;
      if (ours && whole && sequence != mail.sequence) break;
      over = !ours;
      if (looks % 16 == 15) {
        const std::uint64_t now = nanoseconds();
        over = over || now - idle_since > args.idle_ns || now - start > args.life_ns;
      }
      over = __any_sync(0xffffffffu, over);
    }
    // A lane sends 8 bytes to every fourth block. An entry without a command is the end.
    std::uint64_t words = (pair.first & 0xffffffffu) | pair.second << 32;
    words = __shfl_sync(0xffffffffu, words, lane % Mail::kMailLanes);
    if (over) words = 0;
    const std::uint32_t to = shared_address(mail.s_entry) + 8 * (lane % Mail::kMailLanes);
    for (int block = lane / Mail::kMailLanes; block < args.plan.blocks * args.teams; block += 32 / Mail::kMailLanes) {
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%0], %1, [%2];" ::"r"(
                       address_in_block(to, static_cast<std::uint32_t>(block))),
                   "l"(words), "r"(address_in_block(mail.full, static_cast<std::uint32_t>(block)))
                   : "memory");
    }
  } else if (thread < 32 && mail.has_words) {
    // Its samples may be here before the command is.
    while (!__all_sync(0xffffffffu, barrier_has_passed(mail.full, mail.parity))) {
      if (watches) pair = load_pair(address);
    }
  }
  barrier_wait(mail.full, mail.parity);
  mail.parity ^= 1;
  const std::uint64_t command = *reinterpret_cast<volatile std::uint64_t*>(&mail.s_entry->command);
  if (command == 0) return false;
  mail.sequence = StackCommand::sequence(command);
  mail.has_words = StackCommand::words(command);
  if (watches && mail.has_words) {
    // The host wrote them before the command.
    while (!pair.is_of(mail.sequence)) pair = load_pair(address);
    const int channel = 2 * (lane - Mail::kMailLanes);
    mail.s_words[channel] = __uint_as_float(static_cast<std::uint32_t>(pair.first));
    mail.s_words[channel + 1] = __uint_as_float(static_cast<std::uint32_t>(pair.second));
  }
  return true;
}

#endif  // __CUDA_ARCH__ >= 900

template <bool kResident>
__global__ void __launch_bounds__(Tile::kThreads, 1) stack_kernel(const __grid_constant__ StackArgs args) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) char s_dynamic[];
  __shared__ std::uint64_t s_image_full;
  char* const s_memory = opaque(s_dynamic);
  Fixed& s_fixed = *reinterpret_cast<Fixed*>(s_memory + Tile::kSharedBytes);
  const int blocks = args.plan.blocks;
  const int rank = static_cast<int>(rank_in_cluster()) & (blocks - 1);
  const int team = static_cast<int>(rank_in_cluster()) >> args.plan.block_bits;
  Block block{args,
              s_memory,
              kResident ? &s_fixed.entry : &args.entry,
              kResident ? s_fixed.words : nullptr,
              args.done + (static_cast<int>(cluster_index()) * args.teams + team) * Tile::kMostBlocks + rank,
              team,
              rank};
  const bool first_of_cluster = rank == 0 && team == 0;
  for (int i = static_cast<int>(threadIdx.x); i < args.plan.layer_count * 4; i += Tile::kThreads) {
    reinterpret_cast<int4*>(s_fixed.layers)[i] = reinterpret_cast<const int4*>(args.plan.layers)[i];
  }
  const std::uint32_t image_full = shared_address(&s_image_full);
  const std::uint32_t entry_full = shared_address(&s_fixed.entry_full);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * Tile::kMostParts; ++i) barrier_init(block.partials_full(i), 1);
    for (int i = 0; i < args.plan.layer_count; ++i) barrier_init(block.halos_full(i), 1);
    barrier_init(image_full, 1);
    barrier_init(entry_full, 1);
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
    run_pass<false>(block);
  } else {
    Mail mail{&s_fixed.entry,
              s_fixed.words,
              entry_full,
              first_of_cluster,
              cluster_index() == 0 && team == 0 && rank < block.s_fixed().layers[0].in_blocks,
              false};
    mail.sequence = args.d_done[cluster_index()];
    const std::uint64_t start = nanoseconds();
    while (wait_for_mail(args, mail, rank, start)) {
      run_pass<true>(block);
      if (threadIdx.x == 0 && first_of_cluster) args.d_done[cluster_index()] = mail.sequence;
      // The next command overwrites this one: every block has read it.
      cluster_wait();
      cluster_arrive();
    }
    if (threadIdx.x == 0 && first_of_cluster) tell_host(args.gone + cluster_index(), args.epoch);
  }
  cluster_wait();  // nobody sends to a block that has ended
#endif
}

constexpr int kLaunchBytes = Tile::kSharedBytes + static_cast<int>(sizeof(Fixed));

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
