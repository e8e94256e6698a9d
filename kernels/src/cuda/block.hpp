// One layer on the GPU: its weights packed into device memory, and the launch of the one kernel that does all of it
// (depthwise, activation, channel mix, bias, residual) for any number of streams.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "halotap/kernels/stack.hpp"

namespace halotap::kernels::cuda {

struct Sm90Plan;

// How a sample is stored in device memory.
enum class Element { kFloat32, kBfloat16, kFloat16 };

// Bytes of one sample. [any thread]
constexpr std::int64_t element_bytes(Element element) { return element == Element::kFloat32 ? 4 : 2; }

// Arithmetic of the channel mix. Everything else is float32 whatever the precision, but for SiLU with bfloat16 terms.
enum class Math { kFp32, kTf32, kBf16, kFp16 };

struct BlockOptions {
  Math math = Math::kFp32;
  Element x = Element::kFloat32;
  Element y = Element::kFloat32;  // kFloat32 for a layer with softmax
  bool generic = false;           // by the generic block, also where the layer has a kernel of its own: to compare them
};

// What stands for a weight and an activation in the products of the mix. Weights are scaled by a power of two a row, so
// that their largest magnitudes lie just below the top of float16's range, or just below 1 in bfloat16.
//   kTwoFloat16  two float16, the second of what rounding to the first left; three products: what float32 gives
//   kFloat16     one: 11 significant bits, which is what tf32 keeps and more than bf16 does
//   kBfloat16    one bfloat16: 8 significant bits, and float32's range
// Activations in float16 are scaled by a power of two a frame, so that they fit it and keep their accuracy. All of this
// whatever the loudness, up to 1e30.
enum class Terms { kTwoFloat16, kFloat16, kBfloat16 };

// Between samples in bfloat16 an activation in more than bfloat16 is of no use in bf16; the other precisions, which
// keep more, take the two terms there. [any thread]
constexpr Terms terms_of(const BlockOptions& options) {
  if (options.math == Math::kFp32) return Terms::kTwoFloat16;
  if (options.x != Element::kBfloat16 || options.y != Element::kBfloat16) return Terms::kFloat16;
  return options.math == Math::kBf16 ? Terms::kBfloat16 : Terms::kTwoFloat16;
}
// [any thread]
__host__ __device__ constexpr int count_of(Terms terms) { return terms == Terms::kTwoFloat16 ? 2 : 1; }
// Whether activations are scaled by frame. [any thread]
__host__ __device__ constexpr bool has_scales(Terms terms) { return terms != Terms::kBfloat16; }

// One stream's share of a launch: y[o, t] for t in [0, frames), from x[c, t + k*dilation - left] (design: layer.hpp).
struct Item {
  const void* x = nullptr;            // sample of channel 0, frame 0, in device memory
  void* y = nullptr;                  // likewise; no part of any item's y may overlap any item's x or y
  std::int64_t x_channel_stride = 0;  // samples from one channel to the next
  std::int64_t y_channel_stride = 0;
  std::int64_t frames = 0;   // 0 or more
  std::int64_t x_begin = 0;  // only frames [x_begin, x_end) of x are read; all others count as zero. x_begin may be
  std::int64_t x_end = 0;    // negative (a halo before frame 0)
  std::int64_t y_begin = 0;  // frames of y outside [y_begin, y_end) are written as zeros
  std::int64_t y_end = 0;

  friend bool operator==(const Item&, const Item&) = default;
};

// What one launch runs over: equal items at fixed strides, or a table in device memory.
struct Items {
  std::int64_t count = 0;       // 0 to 2^31 - 1
  Item first;                   // table == nullptr: item i is `first` with x and y moved by i strides
  std::int64_t x_stride = 0;    // samples from one item's x to the next one's
  std::int64_t y_stride = 0;    // likewise of y
  const Item* table = nullptr;  // or: count items in device memory, read when the kernel runs
  std::int64_t max_frames = 0;  // table != nullptr: no item has more frames than this

  friend bool operator==(const Items&, const Items&) = default;
};

// A layer's weights in device memory, in the order the kernel reads them, and the kernel chosen for it. The choice
// depends on the layer, the options, the device and the build alone, so a frame's bits do not depend on how a launch is
// cut.
class PackedBlock {
 public:
  // Packs on the host, allocates on the current device and copies. The layer must be valid (see validate).
  // Throws std::invalid_argument when the options do not fit the layer, std::bad_alloc when the weights do not fit into
  // the device's memory and BackendUnavailable, naming the call and CUDA's reason, when CUDA fails. [control]
  PackedBlock(const Layer& layer, const BlockOptions& options);
  ~PackedBlock();
  PackedBlock(PackedBlock&& other) noexcept;
  PackedBlock& operator=(PackedBlock&&) = delete;

  const LayerSpec& spec() const { return spec_; }             // [any thread]
  const BlockOptions& options() const { return options_; }    // [any thread]
  std::size_t device_bytes() const { return device_bytes_; }  // [any thread]
  // Which kernel runs: "generic", "sm90 k5 d2", "sm90 wide k5 d2". [any thread]
  std::string kernel_name() const;

 private:
  friend cudaError_t launch_block(const PackedBlock&, const Items&, cudaStream_t) noexcept;
  LayerSpec spec_;
  BlockOptions options_;
  std::size_t device_bytes_ = 0;
  void* d_image_ = nullptr;
  std::shared_ptr<const Sm90Plan> sm90_;  // null: the generic block
};

// Queues the layer on `stream`: one kernel (two for softmax), no allocation, no synchronisation; may be captured into a
// graph. Items with no frames, and no items, are allowed. Returns CUDA's error of the launch. [worker]
cudaError_t launch_block(const PackedBlock& block, const Items& items, cudaStream_t stream) noexcept;

}  // namespace halotap::kernels::cuda
