// What the core can do: two loops that each do one thing only, as fast as the SIMD level allows that the CPU backend
// computes with (HALOTAP_ISA forces one). A kernel's speed is measured against theirs. They read no clock: the caller
// does.
#pragma once

#include <cstdint>
#include <span>

namespace halotap::kernels {

// Multiply-adds that never leave the registers, enough of them side by side to hide their latency. Returns the
// floating-point operations done, two a multiply-add. Throws std::invalid_argument when HALOTAP_ISA names no level of
// this build and processor, and BackendUnavailable in a build without the CPU backend. [control]
std::int64_t multiply_add_loop(std::int64_t rounds);

// Reads `data` in order, `passes` times, and returns the bytes read. A rest of less than a kilobyte is not read.
// Throws as multiply_add_loop. [control]
std::int64_t read_loop(std::span<const float> data, std::int64_t passes);

}  // namespace halotap::kernels
