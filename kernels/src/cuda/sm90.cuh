// The instructions of compute capability 9.0 that the block kernel is built on: barriers in shared memory, the bulk
// tensor copy, warpgroup matrix products.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace halotap::kernels::cuda::sm90 {

__device__ __forceinline__ std::uint32_t shared_address(const void* s_pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(s_pointer));
}

// The same number, and the same place of shared memory, as what the compiler does not know: it keeps them in a register
// rather than find them again wherever they are used, and makes nothing of them beforehand.
__device__ __forceinline__ int opaque(int number) {
  asm volatile("" : "+r"(number));
  return number;
}
__device__ __forceinline__ char* opaque(char* s_place) {
  const int address = opaque(static_cast<int>(shared_address(s_place)));
  return static_cast<char*>(__cvta_shared_to_generic(static_cast<std::uint32_t>(address)));
}

// The thread's index, read anew wherever this is called rather than kept in a register.
__device__ __forceinline__ int thread_of_block() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// A launch may begin while the one before it on the stream still runs (programmatic dependent launch). Nothing that it
// wrote may be read, and nothing that it reads be written, before this returns.
__device__ __forceinline__ void wait_for_previous_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Lets the next launch begin as soon as there is room for its blocks.
__device__ __forceinline__ void allow_next_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Sets the registers that each thread of this warpgroup may use from here on.
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A barrier in shared memory completes a phase when its count of arrivals, and the bytes announced, have come.
__device__ __forceinline__ void barrier_init(std::uint64_t* s_barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(s_barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_arrive(std::uint64_t* s_barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(s_barrier)) : "memory");
}
// Arrives when these two float16, rounded from float32, are known, rather than as soon as the compiler can: rounding
// gives no such NaN.
__device__ __forceinline__ void barrier_arrive_knowing(std::uint32_t float16s, std::uint64_t* s_barrier) {
  asm volatile(
      "{\n"
      ".reg .pred known;\n"
      "setp.ne.b32 known, %1, 0xfe01fe01;\n"
      "@known mbarrier.arrive.shared::cta.b64 _, [%0];\n"
      "}\n" ::"r"(shared_address(s_barrier)),
      "r"(float16s)
      : "memory");
}
// Arrives so many times, and tells whether these were the last arrivals that the phase waited for.
__device__ __forceinline__ bool barrier_arrive_last(std::uint64_t* s_barrier, int arrivals) {
  std::uint32_t pending_before;
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared::cta.b64 state, [%1], %2;\n"
      "mbarrier.pending_count.b64 %0, state;\n"
      "}\n"
      : "=r"(pending_before)
      : "r"(shared_address(s_barrier)), "r"(arrivals)
      : "memory");
  return pending_before == static_cast<std::uint32_t>(arrivals);
}
__device__ __forceinline__ void barrier_arrive_expecting(std::uint64_t* s_barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(s_barrier)), "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity (0 for the first) is complete.
__device__ __forceinline__ void barrier_wait(std::uint64_t* s_barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait;\n"
      "}\n" ::"r"(shared_address(s_barrier)),
      "r"(parity)
      : "memory");
}

// Makes ordinary writes to shared memory visible to the matrix unit: this thread's, and those that it knows of through
// a barrier. It waits for all that the thread has under way.
__device__ __forceinline__ void fence_for_async_reads() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Makes initialised barriers visible to the copy engine.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Copies the box at (frame, channel, item) of a tensor into shared memory; what lies outside the tensor becomes zeros.
__device__ __forceinline__ void copy_box(void* s_target, const CUtensorMap* map, std::uint64_t* s_barrier, int frame,
                                         int channel, int item) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(shared_address(s_target)),
      "l"(map), "r"(shared_address(s_barrier)), "r"(frame), "r"(channel), "r"(item)
      : "memory");
}
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Asks for the line that holds this in the second-level cache.
__device__ __forceinline__ void prefetch(const void* place) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(place) : "memory");
}

// Copies one 4-byte sample into shared memory, or zeros when it is not `real`; asynchronous.
__device__ __forceinline__ void copy_sample(void* s_target, const void* source, bool real) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(s_target)), "l"(source),
               "r"(real ? 4 : 0)
               : "memory");
}
// Arrives at a barrier when the samples that this thread copies are there.
__device__ __forceinline__ void barrier_arrive_after_copies(std::uint64_t* s_barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(s_barrier)) : "memory");
}

// What the matrix unit needs to know of an operand [K, N] in shared memory, N contiguous, without swizzle: tiles of 8 x
// 8 numbers of 16 bits, 16 bytes a row of K; `k_stride_bytes` from one tile to the next along K and 128 along N. The
// lower half of the descriptor; the upper one is the same for all. Adding bytes / 16 moves the operand.
__device__ __forceinline__ std::uint32_t operand(const void* s_data, int k_stride_bytes) {
  return (shared_address(s_data) & 0x3ffffu) >> 4 | static_cast<std::uint32_t>(k_stride_bytes >> 4) << 16;
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// d[64 x 64] = a[64 x 16] * b[16 x 64] (+ d when `kAdd`), float16 or bfloat16 in, float32 out; a in registers, b
// `kOffsetBytes` after the operand.
#define HALOTAP_MULTIPLY_ADD(type)                                                                               \
  asm volatile(                                                                                                  \
      "{\n"                                                                                                      \
      ".reg .pred p;\n"                                                                                          \
      ".reg .b32 low;\n"                                                                                         \
      ".reg .b64 descriptor;\n"                                                                                  \
      "setp.ne.b32 p, %37, 0;\n"                                                                                 \
      "add.u32 low, %36, %38;\n"                                                                                 \
      "mov.b64 descriptor, {low, 8};\n"                                                                          \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type                                                \
      " "                                                                                                        \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                  \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "                        \
      "{%32, %33, %34, %35}, descriptor, p, 1, 1, 1;\n"                                                          \
      "}\n"                                                                                                      \
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), \
        "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), \
        "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), \
        "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), \
        "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])                                               \
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b), "n"(kAdd ? 1 : 0), "n"(kOffsetBytes / 16))
template <bool kBfloat16, bool kAdd, int kOffsetBytes>
__device__ __forceinline__ void multiply_add(float (&d)[8][4], const uint4& a, std::uint32_t b) {
  if constexpr (kBfloat16) {
    HALOTAP_MULTIPLY_ADD("bf16");
  } else {
    HALOTAP_MULTIPLY_ADD("f16");
  }
}
#undef HALOTAP_MULTIPLY_ADD

}  // namespace halotap::kernels::cuda::sm90
