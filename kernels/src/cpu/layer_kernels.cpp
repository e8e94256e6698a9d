#include "cpu/layer_kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/layer_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// After highway.h: it is compiled once a level.
#include <hwy/contrib/math/math-inl.h>

HWY_BEFORE_NAMESPACE();
namespace halotap::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// Never wider than a row's alignment unit, so that a row is a whole number of vectors.
using Floats = hn::CappedTag<float, kRowFloats>;
using Vector = hn::Vec<Floats>;
constexpr Floats kFloats;

// Sums that one pass of the mix holds in registers, and output vectors that it takes at once: 6 frames x 4 vectors, or,
// where fewer vectors are left, 8 x 3, 12 x 2, 24 x 1; with 16 registers 6 x 2 or 12 x 1. More vectors to a frame mean
// fewer instructions to a multiply-add. Of the depthwise sum: the frames of one pass, and the most taps whose weights
// wait in registers beside them. The loops over a tile are unrolled by pragma: GCC keeps the sums in memory where one
// of them is left a loop.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64
constexpr int kMixSums = 24;
constexpr int kPanelVectors = 4;
constexpr int kDepthwiseRows = 12;
constexpr int kDepthwiseTaps = 8;
#else
constexpr int kMixSums = 12;
constexpr int kPanelVectors = 2;
constexpr int kDepthwiseRows = 8;
constexpr int kDepthwiseTaps = 4;
#endif
// Independent sums that keep a core busy which starts two multiply-adds a cycle and finishes each after four.
constexpr int kBusySums = 8;

// exp(-x) for x in [-87, 87] as a product. Unspecified for a NaN.
//     -x = n ln 2 + r, n whole, |r| <= ln 2 / 2;   exp(-x) = 2^n P(r)
// n is rounded by adding 1.5 * 2^23 + 127, which leaves n + 127, the exponent field of 2^n, in the low bits of the sum.
// P is our own minimax fit, by reweighted least squares against 40-digit arithmetic, of relative error 3.1e-9.
struct ExpOfMinus {
  Vector mantissa;  // P(r)
  Vector power;     // 2^n
};

HWY_INLINE ExpOfMinus exp_of_minus(Vector x) {
  constexpr float kFit[] = {1.0f, 1.0f, 0.49999994f, 0.1666652f, 0.041668393f, 0.008368781f, 0.0013814465f};
  const hn::RebindToSigned<Floats> integers;
  const Vector whole = hn::Set(kFloats, 12582912.0f + 127.0f);
  const Vector shifted = hn::NegMulAdd(x, hn::Set(kFloats, 1.44269504f), whole);
  const Vector minus_n = hn::Sub(whole, shifted);
#if HWY_NATIVE_FMA
  // n times float32's ln 2, exact inside the multiply-add, is off by n * 1.9e-9: half an ulp of the result at |x| = 20.
  const Vector r = hn::MulSub(minus_n, hn::Set(kFloats, 0.693147182f), x);
#else
  // ln 2 in two parts, the first of few enough bits that n times it is exact (Cody and Waite).
  const Vector r =
      hn::MulAdd(minus_n, hn::Set(kFloats, -2.12194440e-4f), hn::MulSub(minus_n, hn::Set(kFloats, 0.693359375f), x));
#endif
  Vector fit = hn::Set(kFloats, kFit[6]);
  for (int i = 5; i >= 0; --i) fit = hn::MulAdd(fit, r, hn::Set(kFloats, kFit[i]));
  return {fit, hn::BitCast(kFloats, hn::ShiftLeft<23>(hn::BitCast(integers, shifted)))};
}

HWY_INLINE Vector at_most(Vector x, float most) { return hn::Min(x, hn::Set(kFloats, most)); }

// A NaN stays.
HWY_INLINE Vector at_least(Vector x, float least) {
  const Vector bound = hn::Set(kFloats, least);
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  return hn::Max(bound, x);  // the instruction gives its second argument when either is a NaN
#else
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#endif
}

// exp(-x) for x >= 0, a larger x than 87 counting as 87.
HWY_INLINE Vector decay(Vector x) {
  const ExpOfMinus e = exp_of_minus(at_most(x, 87.0f));
  return hn::Mul(e.mantissa, e.power);
}

