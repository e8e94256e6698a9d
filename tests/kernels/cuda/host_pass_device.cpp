#include "cuda/host_pass_device.hpp"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <new>
#include <numbers>
#include <utility>

#if defined(__has_feature)
#if __has_feature(realtime_sanitizer)
#define HALOTAP_REALTIME_SANITIZER
#include <sanitizer/rtsan_interface.h>
#endif
#endif

namespace halotap::kernels::cuda {
namespace {

constexpr std::align_val_t kPage{4096};
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> poisoned(std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count), kPoison); }

double activate(Activation activation, double z) {
  switch (activation) {
    case Activation::kRelu:
      return z < 0 ? 0 : z;
    case Activation::kLeakyRelu:
      return z < 0 ? 0.01 * z : z;
    case Activation::kSilu:
      return z / (1 + std::exp(-z));
    case Activation::kGelu:
      return 0.5 * z * (1 + std::erf(z / std::numbers::sqrt2));
    case Activation::kTanh:
      return std::tanh(z);
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-z));
    case Activation::kIdentity:
    case Activation::kSoftmax:  // over channels, afterwards
      break;
  }
  return z;
}

}  // namespace

HostPassDevice::HostPassDevice(std::shared_ptr<const Stack> stack, const PassShape& shape)
    : stack_(std::move(stack)),
      shape_(shape),
      input_(poisoned(shape.max_items * shape.layers.front().channels * shape.in_stride)),
      frames_to_hold_(poisoned(shape.max_items * shape.layers.front().channels)),
      output_(poisoned(shape.max_items * shape.layers.back().channels * shape.out_stride)),
      state_(poisoned(shape.max_slots * shape.state_floats)) {
  for (const Layer& layer : stack_->layers()) {
    depthwise_.push_back(layer.spec.type == LayerType::kTemporalConv ? fold_batch_norm(layer.spec, layer.weights)
                                                                     : FoldedDepthwise{});
  }
}

float* HostPassDevice::input(std::int64_t item) noexcept {
  return input_.data() + item * shape_.layers.front().channels * shape_.in_stride;
}

float* HostPassDevice::frame_to_hold(std::int64_t item) noexcept {
  return frames_to_hold_.data() + item * shape_.layers.front().channels;
}

float* HostPassDevice::output(std::int64_t item) noexcept {
  return output_.data() + item * shape_.layers.back().channels * shape_.out_stride;
}

float* HostPassDevice::allocate_samples(std::int64_t count) {
  const auto samples = static_cast<std::size_t>(count);
  samples_.emplace_back(static_cast<float*>(::operator new(samples * sizeof(float), kPage)));
  std::fill_n(samples_.back().get(), samples, 0.0F);
  return samples_.back().get();
}

void HostPassDevice::FreePages::operator()(float* memory) const noexcept { ::operator delete(memory, kPage); }

bool HostPassDevice::run(std::span<const PassEntry> entries) noexcept {
#ifdef HALOTAP_REALTIME_SANITIZER
  // What follows stands for the card's work, of which nothing is the host's.
  const __rtsan::ScopedDisabler disabler;
#endif
  if (passes_left_ == 0) return false;
  if (passes_left_ > 0) --passes_left_;
  // A card has a mode of its own.
  const int callers_rounding = std::fegetround();
  std::fesetround(FE_TONEAREST);
  items_of_passes_.push_back(std::ssize(entries));
  windows_ = poisoned(shape_.max_items * shape_.window_floats);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const PassEntry& entry = entries[i];
    const auto item = static_cast<std::int64_t>(i);
    staged_inputs_ += entry.input == input(item);
    staged_outputs_ += entry.output == output(item);
    if (entry.start_hold) start_hold(item);
    begin(entry, item);
    for (std::size_t l = 0; l < stack_->layers().size(); ++l) {
      run_layer(l, item, entry.frames, real_frames(entry, shape_.layers[l + 1].lag_frames));
    }
    end(entry, item);
  }
  std::fill(input_.begin(), input_.end(), kPoison);
  std::fill(frames_to_hold_.begin(), frames_to_hold_.end(), kPoison);
  std::fesetround(callers_rounding);
  return true;
}

float* HostPassDevice::first_new_frame(std::size_t layer, std::int64_t item, std::int64_t channel) {
  const PassLayer& pass = shape_.layers[layer];
  return windows_.data() + item * shape_.window_floats + pass.window_offset + channel * pass.window_stride +
         pass.lead_frames;
}

