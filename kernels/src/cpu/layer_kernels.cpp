#include "cpu/layer_kernels.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdlib>
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

// Weights of the pointwise mix are packed in panels of this many vectors of output channels.
constexpr std::int64_t kPanelVectors = 2;
// Frames and taps that one pass of the depthwise sum holds in registers, and the frames of one pass of the mix. 32
// vector registers: 12 sums, 4 weights; 12 x 2 sums, 2 weights. 16: 8 sums, 4 weights; 6 x 2 sums, 2 weights.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_ARCH_ARM_A64
constexpr int kDepthwiseRows = 12;
constexpr int kMixRows = 12;
#else
constexpr int kDepthwiseRows = 8;
constexpr int kMixRows = 6;
#endif
constexpr int kDepthwiseTaps = 4;

// exp(x) for x in [-87, 87]; a smaller x counts as -87, a larger one as 87, and a NaN gives an unspecified number.
//     x = n ln 2 + r, n whole, |r| <= ln 2 / 2;   exp(x) = 2^n (1 + r + r^2 P(r))
// n is rounded by adding 1.5 * 2^23, which leaves it in the low bits of the sum, ready to be added to an exponent. ln 2
// is taken in two parts, the first of few enough bits that n times it is exact (Cody and Waite). P is our own minimax
// fit, by reweighted least squares against 30-digit arithmetic, of relative error 3.1e-9.
HWY_INLINE Vector exp_bounded(Vector x) {
  constexpr float kFit[] = {0.49999994f, 0.166665196f, 0.0416683927f, 0.00836878084f, 0.00138144661f};
  const hn::RebindToSigned<Floats> integers;
  const Vector whole = hn::Set(kFloats, 12582912.0f);
  x = hn::Max(hn::Min(x, hn::Set(kFloats, 87.0f)), hn::Set(kFloats, -87.0f));
  const Vector shifted = hn::MulAdd(x, hn::Set(kFloats, 1.44269504f), whole);
  const Vector n = hn::Sub(shifted, whole);
  Vector r = hn::NegMulAdd(n, hn::Set(kFloats, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(kFloats, -2.12194440e-4f), r);
  Vector fit = hn::Set(kFloats, kFit[4]);
  for (int i = 3; i >= 0; --i) fit = hn::MulAdd(fit, r, hn::Set(kFloats, kFit[i]));
  const Vector mantissa = hn::Add(hn::Set(kFloats, 1.0f), hn::MulAdd(fit, hn::Mul(r, r), r));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(integers, shifted));
  return hn::BitCast(kFloats, hn::Add(hn::BitCast(integers, mantissa), exponent));
}