// z/(1 + exp(-z)) with scale z, 1/(1 + exp(-z)) with scale 1, for z >= -87.
HWY_INLINE Vector logistic(Vector z, Vector scale) {
  const ExpOfMinus e = exp_of_minus(at_most(z, 87.0f));
  return hn::Div(scale, hn::MulAdd(e.mantissa, e.power, hn::Set(kFloats, 1.0f)));
}

HWY_INLINE Vector keep_nan(Vector z, Vector result) { return hn::IfThenElse(hn::IsNaN(z), z, result); }

struct Identity {
  HWY_INLINE Vector operator()(Vector z) const { return z; }
};

struct Relu {
  HWY_INLINE Vector operator()(Vector z) const {
    return hn::IfThenElse(hn::Lt(z, hn::Zero(kFloats)), hn::Zero(kFloats), z);  // a NaN stays
  }
};

struct LeakyRelu {
  HWY_INLINE Vector operator()(Vector z) const {
    return hn::IfThenElse(hn::Lt(z, hn::Zero(kFloats)), hn::Mul(z, hn::Set(kFloats, 0.01f)), z);
  }
};

// z / (1 + exp(-z)). Below -87, where that is within 1e-35 of zero, it keeps its value at -87.
struct Silu {
  HWY_INLINE Vector operator()(Vector z) const {
    const Vector bounded = at_least(z, -87.0f);
    return logistic(bounded, bounded);
  }
};

struct Sigmoid {
  HWY_INLINE Vector operator()(Vector z) const {
    return keep_nan(z, logistic(at_least(z, -87.0f), hn::Set(kFloats, 1.0f)));
  }
};

struct Tanh {
  HWY_INLINE Vector operator()(Vector z) const {
    return keep_nan(z, hn::Tanh(kFloats, at_least(at_most(z, 10.0f), -10.0f)));  // 1 - tanh(10) < 2^-28
  }
};

// gelu(z) = z * Phi(z), Phi the normal distribution. With u = |z| and Q(u) = Phi(-u):
//     Q(u) = exp(-u^2/2) * t * P(t),   t = 1/(1 + 0.35 u)
// P is our own minimax fit, by reweighted least squares against 40-digit arithmetic, of relative error 3.2e-8 over u in
// [0, 14.5]; from 13 on, where Q < 1e-38, it counts as 0. Working from Q keeps the small values at negative z exact to
// a few ulp, which 1 + erf(z) would cancel away.
struct Gelu {
  HWY_INLINE Vector operator()(Vector z) const {
    constexpr float kFit[] = {0.139621302f, 0.139863536f,  0.119821183f, 0.105552927f,  -0.023213394f,
                              0.159321249f, -0.255840391f, 0.144031614f, -0.0291580297f};
    const Vector one = hn::Set(kFloats, 1.0f);
    const Vector half = hn::Set(kFloats, 0.5f);
    const Vector most = hn::Set(kFloats, 13.0f);
    const Vector u = hn::Min(hn::Abs(z), most);
    const Vector t = hn::Div(one, hn::MulAdd(u, hn::Set(kFloats, 0.35f), one));
    Vector fit = hn::Set(kFloats, kFit[8]);
    for (int i = 7; i >= 0; --i) fit = hn::MulAdd(fit, t, hn::Set(kFloats, kFit[i]));

    // u^2 = square + rest, almost exactly and without a fused multiply: with u = high + low, high of 12 bits, high^2
    // is exact and rest = (high^2 - square) + (u + high) low. exp(-rest/2) is 1 - rest/2 to float32.
    const hn::RebindToUnsigned<Floats> bits;
    const Vector high = hn::BitCast(kFloats, hn::And(hn::BitCast(bits, u), hn::Set(bits, 0xFFFFF000u)));
    const Vector square = hn::Mul(u, u);
    const Vector rest = hn::MulAdd(hn::Add(u, high), hn::Sub(u, high), hn::Sub(hn::Mul(high, high), square));
    const Vector gauss = hn::Mul(decay(hn::Mul(half, square)), hn::NegMulAdd(half, rest, one));
    const Vector q = hn::IfThenElseZero(hn::Lt(u, most), hn::Mul(gauss, hn::Mul(t, fit)));
    const Vector phi = hn::IfThenElse(hn::Lt(z, hn::Zero(kFloats)), q, hn::Sub(one, q));
    return keep_nan(z, hn::Mul(z, phi));
  }
};

