#include "cpu/layer_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

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

// The pointwise tile held in registers: kTileRows frames x kPanelVectors vectors of output channels.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr std::int64_t kPanelVectors = 2;  // 2 x 12 of 32 registers, and 2 for weights
constexpr std::int64_t kTileRows = 12;
#else
constexpr std::int64_t kPanelVectors = 2;  // 2 x 6 of 16 registers, and 2 for weights
constexpr std::int64_t kTileRows = 6;
#endif
constexpr std::int64_t kHalfTileRows = kTileRows / 2;  // for the frames that do not fill a tile
// Depthwise frames that share one load of the weights.
constexpr std::int64_t kDepthwiseRows = 8;

// exp with every argument allowed: +inf above the float32 range, 0 below it. NaN gives an unspecified number; callers
// that can meet one restore it.
HWY_INLINE Vector exp_any(Vector x) {
  const Vector most = hn::Set(kFloats, 104.0f);
  return hn::Exp(kFloats, hn::Max(hn::Min(x, most), hn::Neg(most)));
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
  HWY_INLINE Vector operator()(Vector z) const {
    return hn::Div(z, hn::Add(hn::Set(kFloats, 1.0f), exp_any(hn::Neg(z))));
  }
};

struct Sigmoid {
  HWY_INLINE Vector operator()(Vector z) const {
    const Vector one = hn::Set(kFloats, 1.0f);
    return keep_nan(z, hn::Div(one, hn::Add(one, exp_any(hn::Neg(z)))));
  }
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
// [0, 14.5]; beyond, Q < 1e-47. Working from Q keeps the small values at negative z exact to a few ulp, which
// 1 + erf(z) would cancel away.
struct Gelu {
  HWY_INLINE Vector operator()(Vector z) const {
    constexpr float kFit[] = {0.139621302f, 0.139863536f,  0.119821183f, 0.105552927f,  -0.023213394f,
                              0.159321249f, -0.255840391f, 0.144031614f, -0.0291580297f};
    const Vector one = hn::Set(kFloats, 1.0f);
    const Vector half = hn::Set(kFloats, 0.5f);
    const Vector u = hn::Min(hn::Abs(z), hn::Set(kFloats, 14.5f));
    const Vector t = hn::Div(one, hn::MulAdd(u, hn::Set(kFloats, 0.35f), one));
    Vector fit = hn::Set(kFloats, kFit[8]);
    for (int i = 7; i >= 0; --i) fit = hn::MulAdd(fit, t, hn::Set(kFloats, kFit[i]));

    // u^2 = square + rest exactly where the level has a fused multiply; exp(-rest/2) is 1 - rest/2 to float32.
    const Vector square = hn::Mul(u, u);
    const Vector rest = hn::MulSub(u, u, square);
    const Vector gauss = hn::Mul(exp_any(hn::Neg(hn::Mul(half, square))), hn::NegMulAdd(half, rest, one));
    const Vector q = hn::Mul(gauss, hn::Mul(t, fit));
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

template <int kRows, typename Activate>
HWY_INLINE void depthwise_rows(const PackedLayer& layer, const float* window, std::int64_t c, float* a,
                               const Activate& activate) {
  const std::int64_t stride = layer.in_stride;
  const std::int64_t step = layer.dilation * stride;
  const Vector bias = hn::Load(kFloats, layer.dw_bias.get() + c);
  Vector z[kRows];
  for (int r = 0; r < kRows; ++r) z[r] = bias;
  const float* x = window + c;
  const float* weight = layer.dw_weight.get() + c;
  for (std::int64_t k = 0; k < layer.kernel_size; ++k, x += step, weight += stride) {
    const Vector w = hn::Load(kFloats, weight);
    for (int r = 0; r < kRows; ++r) z[r] = hn::MulAdd(w, hn::Load(kFloats, x + r * stride), z[r]);
  }
  for (int r = 0; r < kRows; ++r) hn::Store(activate(z[r]), kFloats, a + r * stride + c);
}

void depthwise(const PackedLayer& layer, const float* window, std::int64_t frames, float* a) {
  with_activation(layer.activation, [&](auto activate) HWY_ATTR {
    const std::int64_t stride = layer.in_stride;
    for (std::int64_t c = 0; c < stride; c += static_cast<std::int64_t>(hn::Lanes(kFloats))) {
      std::int64_t t = 0;
      for (; t + kDepthwiseRows <= frames; t += kDepthwiseRows) {
        depthwise_rows<kDepthwiseRows>(layer, window + t * stride, c, a + t * stride, activate);
      }
      for (; t < frames; ++t) depthwise_rows<1>(layer, window + t * stride, c, a + t * stride, activate);
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

template <int kRows, int kVectors, typename Activate>
HWY_INLINE void pointwise_tile(const PackedLayer& layer, const float* panel, std::int64_t first, const float* a,
                               const float* residual, float* y, const Activate& activate) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(kFloats));
  Vector sum[kRows][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const Vector bias = hn::Load(kFloats, layer.pw_bias.get() + first + v * lanes);
    for (int r = 0; r < kRows; ++r) sum[r][v] = bias;
  }
  for (std::int64_t c = 0; c < layer.in_channels; ++c, panel += kVectors * lanes) {
    Vector w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = hn::Load(kFloats, panel + v * lanes);
    for (int r = 0; r < kRows; ++r) {
      const Vector sample = hn::Set(kFloats, a[r * layer.in_stride + c]);
      for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(sample, w[v], sum[r][v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t o = first + v * lanes;
      if (residual != nullptr) sum[r][v] = hn::Add(sum[r][v], hn::Load(kFloats, residual + r * layer.in_stride + o));
      hn::Store(activate(sum[r][v]), kFloats, y + r * layer.out_stride + o);
    }
  }
}

template <int kVectors, typename Activate>
void pointwise_panel(const PackedLayer& layer, const float* panel, std::int64_t first, const float* a,
                     const float* residual, std::int64_t frames, float* y, const Activate& activate) {
  for (std::int64_t t = 0; t < frames;) {
    const float* a_rows = a + t * layer.in_stride;
    const float* residual_rows = residual == nullptr ? nullptr : residual + t * layer.in_stride;
    float* y_rows = y + t * layer.out_stride;
    if (t + kTileRows <= frames) {
      pointwise_tile<kTileRows, kVectors>(layer, panel, first, a_rows, residual_rows, y_rows, activate);
      t += kTileRows;
    } else if (t + kHalfTileRows <= frames) {
      pointwise_tile<kHalfTileRows, kVectors>(layer, panel, first, a_rows, residual_rows, y_rows, activate);
      t += kHalfTileRows;
    } else {
      pointwise_tile<1, kVectors>(layer, panel, first, a_rows, residual_rows, y_rows, activate);
      t += 1;
    }
  }
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
    const Vector e = hn::IfThenElseZero(real(c), exp_any(hn::Sub(hn::Load(kFloats, row + c), largest)));
    hn::Store(e, kFloats, row + c);
    partial = hn::Add(partial, e);
  }
  sum = hn::Add(sum, hn::SumOfLanes(kFloats, partial));
  for (std::int64_t c = 0; c < channels; c += lanes) {
    hn::Store(hn::Div(hn::Load(kFloats, row + c), sum), kFloats, row + c);
  }
}

void pointwise(const PackedLayer& layer, const float* a, const float* residual, std::int64_t frames, float* y) {
  const Activation activation = layer.type == LayerType::kPointwise ? layer.activation : Activation::kIdentity;
  with_activation(activation, [&](auto activate) HWY_ATTR {
    const float* panel = layer.pw_weight.get();
    for (std::int64_t first = 0; first < layer.out_stride;) {
      const std::int64_t width = panel_width(layer.out_stride - first);
      if (width == kPanelVectors * static_cast<std::int64_t>(hn::Lanes(kFloats))) {
        pointwise_panel<kPanelVectors>(layer, panel, first, a, residual, frames, y, activate);
      } else {
        pointwise_panel<1>(layer, panel, first, a, residual, frames, y, activate);
      }
      panel += layer.in_channels * width;
      first += width;
    }
  });
  if (activation == Activation::kSoftmax) {
    for (std::int64_t t = 0; t < frames; ++t) softmax_row(y + t * layer.out_stride, layer.out_channels);
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

const LayerKernels& layer_kernels() { return *HWY_DYNAMIC_DISPATCH(make_kernels)(); }

}  // namespace halotap::kernels::cpu
#endif