// 1/(1 + exp(-z)), and 0 for z < -87, where that is below 1.7e-38: a number left there would meet a z of 1e38 in silu.
// Unspecified for a NaN.
HWY_INLINE Vector logistic(Vector z) {
  const Vector one = hn::Set(kFloats, 1.0f);
  const Vector s = hn::Div(one, hn::Add(one, exp_bounded(hn::Neg(z))));
  return hn::IfThenElseZero(hn::Ge(z, hn::Set(kFloats, -87.0f)), s);
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

struct Silu {
  HWY_INLINE Vector operator()(Vector z) const { return hn::Mul(z, logistic(z)); }  // a NaN stays: NaN * 0
};

struct Sigmoid {
  HWY_INLINE Vector operator()(Vector z) const { return keep_nan(z, logistic(z)); }
};

struct Tanh {
  HWY_INLINE Vector operator()(Vector z) const {
    const Vector most = hn::Set(kFloats, 10.0f);  // 1 - tanh(10) < 2^-28
    return keep_nan(z, hn::Tanh(kFloats, hn::Max(hn::Min(z, most), hn::Neg(most))));
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
    const Vector gauss = hn::Mul(exp_bounded(hn::Neg(hn::Mul(half, square))), hn::NegMulAdd(half, rest, one));
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

// Adds kTaps taps to the sums of kRows frames that lie a dilation apart. Frame j's tap q and frame j+1's tap q-1 meet
// the same input row, so each row is loaded once for all. Every sum takes its taps in ascending order.
template <int kRows, int kTaps>
HWY_INLINE void add_taps(const float* x, std::int64_t step, const float* weight, std::int64_t stride,
                         Vector (&z)[kRows]) {
  Vector w[kTaps];
  for (int q = 0; q < kTaps; ++q) w[q] = hn::Load(kFloats, weight + q * stride);
  for (int i = 0; i < kRows + kTaps - 1; ++i) {
    const Vector row = hn::Load(kFloats, x + i * step);
    for (int q = 0; q < kTaps; ++q) {
      const int j = i - q;
      if (j >= 0 && j < kRows) z[j] = hn::MulAdd(w[q], row, z[j]);
    }
  }
}

// kRows frames, a dilation apart, of one vector of channels.
template <int kRows, typename Activate>
HWY_INLINE void depthwise_rows(const PackedLayer& layer, const float* window, std::int64_t c, float* a,
                               const Activate& activate) {
  const std::int64_t stride = layer.in_stride;
  const std::int64_t step = layer.dilation * stride;
  const Vector bias = hn::Load(kFloats, layer.dw_bias.get() + c);
  Vector z[kRows];
  for (int j = 0; j < kRows; ++j) z[j] = bias;
  const float* x = window + c;
  const float* weight = layer.dw_weight.get() + c;
  std::int64_t k = 0;
  for (; k + kDepthwiseTaps <= layer.kernel_size; k += kDepthwiseTaps) {
    add_taps<kRows, kDepthwiseTaps>(x + k * step, step, weight + k * stride, stride, z);
  }
  for (; k < layer.kernel_size; ++k) add_taps<kRows, 1>(x + k * step, step, weight + k * stride, stride, z);
  for (int j = 0; j < kRows; ++j) hn::Store(activate(z[j]), kFloats, a + j * step + c);
}

// Frames [t, frames) that lie a dilation apart from t on.
template <typename Activate>
HWY_INLINE void depthwise_phase(const PackedLayer& layer, const float* window, std::int64_t t, std::int64_t frames,
                                std::int64_t c, float* a, const Activate& activate) {
  const std::int64_t stride = layer.in_stride;
  const std::int64_t dilation = layer.dilation;
  constexpr int kHalf = kDepthwiseRows / 2;
  for (; t + (kDepthwiseRows - 1) * dilation < frames; t += kDepthwiseRows * dilation) {
    depthwise_rows<kDepthwiseRows>(layer, window + t * stride, c, a + t * stride, activate);
  }
  for (; t + (kHalf - 1) * dilation < frames; t += kHalf * dilation) {
    depthwise_rows<kHalf>(layer, window + t * stride, c, a + t * stride, activate);
  }
  for (; t < frames; t += dilation) depthwise_rows<1>(layer, window + t * stride, c, a + t * stride, activate);
}

void depthwise(const PackedLayer& layer, const float* window, std::int64_t frames, float* a) {
  with_activation(layer.activation, [&](auto activate) HWY_ATTR {
    const std::int64_t phases = std::min(layer.dilation, frames);
    for (std::int64_t c = 0; c < layer.in_stride; c += static_cast<std::int64_t>(hn::Lanes(kFloats))) {
      for (std::int64_t phase = 0; phase < phases; ++phase) {
        depthwise_phase(layer, window, phase, frames, c, a, activate);
      }
    }
  });
}

// Panels cover out_stride; the last one is a single vector when that many are left.
HWY_INLINE std::int64_t panel_width(std::int64_t columns_left) {
  return std::min(columns_left, kPanelVectors * static_cast<std::int64_t>(hn::Lanes(kFloats)));
}

std::int64_t pointwise_size(std::int64_t in_channels, std::int64_t out_channels) {
  return in_channels * row_stride(out_channels);
}

void pack_pointwise(const double* weight, std::int64_t in_channels, std::int64_t out_channels, float* packed) {
  const std::int64_t stride = row_stride(out_channels);
  for (std::int64_t first = 0; first < stride; first += panel_width(stride - first)) {
    const std::int64_t width = panel_width(stride - first);
    for (std::int64_t c = 0; c < in_channels; ++c) {
      for (std::int64_t o = first; o < first + width; ++o) {
        *packed++ = o < out_channels ? static_cast<float>(weight[o * in_channels + c]) : 0.0f;
      }
    }
  }
}

// kRows frames by kVectors vectors of output channels, taken from kVectors / kPanel neighbouring panels of kPanel
// vectors each.
template <int kRows, int kVectors, int kPanel>
HWY_INLINE void mix_tile(const PackedLayer& layer, const float* panel, std::int64_t first, const float* a,
                         const float* residual, float* y) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const std::int64_t panel_floats = layer.in_channels * kPanel * lanes;
  Vector sum[kRows][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const Vector bias = hn::Load(kFloats, layer.pw_bias.get() + first + v * lanes);
    for (int r = 0; r < kRows; ++r) sum[r][v] = bias;
  }
  for (std::int64_t c = 0; c < layer.in_channels; ++c, panel += kPanel * lanes) {
    // The shorter side waits in registers, the longer one streams through them.
    const auto weight = [&](int v) HWY_ATTR {
      return hn::Load(kFloats, panel + (v / kPanel) * panel_floats + (v % kPanel) * lanes);
    };
    const auto sample = [&](int r) HWY_ATTR { return hn::Set(kFloats, a[r * layer.in_stride + c]); };
    if constexpr (kVectors <= kRows) {
      Vector w[kVectors];
      for (int v = 0; v < kVectors; ++v) w[v] = weight(v);
      for (int r = 0; r < kRows; ++r) {
        const Vector x = sample(r);
        for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(x, w[v], sum[r][v]);
      }
    } else {
      Vector x[kRows];
      for (int r = 0; r < kRows; ++r) x[r] = sample(r);
      for (int v = 0; v < kVectors; ++v) {
        const Vector w = weight(v);
        for (int r = 0; r < kRows; ++r) sum[r][v] = hn::MulAdd(x[r], w, sum[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t o = first + v * lanes;
      if (residual != nullptr) sum[r][v] = hn::Add(sum[r][v], hn::Load(kFloats, residual + r * layer.in_stride + o));
      hn::Store(sum[r][v], kFloats, y + r * layer.out_stride + o);
    }
  }
}

// The mix of kRows frames and kWide panels at a time, of all output channels from panel 0 on. Few frames take several
// panels at once, so that there are enough independent sums to hide the latency of the multiply-adds.
template <int kRows>
void mix_rows(const PackedLayer& layer, const float* a, const float* residual, float* y) {
  constexpr int kWide = std::clamp(kMixRows / kRows, 1, 4) * kPanelVectors;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const float* panel = layer.pw_weight.get();
  std::int64_t first = 0;
  for (; first + kWide * lanes <= layer.out_stride; first += kWide * lanes) {
    mix_tile<kRows, kWide, kPanelVectors>(layer, panel + first * layer.in_channels, first, a, residual, y);
  }
  for (; first + kPanelVectors * lanes <= layer.out_stride; first += kPanelVectors * lanes) {
    mix_tile<kRows, kPanelVectors, kPanelVectors>(layer, panel + first * layer.in_channels, first, a, residual, y);
  }
  if (first < layer.out_stride) {
    mix_tile<kRows, 1, 1>(layer, panel + first * layer.in_channels, first, a, residual, y);
  }
}

// One panel of kRows frames.
template <int kRows>
void mix_panel(const PackedLayer& layer, std::int64_t first, const float* a, const float* residual, float* y) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const float* panel = layer.pw_weight.get() + first * layer.in_channels;
  if (first + kPanelVectors * lanes <= layer.out_stride) {
    mix_tile<kRows, kPanelVectors, kPanelVectors>(layer, panel, first, a, residual, y);
  } else {
    mix_tile<kRows, 1, 1>(layer, panel, first, a, residual, y);
  }
}

// Calls body.operator()<rows>() for a number of rows known only now, 1 to kRows.
template <int kRows, typename Body>
HWY_INLINE void with_rows(std::int64_t rows, const Body& body) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return with_rows<kRows - 1>(rows, body);
  }
  body.template operator()<kRows>();
}

// Softmax over the first `channels` of a row. Lanes are summed apart and then together: an order that depends on
// nothing but the channel count.
void softmax_row(float* row, std::int64_t channels) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  const Vector lowest = hn::Set(kFloats, std::numeric_limits<float>::lowest());
  const auto real = [&](std::int64_t c) HWY_ATTR {
    return hn::FirstN(kFloats, static_cast<std::size_t>(std::min(lanes, channels - c)));
  };
  Vector largest = lowest;
  Vector not_a_number = hn::Zero(kFloats);  // becomes NaN if any sample is
  for (std::int64_t c = 0; c < channels; c += lanes) {
    const Vector x = hn::IfThenElse(real(c), hn::Load(kFloats, row + c), lowest);
    largest = hn::Max(largest, x);
    not_a_number = hn::Add(not_a_number, hn::IfThenElseZero(hn::IsNaN(x), x));
  }
  largest = hn::MaxOfLanes(kFloats, largest);
  not_a_number = hn::Add(not_a_number, hn::Sub(largest, largest));  // an Inf makes the frame NaN, as inf/inf would
  Vector sum = hn::SumOfLanes(kFloats, not_a_number);
  Vector partial = hn::Zero(kFloats);
  for (std::int64_t c = 0; c < channels; c += lanes) {
    const Vector e = hn::IfThenElseZero(real(c), exp_bounded(hn::Sub(hn::Load(kFloats, row + c), largest)));
    hn::Store(e, kFloats, row + c);
    partial = hn::Add(partial, e);
  }
  sum = hn::Add(sum, hn::SumOfLanes(kFloats, partial));
  for (std::int64_t c = 0; c < channels; c += lanes) {
    hn::Store(hn::Div(hn::Load(kFloats, row + c), sum), kFloats, row + c);
  }
}

void activate_rows(Activation activation, std::int64_t floats, float* y) {
  with_activation(activation, [&](auto activate) HWY_ATTR {
    for (std::int64_t i = 0; i < floats; i += static_cast<std::int64_t>(hn::Lanes(kFloats))) {
      hn::Store(activate(hn::Load(kFloats, y + i)), kFloats, y + i);
    }
  });
}

void mix(const PackedLayer& layer, const float* a, const float* residual, std::int64_t frames, float* y) {
  if (frames <= kMixRows) {
    with_rows<kMixRows>(frames, [&]<int kRows>() HWY_ATTR { mix_rows<kRows>(layer, a, residual, y); });
    return;
  }
  // A panel stays in the first-level cache while all frames pass it, in as few and even passes as the registers allow.
  const std::int64_t panel_floats = kPanelVectors * static_cast<std::int64_t>(hn::Lanes(kFloats));
  for (std::int64_t first = 0; first < layer.out_stride; first += panel_floats) {
    std::int64_t t = 0;
    for (std::int64_t passes = (frames + kMixRows - 1) / kMixRows; passes > 0; --passes) {
      const std::int64_t rows = (frames - t + passes - 1) / passes;
      const float* a_rows = a + t * layer.in_stride;
      const float* residual_rows = residual == nullptr ? nullptr : residual + t * layer.in_stride;
      float* y_rows = y + t * layer.out_stride;
      with_rows<kMixRows>(rows,
                          [&]<int kRows>() HWY_ATTR { mix_panel<kRows>(layer, first, a_rows, residual_rows, y_rows); });
      t += rows;
    }
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

const LayerKernels* make_kernels() {
  static const LayerKernels kKernels{hwy::TargetName(HWY_TARGET), &pointwise_size, &pack_pointwise, &depthwise,
                                     &pointwise};
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
  const char* wanted = std::getenv("HALOTAP_ISA");
  if (wanted != nullptr && *wanted != '\0') {
    std::string levels;
    bool found = false;
    for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
      levels += (levels.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
      if (!same_word(wanted, hwy::TargetName(target))) continue;
      hwy::GetChosenTarget().Update(target);
      found = true;
    }
    if (!found) {
      throw std::invalid_argument("HALOTAP_ISA: expected one of " + levels + ", got '" + wanted + "'");
    }
  }
  return *HWY_DYNAMIC_DISPATCH(make_kernels)();
}

}  // namespace halotap::kernels::cpu
#endif