// Calls `body(Activation function object)` for the elementwise activation; softmax is done by rows after the mix.
template <typename Body>
void with_activation(Activation activation, const Body& body) {
  switch (activation) {
    case Activation::kIdentity:
    case Activation::kSoftmax:
      return body(Identity{});
    case Activation::kRelu:
      return body(Relu{});
    case Activation::kLeakyRelu:
      return body(LeakyRelu{});
    case Activation::kSilu:
      return body(Silu{});
    case Activation::kGelu:
      return body(Gelu{});
    case Activation::kTanh:
      return body(Tanh{});
    case Activation::kSigmoid:
      return body(Sigmoid{});
  }
}

// Calls body.operator()<count>() for a count known only now, 1 to kMost.
template <int kMost, typename Body>
HWY_INLINE void with_count(std::int64_t count, const Body& body) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_count<kMost - 1>(count, body);
  }
  body.template operator()<kMost>();
}

// Calls body.operator()<rows>(t) for rows [t, t + rows) that together are [0, frames), in as few passes of at most
// kRows as there can be, of even size.
template <int kRows, typename Body>
HWY_INLINE void in_passes(std::int64_t frames, const Body& body) {
  std::int64_t t = 0;
  for (std::int64_t passes = (frames + kRows - 1) / kRows; passes > 0; --passes) {
    const std::int64_t rows = (frames - t + passes - 1) / passes;
    with_count<kRows>(rows, [&]<int kPassRows>() HWY_ATTR { body.template operator()<kPassRows>(t); });
    t += rows;
  }
}

// Adds kTaps taps to the sums of kRows frames that lie a dilation apart. Frame j's tap q and frame j+1's tap q-1 meet
// the same input row, so each row is loaded once for all. Every sum takes its taps in ascending order.
template <int kRows, int kTaps>
HWY_INLINE void add_taps(const float* x, std::int64_t tap, const float* weight, std::int64_t stride,
                         Vector (&z)[kRows]) {
  Vector w[kTaps];
  for (int q = 0; q < kTaps; ++q) w[q] = hn::Load(kFloats, weight + q * stride);
#pragma GCC unroll 32
  for (int i = 0; i < kRows + kTaps - 1; ++i) {
    const Vector row = hn::Load(kFloats, x + i * tap);
    for (int q = 0; q < kTaps; ++q) {
      const int j = i - q;
      if (j >= 0 && j < kRows) z[j] = hn::MulAdd(w[q], row, z[j]);
    }
  }
}

// The activated depthwise sums of kRows frames, a dilation apart or, when kAdjacent, one behind the other.
template <int kRows, bool kAdjacent, typename Activate>
HWY_NOINLINE void depthwise_rows(const PackedLayer& layer, const float* window, float* a) {
  const Activate activate;
  const std::int64_t stride = layer.in_stride;
  const std::int64_t tap = layer.dilation * stride;
  const std::int64_t frame = kAdjacent ? stride : tap;
  for (std::int64_t c = 0; c < stride; c += static_cast<std::int64_t>(hn::Lanes(kFloats))) {
    const Vector bias = hn::Load(kFloats, layer.dw_bias.get() + c);
    Vector sum[kRows];
#pragma GCC unroll 16
    for (int j = 0; j < kRows; ++j) sum[j] = bias;
    const float* x = window + c;
    const float* weight = layer.dw_weight.get() + c;
    if constexpr (kAdjacent) {
      for (std::int64_t k = 0; k < layer.kernel_size; ++k) {
        const Vector w = hn::Load(kFloats, weight + k * stride);
#pragma GCC unroll 16
        for (int j = 0; j < kRows; ++j) {
          sum[j] = hn::MulAdd(w, hn::Load(kFloats, x + k * tap + j * frame), sum[j]);
        }
      }
    } else {
      std::int64_t k = 0;
      for (; k + kDepthwiseTaps <= layer.kernel_size; k += kDepthwiseTaps) {
        add_taps<kRows, kDepthwiseTaps>(x + k * tap, tap, weight + k * stride, stride, sum);
      }
      if (k < layer.kernel_size) {
        with_count<kDepthwiseTaps - 1>(layer.kernel_size - k, [&]<int kTaps>() HWY_ATTR {
          add_taps<kRows, kTaps>(x + k * tap, tap, weight + k * stride, stride, sum);
        });
      }
    }
#pragma GCC unroll 16
    for (int j = 0; j < kRows; ++j) hn::Store(activate(sum[j]), kFloats, a + j * frame + c);
  }
}

