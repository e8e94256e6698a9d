// The kernel that runs a whole stack (stack_kernel.cu), as the host sees it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "cuda/pass.hpp"
#include "cuda/stack_plan.hpp"

namespace halotap::kernels::cuda {

// A PassEntry as the kernel reads it: out of the host's memory, of its parameters or of the mailbox.
struct alignas(16) StackEntry {
  std::int64_t received = 0;
  std::int64_t end = 0;
  const float* input = nullptr;  // [in_channels, in_stride], in host memory that the device sees; rows of more than two
                                 // frames begin at whole 16 bytes, as those of the output
  float* output = nullptr;       // [out_channels, out_stride], likewise
  std::int64_t in_stride = 0;
  std::int64_t out_stride = 0;
  std::int32_t slot = 0;
  std::int16_t frames = 0;
  std::int16_t flags = 0;
  std::uint64_t command = 0;  // the pass, in its first entry

  static constexpr std::int16_t kFresh = 1;
  static constexpr std::int16_t kHeld = 2;
  static constexpr std::int16_t kStartHold = 4;
};
static_assert(sizeof(StackEntry) == 64);

// 32 bits of a StackEntry, or a sample, below the sequence of the pass that they belong to. Written and read at once:
// who reads it needs no other word to tell that it is there.
using TaggedWord = std::uint64_t;
HALOTAP_HOST_DEVICE constexpr TaggedWord tagged(std::uint32_t word, std::uint32_t sequence) {
  return static_cast<std::uint64_t>(sequence) << 32 | word;
}
HALOTAP_HOST_DEVICE constexpr std::uint32_t tag_of(TaggedWord tagged) {
  return static_cast<std::uint32_t>(tagged >> 32);
}
inline constexpr int kEntryWords = sizeof(StackEntry) / sizeof(std::uint32_t);

// One pass, as a word that is written and read at once.
//
//     sequence 32 | epoch 7 | words 1 | holds 1 | size 3 | count 20        sequence on top
//
// epoch: of the resident kernel that is to run it, from 1; others end. words: it is one frame of one stream, whose
// samples cross the bus as tagged words. holds: some entry starts to hold. size: items have 2^size columns. count: of
// entries. A word of zeros is no pass.
struct StackCommand {
  static constexpr int kCountBits = 20;
  static constexpr int kSizeBits = 3;
  static constexpr int kEpochBits = 7;
  static constexpr std::uint32_t kMostEpoch = (1u << kEpochBits) - 1;

  static constexpr std::uint64_t pack(std::uint32_t sequence, std::uint32_t epoch, bool words, bool holds, int size,
                                      int count) {
    std::uint64_t word = sequence;
    word = word << kEpochBits | epoch;
    word = word << 1 | (words ? 1u : 0u);
    word = word << 1 | (holds ? 1u : 0u);
    word = word << kSizeBits | static_cast<std::uint32_t>(size);
    return word << kCountBits | static_cast<std::uint32_t>(count);
  }
  HALOTAP_HOST_DEVICE static constexpr std::uint32_t sequence(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> 32);
  }
  HALOTAP_HOST_DEVICE static constexpr std::uint32_t epoch(std::uint64_t word) {
    return static_cast<std::uint32_t>(word >> (32 - kEpochBits)) & kMostEpoch;
  }
  HALOTAP_HOST_DEVICE static constexpr bool holds(std::uint64_t word) {
    return (word >> (kSizeBits + kCountBits) & 1) != 0;
  }
  HALOTAP_HOST_DEVICE static constexpr int size(std::uint64_t word) {
    return static_cast<int>(word >> kCountBits) & ((1 << kSizeBits) - 1);
  }
  HALOTAP_HOST_DEVICE static constexpr int count(std::uint64_t word) {
    return static_cast<int>(word & ((1u << kCountBits) - 1));
  }
  HALOTAP_HOST_DEVICE static constexpr bool words(std::uint64_t word) {
    return (word >> (1 + kSizeBits + kCountBits) & 1) != 0;
  }
  // All but sequence and epoch: what says how a pass is divided. Never 0.
  HALOTAP_HOST_DEVICE static constexpr std::uint32_t shape(std::uint64_t word) {
    return static_cast<std::uint32_t>(word) & ((1u << (2 + kSizeBits + kCountBits)) - 1);
  }
};
static_assert(32 + StackCommand::kEpochBits + 2 + StackCommand::kSizeBits + StackCommand::kCountBits == 64);

// What the kernel works on; passed by value.
struct StackArgs {
  StackPlan plan;
  const std::byte* d_image = nullptr;     // [blocks, image_bytes]
  float* d_state = nullptr;               // [slots, blocks, ring_rows, 16]
  const StackEntry* entries = nullptr;    // [items]; these four in host memory that the device sees
  const float* frames_to_hold = nullptr;  // [items, in_channels]
  std::uint32_t* done = nullptr;  // [clusters, teams, kMostBlocks]: each block's last sequence, of a pass without words
  TaggedWord* out_words = nullptr;           // [blocks, 16]: the output of a pass with words
  const volatile int* d_given_up = nullptr;  // GiveUp's
  std::int32_t teams = 1;                    // of a cluster, each of which has the whole stack: 1 or 2
  StackEntry entry;                          // the pass and its first entry, unless resident
  // Resident:
  const TaggedWord* mailbox = nullptr;   // in host memory, as the next two, [kEntryWords]: the same
  const TaggedWord* in_words = nullptr;  // [blocks, 16]: the input of a pass with words
  std::uint32_t* gone = nullptr;         // [clusters]: the epoch of a kernel that has ended
  std::uint32_t* d_done = nullptr;       // [clusters]: last sequence, from kernel to kernel
  std::uint64_t idle_ns = 0;             // ends after this long without a command
  std::uint64_t life_ns = 0;             // and after this long in any case, between two passes
  std::uint32_t epoch = 0;
};

static_assert(sizeof(StackArgs) <= 4096, "the parameters of a kernel");

// How many clusters the device runs at once.
struct StackRoom {
  int clusters = 0;         // of one team
  int clusters_of_two = 0;  // of two
};

// Queues the kernel, `clusters` of args.teams teams of args.plan.blocks blocks each. CUDA's error of the launch.
// [worker]
cudaError_t launch_stack(const StackArgs& args, bool resident, int clusters, cudaStream_t stream) noexcept;

// Loads both kernels and allows them their shared memory: CUDA's error, cudaErrorInvalidKernelImage where this build
// has none for the device. [control]
cudaError_t prepare_stack(const StackPlan& plan, StackRoom& room) noexcept;

}  // namespace halotap::kernels::cuda
