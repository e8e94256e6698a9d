#include "cuda/block.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "cuda/block_args.hpp"
#include "cuda/device.hpp"
#include "cuda/generic_block.hpp"
#include "cuda/pack.hpp"
#include "cuda/sm90_block.hpp"
#include "cuda/sm90_plan.hpp"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {

PackedBlock::PackedBlock(const Layer& layer, const BlockOptions& options) : spec_(layer.spec), options_(options) {
  if (spec_.activation == Activation::kSoftmax && options.y != Element::kFloat32) {
    throw std::invalid_argument("y of a layer with softmax: expected float32, got a 16-bit type");
  }
  if (compute_capability() == 90) {
    if (const auto plan = sm90_plan(spec_, options_)) {
      const cudaError_t prepared = prepare_sm90_block(*plan, options_);
      if (prepared == cudaErrorInvalidKernelImage) {
        cudaGetLastError();  // a build without that code runs the generic block
      } else {
        require(prepared, "cudaFuncSetAttribute");
        sm90_ = std::make_shared<const Sm90Plan>(*plan);
      }
    }
  }
  const std::vector<std::byte> image = pack_image(layer, terms_of(options));
  require(cudaMalloc(&d_image_, image.size()), "cudaMalloc");
  device_bytes_ = image.size();
  const cudaError_t copied = cudaMemcpy(d_image_, image.data(), image.size(), cudaMemcpyHostToDevice);
  if (copied != cudaSuccess) cudaFree(std::exchange(d_image_, nullptr));
  require(copied, "cudaMemcpy");
}

PackedBlock::~PackedBlock() { cudaFree(d_image_); }

PackedBlock::PackedBlock(PackedBlock&& other) noexcept
    : spec_(std::move(other.spec_)),
      options_(other.options_),
      device_bytes_(std::exchange(other.device_bytes_, 0)),
      d_image_(std::exchange(other.d_image_, nullptr)),
      sm90_(std::move(other.sm90_)) {}

std::string PackedBlock::kernel_name() const {
  if (sm90_ == nullptr) return "generic";
  const std::string name = sm90_->passes > 1 ? "sm90 wide" : "sm90";
  if (sm90_->pointwise) return name + " pointwise";
  const auto part = [](const char* letter, std::int32_t value) {
    return " " + std::string(letter) + (value == 0 ? "any" : std::to_string(value));
  };
  return name + part("k", sm90_->taps) + part("d", sm90_->dilation);
}

cudaError_t launch_block(const PackedBlock& block, const Items& items, cudaStream_t stream) noexcept {
  const LayerSpec& spec = block.spec_;
  const std::int64_t frames = items.table != nullptr ? items.max_frames : items.first.frames;
  if (items.count == 0 || frames == 0) return cudaSuccess;

  const ImageLayout layout = image_layout(spec, terms_of(block.options_));
  const auto* image = static_cast<const std::byte*>(block.d_image_);
  BlockArgs args;
  args.d_mix = image + layout.mix;
  args.d_taps = reinterpret_cast<const float*>(image + layout.taps);
  args.d_tap_bias = reinterpret_cast<const float*>(image + layout.tap_bias);
  args.d_row_scale = reinterpret_cast<const float*>(image + layout.row_scale);
  args.d_mix_bias = reinterpret_cast<const float*>(image + layout.mix_bias);
  args.term_bytes = layout.term_bytes();
  args.in_channels = static_cast<std::int32_t>(spec.in_channels);
  args.out_channels = static_cast<std::int32_t>(spec.out_channels);
  args.in_padded = static_cast<std::int32_t>(layout.in_padded);
  args.out_padded = static_cast<std::int32_t>(layout.out_padded);
  args.taps = static_cast<std::int32_t>(spec.kernel_size);
  args.dilation = static_cast<std::int32_t>(spec.dilation);
  args.left_frames = static_cast<std::int32_t>(spec.left_frames());
  (spec.type == LayerType::kPointwise ? args.after_mix : args.before_mix) = spec.activation;
  args.residual = spec.residual;
  args.items = items;

  const cudaError_t error = block.sm90_ != nullptr ? launch_sm90_block(args, *block.sm90_, block.options_, stream)
                                                   : launch_generic_block(args, block.options_, stream);
  if (error != cudaSuccess || spec.activation != Activation::kSoftmax) return error;
  return launch_softmax(args, stream);
}

}  // namespace halotap::kernels::cuda