void activate_rows(Activation activation, std::int64_t floats, float* y) {
  if (activation == Activation::kIdentity) return;
  with_activation(activation, [&](auto activate) HWY_ATTR {
    for (std::int64_t i = 0; i < floats; i += static_cast<std::int64_t>(hn::Lanes(kFloats))) {
      hn::StoreU(activate(hn::LoadU(kFloats, y + i)), kFloats, y + i);
    }
  });
}

// The activated depthwise sums of kRows vectors of narrow rows, one behind the other from float i on.
template <int kRows, typename Activate>
HWY_NOINLINE void depthwise_narrow(const PackedLayer& layer, const float* window, std::int64_t i, float* a) {
  const Activate activate;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const std::int64_t tap = layer.dilation * layer.in_stride;
  const auto column = [&](int j) { return (i + j * lanes) % kRowFloats; };
  Vector sum[kRows];
#pragma GCC unroll 16
  for (int j = 0; j < kRows; ++j) sum[j] = hn::Load(kFloats, layer.dw_bias.get() + column(j));
  const float* x = window + i;
  const float* weight = layer.dw_weight.get();
  for (std::int64_t k = 0; k < layer.kernel_size; ++k, x += tap, weight += kRowFloats) {
#pragma GCC unroll 16
    for (int j = 0; j < kRows; ++j) {
      sum[j] = hn::MulAdd(hn::Load(kFloats, weight + column(j)), hn::LoadU(kFloats, x + j * lanes), sum[j]);
    }
  }
#pragma GCC unroll 16
  for (int j = 0; j < kRows; ++j) hn::StoreU(activate(sum[j]), kFloats, a + i + j * lanes);
}

template <typename Activate>
void depthwise_activated(const PackedLayer& layer, const float* window, std::int64_t frames, float* a) {
  const std::int64_t stride = layer.in_stride;
  const std::int64_t dilation = layer.dilation;
  if (stride < kRowFloats) {
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
    in_passes<kDepthwiseRows>((frames * stride + lanes - 1) / lanes, [&]<int kRows>(std::int64_t j) HWY_ATTR {
      depthwise_narrow<kRows, Activate>(layer, window, j * lanes, a);
    });
    return;
  }
  // Frames a dilation apart share their input rows. With few of them that is worth less than the order of memory, but
  // for kernels whose window is too long for the first-level cache.
  const std::int64_t least = layer.kernel_size < kLongKernel ? kDepthwiseRows / 2 : 2;
  if (frames < least * dilation) {
    in_passes<kDepthwiseRows>(frames, [&]<int kRows>(std::int64_t t) HWY_ATTR {
      depthwise_rows<kRows, true, Activate>(layer, window + t * stride, a + t * stride);
    });
  } else {
    for (std::int64_t phase = 0; phase < dilation; ++phase) {
      in_passes<kDepthwiseRows>((frames - phase + dilation - 1) / dilation, [&]<int kRows>(std::int64_t i) HWY_ATTR {
        const std::int64_t t = phase + i * dilation;
        depthwise_rows<kRows, false, Activate>(layer, window + t * stride, a + t * stride);
      });
    }
  }
}

// SiLU and relu are applied to the sums where they are, in registers; the others, rarer and longer, in a pass of their
// own.
void depthwise(const PackedLayer& layer, const float* window, std::int64_t frames, float* a) {
  if (layer.activation == Activation::kSilu) return depthwise_activated<Silu>(layer, window, frames, a);
  if (layer.activation == Activation::kRelu) return depthwise_activated<Relu>(layer, window, frames, a);
  depthwise_activated<Identity>(layer, window, frames, a);
  activate_rows(layer.activation, frames * layer.in_stride, a);
}

