#include "halotap/kernels/roofline.hpp"

#include <cstddef>
#include <utility>

#include "cpu/layer_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/roofline.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace halotap::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::CappedTag<float, cpu::kRowFloats>;
using Vector = hn::Vec<Floats>;
constexpr Floats kFloats;

// Independent sums. The widest cores finish 4 multiply-adds a cycle, each after 4 cycles; those with 16 vector
// registers 2 a cycle. Two registers are left for the factors.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64
constexpr std::size_t kSums = 24;
#else
constexpr std::size_t kSums = 12;
#endif
// Multiply-adds to each sum in a round: the loop's own counting is lost among them.
constexpr int kRows = 4;
// Vectors that one step of the read loop adds to as many sums.
constexpr int kReads = 8;

// Makes the compiler believe that the sums are wanted.
void keep(Vector sum) {
  const float total = hn::GetLane(hn::SumOfLanes(kFloats, sum));
  asm volatile("" : : "r"(&total) : "memory");
}

// Expanded by the template and not by the optimiser, which gives up on so many sums and keeps them in memory.
template <std::size_t... kSum>
std::int64_t multiply_adds(std::int64_t rounds, std::index_sequence<kSum...>) {
  const Vector half = hn::Set(kFloats, 0.5f);
  const Vector one = hn::Set(kFloats, 1.0f);
  // Different numbers, or the compiler would compute one sum for all. They come to 2, far from overflow and denormals.
  Vector sums[] = {hn::Set(kFloats, 1.0f + static_cast<float>(kSum))...};
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (int row = 0; row < kRows; ++row) ((sums[kSum] = hn::MulAdd(sums[kSum], half, one)), ...);
  }
  Vector sum = hn::Zero(kFloats);
  ((sum = hn::Add(sum, sums[kSum])), ...);
  keep(sum);
  return 2 * rounds * kRows * static_cast<std::int64_t>(kSums * hn::Lanes(kFloats));
}

std::int64_t multiply_add_loop(std::int64_t rounds) { return multiply_adds(rounds, std::make_index_sequence<kSums>()); }

std::int64_t read_loop(const float* data, std::int64_t floats, std::int64_t passes) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const std::int64_t step = kReads * lanes;
  const std::int64_t end = floats / step * step;
  Vector sums[kReads];
  for (int i = 0; i < kReads; ++i) sums[i] = hn::Zero(kFloats);
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    for (std::int64_t at = 0; at < end; at += step) {
      for (int i = 0; i < kReads; ++i) sums[i] = hn::Add(sums[i], hn::LoadU(kFloats, data + at + i * lanes));
    }
  }
  Vector sum = hn::Zero(kFloats);
  for (int i = 0; i < kReads; ++i) sum = hn::Add(sum, sums[i]);
  keep(sum);
  return passes * end * static_cast<std::int64_t>(sizeof(float));
}

}  // namespace halotap::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halotap::kernels {

HWY_EXPORT(multiply_add_loop);
HWY_EXPORT(read_loop);

std::int64_t multiply_add_loop(std::int64_t rounds) {
  cpu::layer_kernels();  // takes the level that HALOTAP_ISA names
  return HWY_DYNAMIC_DISPATCH(multiply_add_loop)(rounds);
}

std::int64_t read_loop(std::span<const float> data, std::int64_t passes) {
  cpu::layer_kernels();  // as above
  return HWY_DYNAMIC_DISPATCH(read_loop)(data.data(), static_cast<std::int64_t>(data.size()), passes);
}

}  // namespace halotap::kernels
#endif