float* HostPassDevice::state(std::size_t layer, std::int64_t slot, std::int64_t channel) {
  const PassLayer& pass = shape_.layers[layer];
  return state_.data() + slot * shape_.state_floats + pass.state_offset + channel * pass.halo_frames;
}

void HostPassDevice::run_layer(std::size_t layer, std::int64_t item, std::int64_t frames, RealFrames real) {
  const auto& [spec, weights] = stack_->layers()[layer];
  const bool pointwise = spec.type == LayerType::kPointwise;
  const FoldedDepthwise& depthwise = depthwise_[layer];
  std::vector<double> a(static_cast<std::size_t>(spec.in_channels));
  std::vector<double> y(static_cast<std::size_t>(spec.out_channels));
  for (std::int64_t t = 0; t < frames; ++t) {
    const bool counts = t >= real.begin && t < real.end;
    for (std::int64_t c = 0; counts && c < spec.in_channels; ++c) {
      const float* x = first_new_frame(layer, item, c) - spec.right_frames() + t;
      double& z = a[static_cast<std::size_t>(c)];
      z = pointwise ? x[0] : depthwise.bias[static_cast<std::size_t>(c)];
      for (std::int64_t k = 0; !pointwise && k < spec.kernel_size; ++k) {
        z += depthwise.weight[static_cast<std::size_t>(c * spec.kernel_size + k)] *
             double{x[k * spec.dilation - spec.left_frames()]};
      }
      if (!pointwise) z = activate(spec.activation, z);
    }
    for (std::int64_t o = 0; o < spec.out_channels; ++o) {
      double& sum = y[static_cast<std::size_t>(o)];
      sum = 0;
      if (!counts) continue;
      if (!weights.pw_bias.empty()) sum = weights.pw_bias[static_cast<std::size_t>(o)];
      for (std::int64_t c = 0; c < spec.in_channels; ++c) {
        sum += weights.pw_weight[static_cast<std::size_t>(o * spec.in_channels + c)] * a[static_cast<std::size_t>(c)];
      }
      if (pointwise) sum = activate(spec.activation, sum);
      if (spec.residual) sum += double{first_new_frame(layer, item, o)[t - spec.right_frames()]};
    }
    if (counts && spec.activation == Activation::kSoftmax) {
      const double largest = *std::max_element(y.begin(), y.end());
      double total = 0;
      for (double& value : y) total += value = std::exp(value - largest);
      for (double& value : y) value /= total;
    }
    for (std::int64_t o = 0; o < spec.out_channels; ++o) {
      first_new_frame(layer + 1, item, o)[t] = static_cast<float>(y[static_cast<std::size_t>(o)]);
    }
  }
}

void HostPassDevice::start_hold(std::int64_t item) {
  for (std::size_t l = 0; l + 1 < shape_.layers.size(); ++l) {
    const PassLayer& layer = shape_.layers[l];
    for (std::int64_t c = 0; c < layer.channels; ++c) {
      float* first = first_new_frame(l, item, c);
      if (l == 0) *first = frame_to_hold(item)[c];
      std::fill(first - layer.halo_frames, first, *first);
    }
    run_layer(l, item, 1, {0, 1});
  }
}

void HostPassDevice::begin(const PassEntry& entry, std::int64_t item) {
  for (std::size_t l = 0; l + 1 < shape_.layers.size(); ++l) {
    const PassLayer& layer = shape_.layers[l];
    for (std::int64_t c = 0; c < layer.channels; ++c) {
      float* first = first_new_frame(l, item, c);
      for (std::int64_t t = 0; !entry.start_hold && t < layer.halo_frames; ++t) {
        first[t - layer.halo_frames] = entry.fresh ? 0 : state(l, entry.slot, c)[t];
      }
      for (std::int64_t t = 0; l == 0 && t < entry.frames; ++t) {
        first[t] = t < real_frames(entry, 0).end ? entry.input[c * entry.in_stride + t] : 0;
      }
    }
  }
}

void HostPassDevice::end(const PassEntry& entry, std::int64_t item) {
  for (std::size_t l = 0; l < shape_.layers.size(); ++l) {
    const PassLayer& layer = shape_.layers[l];
    for (std::int64_t c = 0; c < layer.channels; ++c) {
      const float* first = first_new_frame(l, item, c);
      const float* newest = first + entry.frames;
      if (l + 1 < shape_.layers.size()) {
        std::copy(newest - layer.halo_frames, newest, state(l, entry.slot, c));
      } else {
        std::copy(first, newest, entry.output + c * entry.out_stride);
      }
    }
  }
}

}  // namespace halotap::kernels::cuda