// Columns that the mix computes: a row, or the vector that a narrow row is the beginning of.
HWY_INLINE std::int64_t mix_columns(std::int64_t out_channels) {
  return std::max(row_stride(out_channels), static_cast<std::int64_t>(hn::Lanes(kFloats)));
}

// The weights of the mix lie in panels of kPanelVectors vectors of output channels; the last has what is left of the
// columns. The floats across the panel that begins at column `first`:
HWY_INLINE std::int64_t panel_width(std::int64_t columns, std::int64_t first) {
  return std::min(columns - first, kPanelVectors * static_cast<std::int64_t>(hn::Lanes(kFloats)));
}

std::int64_t pointwise_size(std::int64_t in_channels, std::int64_t out_channels) {
  return in_channels * mix_columns(out_channels);
}

void pack_pointwise(const double* weight, std::int64_t in_channels, std::int64_t out_channels, float* packed) {
  const std::int64_t columns = mix_columns(out_channels);
  for (std::int64_t first = 0; first < columns; first += panel_width(columns, first)) {
    const std::int64_t width = panel_width(columns, first);
    for (std::int64_t c = 0; c < in_channels; ++c) {
      for (std::int64_t o = first; o < first + width; ++o) {
        *packed++ = o < out_channels ? static_cast<float>(weight[o * in_channels + c]) : 0.0f;
      }
    }
  }
}

// kRows frames by kVectors vectors of output channels from column `first` on, which begins a panel: a panel of so many
// vectors, or several whole panels. A vector that is longer than a narrow row covers rows to come: they are stored
// later.
template <int kRows, int kVectors>
HWY_NOINLINE void mix_tile(const PackedLayer& layer, std::int64_t first, const float* a, const float* residual,
                           float* y) {
  constexpr int kPanel = std::min(kVectors, kPanelVectors);
  static_assert(kVectors % kPanel == 0);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const std::int64_t panel_floats = layer.in_channels * kPanel * lanes;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 24
  for (int v = 0; v < kVectors; ++v) {
    const Vector bias = hn::Load(kFloats, layer.pw_bias.get() + first + v * lanes);
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) sum[r][v] = bias;
  }
  const float* panel = layer.pw_weight.get() + first * layer.in_channels;
  for (std::int64_t c = 0; c < layer.in_channels; ++c, panel += kPanel * lanes) {
    // The shorter side waits in registers, the longer one streams through them.
    const auto weight = [&](int v) HWY_ATTR {
      return hn::Load(kFloats, panel + (v / kPanel) * panel_floats + (v % kPanel) * lanes);
    };
    const auto sample = [&](int r) HWY_ATTR { return hn::Set(kFloats, a[r * layer.in_stride + c]); };
    if constexpr (kVectors <= kRows) {
      Vector w[kVectors];
      for (int v = 0; v < kVectors; ++v) w[v] = weight(v);
#pragma GCC unroll 24
      for (int r = 0; r < kRows; ++r) {
        const Vector x = sample(r);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, w[v], sum[r][v]);
      }
    } else {
      Vector x[kRows];
      for (int r = 0; r < kRows; ++r) x[r] = sample(r);
#pragma GCC unroll 24
      for (int v = 0; v < kVectors; ++v) {
        const Vector w = weight(v);
        for (int r = 0; r < kRows; ++r) sum[r][v] = hn::MulAdd(x[r], w, sum[r][v]);
      }
    }
  }
  if (residual != nullptr) {
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 24
      for (int v = 0; v < kVectors; ++v) {
        const float* x = residual + r * layer.in_stride + first + v * lanes;
        sum[r][v] = hn::Add(sum[r][v], hn::LoadU(kFloats, x));
      }
    }
  }
#pragma GCC unroll 24
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 24
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], kFloats, y + r * layer.out_stride + first + v * lanes);
  }
}

void mix(const PackedLayer& layer, const float* a, const float* residual, std::int64_t frames, float* y) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const std::int64_t columns = mix_columns(layer.out_channels);
  std::int64_t first = 0;
  // Few frames take several panels at once, so that there are sums enough to keep the core busy.
  constexpr int kFewRows = kBusySums / kPanelVectors - 1;
  if (frames <= kFewRows) {
    with_count<kFewRows>(frames, [&]<int kRows>() HWY_ATTR {
      constexpr int kVectors = kBusySums / kRows / kPanelVectors * kPanelVectors;
      for (; first + kVectors * lanes <= columns; first += kVectors * lanes) {
        mix_tile<kRows, kVectors>(layer, first, a, residual, y);
      }
    });
  }
  // A panel stays in the first-level cache while all frames pass it.
  for (; first < columns; first += panel_width(columns, first)) {
    with_count<kPanelVectors>(panel_width(columns, first) / lanes, [&]<int kVectors>() HWY_ATTR {
      in_passes<kMixSums / kVectors>(frames, [&]<int kRows>(std::int64_t t) HWY_ATTR {
        mix_tile<kRows, kVectors>(layer, first, a + t * layer.in_stride,
                                  residual == nullptr ? nullptr : residual + t * layer.in_stride,
                                  y + t * layer.out_stride);
      });
    });
  }
}

// Softmax over the first `channels` of a row. Lanes are summed apart and then together: an order that depends on
// nothing but the channel count.
void softmax_row(float* row, std::int64_t channels) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const Vector lowest = hn::Set(kFloats, -std::numeric_limits<float>::infinity());
  const auto real = [&](std::int64_t c) HWY_ATTR {
    return hn::FirstN(kFloats, static_cast<std::size_t>(std::min(lanes, channels - c)));
  };
  Vector largest = lowest;
  Vector not_a_number = hn::Zero(kFloats);  // becomes NaN if any sample is
  for (std::int64_t c = 0; c < channels; c += lanes) {
    const Vector x = hn::IfThenElse(real(c), hn::LoadU(kFloats, row + c), lowest);
    largest = hn::Max(largest, x);
    not_a_number = hn::Add(not_a_number, hn::IfThenElseZero(hn::IsNaN(x), x));
  }
  largest = hn::MaxOfLanes(kFloats, largest);
  not_a_number = hn::Add(not_a_number, hn::Sub(largest, largest));  // an Inf makes the frame NaN, as inf/inf would
  Vector sum = hn::SumOfLanes(kFloats, not_a_number);
  Vector partial = hn::Zero(kFloats);
  for (std::int64_t c = 0; c < channels; c += lanes) {
    const Vector e = hn::IfThenElseZero(real(c), decay(hn::Sub(largest, hn::LoadU(kFloats, row + c))));
    hn::BlendedStore(e, real(c), kFloats, row + c);
    partial = hn::Add(partial, e);
  }
  sum = hn::Add(sum, hn::SumOfLanes(kFloats, partial));
  for (std::int64_t c = 0; c < channels; c += lanes) {
    hn::BlendedStore(hn::Div(hn::LoadU(kFloats, row + c), sum), real(c), kFloats, row + c);
  }
}

void pointwise(const PackedLayer& layer, const float* a, const float* residual, std::int64_t frames, float* y) {
  mix(layer, a, residual, frames, y);
  if (layer.type != LayerType::kPointwise || layer.activation == Activation::kIdentity) return;
  if (layer.activation == Activation::kSoftmax) {
    for (std::int64_t t = 0; t < frames; ++t) softmax_row(y + t * layer.out_stride, layer.out_channels);
  } else {
    activate_rows(layer.activation, frames * layer.out_stride, y);
  }
}

// to[j * to_stride + i] = from[i * from_stride + j] for 4 rows i and 4 columns j.
HWY_INLINE void transpose_four(const float* from, std::int64_t from_stride, float* to, std::int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR  // which has no vector of four
  for (std::int64_t i = 0; i < 4; ++i) {
    for (std::int64_t j = 0; j < 4; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
#else
  constexpr hn::FixedTag<float, 4> kFour;
  const auto a = hn::LoadU(kFour, from);
  const auto b = hn::LoadU(kFour, from + from_stride);
  const auto c = hn::LoadU(kFour, from + 2 * from_stride);
  const auto d = hn::LoadU(kFour, from + 3 * from_stride);
  const auto ab_low = hn::InterleaveLower(kFour, a, b);
  const auto cd_low = hn::InterleaveLower(kFour, c, d);
  const auto ab_high = hn::InterleaveUpper(kFour, a, b);
  const auto cd_high = hn::InterleaveUpper(kFour, c, d);
  hn::StoreU(hn::ConcatLowerLower(kFour, cd_low, ab_low), kFour, to);
  hn::StoreU(hn::ConcatUpperUpper(kFour, cd_low, ab_low), kFour, to + to_stride);
  hn::StoreU(hn::ConcatLowerLower(kFour, cd_high, ab_high), kFour, to + 2 * to_stride);
  hn::StoreU(hn::ConcatUpperUpper(kFour, cd_high, ab_high), kFour, to + 3 * to_stride);
#endif
}

// Calls block(c, t) for blocks of 4 channels by 4 frames and single(c, t) for what they leave, 8 channels at a time
// from first to last frame. Planar channels often lie a power of two apart and share a set of the cache: with more of
// them at a time than a set has ways, every line would be lost before its next frame is wanted.
template <typename Block, typename Single>
HWY_INLINE void in_blocks(std::int64_t channels, std::int64_t frames, const Block& block, const Single& single) {
  constexpr std::int64_t kChannels = 8;
  std::int64_t c = 0;
  for (; c + kChannels <= channels; c += kChannels) {
    std::int64_t t = 0;
    for (; t + 4 <= frames; t += 4) {
      block(c, t);
      block(c + 4, t);
    }
    for (; t < frames; ++t) {
      for (std::int64_t k = 0; k < kChannels; ++k) single(c + k, t);
    }
  }
  for (std::int64_t t = 0; t < frames; ++t) {
    for (std::int64_t k = c; k < channels; ++k) single(k, t);
  }
}

void read_planar(const float* x, std::int64_t channel_stride, std::int64_t channels, std::int64_t frames, float* rows,
                 std::int64_t stride) {
  in_blocks(
      channels, frames,
      [&](std::int64_t c, std::int64_t t)
          HWY_ATTR { transpose_four(x + c * channel_stride + t, channel_stride, rows + t * stride + c, stride); },
      [&](std::int64_t c, std::int64_t t) HWY_ATTR { rows[t * stride + c] = x[c * channel_stride + t]; });
}

void write_planar(const float* rows, std::int64_t stride, std::int64_t channels, std::int64_t frames, float* y,
                  std::int64_t channel_stride) {
  in_blocks(
      channels, frames,
      [&](std::int64_t c, std::int64_t t)
          HWY_ATTR { transpose_four(rows + t * stride + c, stride, y + c * channel_stride + t, channel_stride); },
      [&](std::int64_t c, std::int64_t t) HWY_ATTR { y[c * channel_stride + t] = rows[t * stride + c]; });
}

const LayerKernels* make_kernels() {
  static const LayerKernels kKernels{hwy::TargetName(HWY_TARGET),
                                     &pointwise_size,
                                     &pack_pointwise,
                                     &depthwise,
                                     &pointwise,
                                     &read_planar,
                                     &write_planar};
  return &kKernels;
}

}  // namespace halotap::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace halotap::kernels::cpu {

HWY_EXPORT(make_kernels);

namespace {

// Letter case aside.
bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

}  // namespace

const LayerKernels& layer_kernels() {
  // HALOTAP_ISA as it was last time: asking what the processor has takes tens of microseconds. Relaxed: nothing is
  // handed over with it, and a caller who reads an old one asks once more.
  static std::atomic<std::size_t> heeded{std::hash<std::string>{}("")};
  const char* value = std::getenv("HALOTAP_ISA");
  const std::string wanted = value == nullptr ? "" : value;
  const std::size_t hash = std::hash<std::string>{}(wanted);
  if (hash != heeded.load(std::memory_order_relaxed)) {
    std::string levels;
    std::int64_t chosen = wanted.empty() ? hwy::SupportedTargets() : 0;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      levels += (levels.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
      if (same_word(wanted, hwy::TargetName(target))) chosen = target;
    }
    if (chosen == 0) {
      throw std::invalid_argument("HALOTAP_ISA: expected one of " + levels + ", got '" + wanted + "'");
    }
    hwy::GetChosenTarget().Update(chosen);
    heeded.store(hash, std::memory_order_relaxed);
  }
  return *HWY_DYNAMIC_DISPATCH(make_kernels)();
}

}  // namespace halotap::kernels::cpu
#endif
