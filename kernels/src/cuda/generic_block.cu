// z[c,t] = tap_bias[c] + sum_k taps[c,k] * x[c, t + k*dilation - left],   a = before(z)
// y[o,t] = after(mix_bias[o] + sum_c mix[o,c] * a[c,t])  (+ x[o,t])
//
// x [in_channels, frames], y [out_channels, frames], frames fastest, any stride and alignment.
//
// Grid: x walks tiles of 64 columns (frames of one item, or short segments of several), y the rows of y, 128 a block.
// 256 threads, two blocks an SM. For every pass of 128 channels:
//   1. a thread computes 8 channels x 4 frames of a from global memory (neighbours share lines in L1),
//   2. the block finds each frame's largest |a|, scales the frame by a power of two and splits it into float16 terms
//      (without a scale, it rounds it to bfloat16) in shared memory, K-major: [group of 8 channels][64 columns][8],
//   3. a warp multiplies 16 rows of weights, read in operand order from L2, by all 64 columns: mma.m16n8k16.
// A frame's sum runs over channels in one order whatever the tile: steps of 16 channels within a pass, then passes.
// Shared memory: 2 x 16 KB of terms, 2 KB of maxima, 256 B of scales.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cuda/device.hpp"
#include "cuda/device_math.cuh"
#include "cuda/generic_block.hpp"
#include "cuda/item_tile.cuh"
#include "cuda/tiles.hpp"

namespace halotap::kernels::cuda {
namespace {

constexpr int kWarps = Tile::kThreads / 32;
constexpr int kBlockRows = kWarps * 16;
constexpr int kColumnTiles = Tile::kFrames / 8;

struct alignas(16) SharedTile {
  uint4 terms[2][Tile::kPassGroups][Tile::kFrames];
  float4 largest[kWarps][Tile::kQuads];
  float inverse_scale[Tile::kFrames];  // by column
};
static_assert(sizeof(SharedTile) <= 48 * 1024, "static shared memory");

__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* s_row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(s_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

#define HALOTAP_MULTIPLY_ADD(type)                                          \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type       \
               ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])             \
               : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1))
template <Terms kTerms>
__device__ __forceinline__ void multiply_add(float (&d)[4], const uint4& a, std::uint32_t b0, std::uint32_t b1) {
  if constexpr (kTerms == Terms::kBfloat16) {
    HALOTAP_MULTIPLY_ADD("bf16");
  } else {
    HALOTAP_MULTIPLY_ADD("f16");
  }
}
#undef HALOTAP_MULTIPLY_ADD

// a of 8 channels from `channel` on, 4 frames each; zeros for channels past the last.
template <typename X, Terms kTerms>
__device__ __forceinline__ void depthwise(const BlockArgs& args, const Item& item, std::int64_t frame, int channel,
                                          float (&a)[Tile::kGroupChannels][Tile::kQuadFrames]) {
  const X* x[Tile::kGroupChannels];
  const float* taps = args.d_taps + channel;
#pragma unroll
  for (int c = 0; c < Tile::kGroupChannels; ++c) {
    // A channel past the last reads the last one's samples, against taps of zero.
    const std::int64_t row = min(channel + c, args.in_channels - 1);
    x[c] = static_cast<const X*>(item.x) + row * item.x_channel_stride;
    const float bias = args.d_tap_bias[channel + c];
#pragma unroll
    for (int f = 0; f < Tile::kQuadFrames; ++f) a[c][f] = bias;
  }
  std::int64_t source = frame - args.left_frames;
#pragma unroll 1
  for (int k = 0; k < args.taps; ++k, source += args.dilation, taps += args.in_padded) {
#pragma unroll
    for (int c = 0; c < Tile::kGroupChannels; ++c) {
      const float weight = taps[c];
#pragma unroll
      for (int f = 0; f < Tile::kQuadFrames; ++f) {
        const std::int64_t t = source + f;
        const float sample = t >= item.x_begin && t < item.x_end ? to_float(x[c][t]) : 0.0f;
        a[c][f] = fmaf(weight, sample, a[c][f]);
      }
    }
  }
  with_activation_of_taps<kTerms>(args.before_mix, [&](auto activation) {
#pragma unroll
    for (int c = 0; c < Tile::kGroupChannels; ++c) {
#pragma unroll
      for (int f = 0; f < Tile::kQuadFrames; ++f) a[c][f] = activation(a[c][f]);
    }
  });
#pragma unroll
  for (int c = 0; c < Tile::kGroupChannels; ++c) {
#pragma unroll
    for (int f = 0; f < Tile::kQuadFrames; ++f) a[c][f] = channel + c < args.in_channels ? a[c][f] : 0.0f;
  }
}

// Adds one pass's products to `sums`, scaled back by frame.
template <Terms kTerms>
__device__ __forceinline__ void mix_pass(const BlockArgs& args, const SharedTile& s, int row_tile, int first_step,
                                         int steps, float (&sums)[kColumnTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float products[kColumnTiles][4] = {};
  float corrections[kColumnTiles][4] = {};
  const auto* weights = static_cast<const uint4*>(args.d_mix) +
                        (static_cast<std::int64_t>(row_tile) * (args.in_padded / 16) + first_step) * 32 + lane;
  const std::int64_t term_stride = args.term_bytes / 16;
  const int group_of_lane = lane / 8 % 2;
  const int column_of_lane = lane % 8 + 8 * (lane / 16);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const uint4 high = weights[step * 32];
    uint4 low = {};
    if constexpr (kTerms == Terms::kTwoFloat16) low = weights[term_stride + step * 32];
#pragma unroll
    for (int j = 0; j < kColumnTiles; j += 2) {
      std::uint32_t b[4];
      load_matrices(b, &s.terms[0][2 * step + group_of_lane][8 * j + column_of_lane]);
      multiply_add<kTerms>(products[j], high, b[0], b[1]);
      multiply_add<kTerms>(products[j + 1], high, b[2], b[3]);
      if constexpr (kTerms == Terms::kTwoFloat16) {
        multiply_add<kTerms>(corrections[j], low, b[0], b[1]);
        multiply_add<kTerms>(corrections[j + 1], low, b[2], b[3]);
        load_matrices(b, &s.terms[1][2 * step + group_of_lane][8 * j + column_of_lane]);
        multiply_add<kTerms>(corrections[j], high, b[0], b[1]);
        multiply_add<kTerms>(corrections[j + 1], high, b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kColumnTiles; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float scale = s.inverse_scale[8 * j + 2 * (lane % 4) + i % 2];
      sums[j][i] = fmaf(products[j][i] + corrections[j][i], scale, sums[j][i]);
    }
  }
}

template <typename X, typename Y>
__device__ __forceinline__ void store_rows(const BlockArgs& args, std::int64_t tile, int row_tile,
                                           const float (&sums)[kColumnTiles][4]) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int part = 0; part < 4; ++part) {
    // Columns 16*i + 8*half + 2*(lane%4) + e, i = 0 to 3, are the four frames of one quad (tiles.hpp).
    const int half = part / 2;
    const int e = part % 2;
    const Quad quad = quad_at(args, tile, quad_of_lane(8 * half + 2 * (lane % 4) + e));
    if (quad.item < 0) continue;
    const Item item = item_at<sizeof(X), sizeof(Y)>(args.items, quad.item);
    if (quad.frame >= item.frames) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = row_tile * 16 + lane / 4 + 8 * h;
      if (row >= args.out_channels) continue;
      const float row_scale = args.d_row_scale[row];
      const float bias = args.d_mix_bias[row];
      float y[Tile::kQuadFrames];
#pragma unroll
      for (int f = 0; f < Tile::kQuadFrames; ++f) y[f] = fmaf(sums[2 * f + half][2 * h + e], row_scale, bias);
      with_activation(args.after_mix, [&](auto activation) {
#pragma unroll
        for (int f = 0; f < Tile::kQuadFrames; ++f) y[f] = activation(y[f]);
      });
      Y* out = static_cast<Y*>(item.y) + row * item.y_channel_stride;
      const X* x = static_cast<const X*>(item.x) + row * item.x_channel_stride;
#pragma unroll
      for (int f = 0; f < Tile::kQuadFrames; ++f) {
        const std::int64_t t = quad.frame + f;
        if (t >= item.frames) continue;
        if (args.residual && t >= item.x_begin && t < item.x_end) y[f] += to_float(x[t]);
        out[t] = from_float<Y>(t >= item.y_begin && t < item.y_end ? y[f] : 0.0f);
      }
    }
  }
}

template <typename X, typename Y, Terms kTerms>
__global__ void __launch_bounds__(Tile::kThreads, 2) generic_block(const __grid_constant__ BlockArgs args) {
  __shared__ SharedTile s;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int row_tile = static_cast<int>(blockIdx.y) * kWarps + warp;
  const bool has_rows = row_tile * 16 < args.out_channels;
  const int column_lane = lane % 16;
  const int quad_index = quad_of_lane(column_lane);

  for (std::int64_t tile = blockIdx.x; tile < args.tiles; tile += gridDim.x) {
    const Quad quad = quad_at(args, tile, quad_index);
    Item item;  // no frames: everything counts as zero
    if (quad.item >= 0) item = item_at<sizeof(X), sizeof(Y)>(args.items, quad.item);
    float sums[kColumnTiles][4] = {};

    for (int pass_channel = 0; pass_channel < args.in_padded; pass_channel += Tile::kPassChannels) {
      const int pass_steps = min(args.in_padded - pass_channel, Tile::kPassChannels) / Tile::kStepChannels;
      const int group = 2 * warp + lane / 16;
      const int channel = pass_channel + group * Tile::kGroupChannels;
      float a[Tile::kGroupChannels][Tile::kQuadFrames] = {};
      if (warp < pass_steps) depthwise<X, kTerms>(args, item, quad.frame, channel, a);

      FrameScale scales[Tile::kQuadFrames];
      if constexpr (has_scales(kTerms)) {
        float largest[Tile::kQuadFrames] = {};
#pragma unroll
        for (int f = 0; f < Tile::kQuadFrames; ++f) {
#pragma unroll
          for (int c = 0; c < Tile::kGroupChannels; ++c) largest[f] = fmaxf(largest[f], fabsf(a[c][f]));
          largest[f] = fmaxf(largest[f], __shfl_xor_sync(0xffffffffu, largest[f], 16));
        }
        if (lane < 16) s.largest[warp][lane] = make_float4(largest[0], largest[1], largest[2], largest[3]);
        __syncthreads();  // maxima of all warps are there; the last pass's products are done with the terms
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          const float4 other = s.largest[w][column_lane];
          largest[0] = fmaxf(largest[0], other.x);
          largest[1] = fmaxf(largest[1], other.y);
          largest[2] = fmaxf(largest[2], other.z);
          largest[3] = fmaxf(largest[3], other.w);
        }
#pragma unroll
        for (int f = 0; f < Tile::kQuadFrames; ++f) scales[f] = frame_scale(largest[f]);
      } else {
        for (FrameScale& scale : scales) scale = {1.0f, 1.0f};
        __syncthreads();  // the last pass's products are done with the terms
      }
#pragma unroll
      for (int f = 0; f < Tile::kQuadFrames; ++f) {
        if (warp == 0 && lane < 16) s.inverse_scale[16 * f + column_lane] = scales[f].inverse;
        if (warp < pass_steps) {
          std::uint32_t high[4];
          [[maybe_unused]] std::uint32_t low[4];
#pragma unroll
          for (int c = 0; c < Tile::kGroupChannels; c += 2) {
            if constexpr (has_scales(kTerms)) {
              const SplitPair pair = split_pair(a[c][f] * scales[f].scale, a[c + 1][f] * scales[f].scale);
              high[c / 2] = pair.high;
              low[c / 2] = pair.low;
            } else {
              high[c / 2] = round_pair(a[c][f], a[c + 1][f]);
            }
          }
          s.terms[0][group][16 * f + column_lane] = make_uint4(high[0], high[1], high[2], high[3]);
          if constexpr (kTerms == Terms::kTwoFloat16) {
            s.terms[1][group][16 * f + column_lane] = make_uint4(low[0], low[1], low[2], low[3]);
          }
        }
      }
      __syncthreads();  // terms and scales are there; the maxima may be overwritten
      if (has_rows) mix_pass<kTerms>(args, s, row_tile, pass_channel / Tile::kStepChannels, pass_steps, sums);
    }
    if (has_rows) store_rows<X, Y>(args, tile, row_tile, sums);
    // The next tile's first barrier keeps its terms from overwriting these before every warp has read them.
  }
}

// One thread a frame; three passes over its channels, coalesced along time.
__global__ void softmax_channels(const __grid_constant__ BlockArgs args) {
  for (std::int64_t index = blockIdx.y; index < args.items.count; index += gridDim.y) {
    const Item item = item_at<4, 4>(args.items, index);
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    const std::int64_t last = min(item.frames, item.y_end);
    const std::int64_t first = max(item.y_begin, static_cast<std::int64_t>(0));
    for (std::int64_t t = first + blockIdx.x * static_cast<std::int64_t>(blockDim.x) + threadIdx.x; t < last;
         t += step) {
      float* y = static_cast<float*>(item.y) + t;
      float largest = y[0];
      for (int o = 1; o < args.out_channels; ++o) largest = fmaxf(largest, y[o * item.y_channel_stride]);
      float sum = 0;
      for (int o = 0; o < args.out_channels; ++o) {
        const float e = expf(y[o * item.y_channel_stride] - largest);
        y[o * item.y_channel_stride] = e;
        sum += e;
      }
      const float inverse = 1.0f / sum;
      for (int o = 0; o < args.out_channels; ++o) y[o * item.y_channel_stride] *= inverse;
    }
  }
}

template <typename X, typename Y>
cudaError_t launch_typed(const BlockArgs& args, Terms terms, cudaStream_t stream) {
  constexpr bool kBfloat16 = std::is_same_v<X, __nv_bfloat16> && std::is_same_v<Y, __nv_bfloat16>;
  constexpr Terms kOne = kBfloat16 ? Terms::kBfloat16 : Terms::kFloat16;
  const auto columns = static_cast<unsigned>(std::min<std::int64_t>(args.tiles, (std::int64_t{1} << 31) - 1));
  const dim3 grid(columns, static_cast<unsigned>((args.out_channels + kBlockRows - 1) / kBlockRows));
  if (terms == Terms::kTwoFloat16) {
    generic_block<X, Y, Terms::kTwoFloat16><<<grid, Tile::kThreads, 0, stream>>>(args);
  } else {
    generic_block<X, Y, kOne><<<grid, Tile::kThreads, 0, stream>>>(args);
  }
  return cudaPeekAtLastError();
}

template <typename X>
cudaError_t launch_from(const BlockArgs& args, const BlockOptions& options, cudaStream_t stream) {
  const Terms terms = terms_of(options);
  switch (options.y) {
    case Element::kBfloat16:
      return launch_typed<X, __nv_bfloat16>(args, terms, stream);
    case Element::kFloat16:
      return launch_typed<X, __half>(args, terms, stream);
    case Element::kFloat32:
      break;
  }
  return launch_typed<X, float>(args, terms, stream);
}

}  // namespace

cudaError_t launch_generic_block(const BlockArgs& block_args, const BlockOptions& options,
                                 cudaStream_t stream) noexcept {
  int processors = 0;
  if (const cudaError_t error = count_processors(processors); error != cudaSuccess) return error;
  BlockArgs args = block_args;
  args.divide(Tile::kFrames, processors);
  switch (options.x) {
    case Element::kBfloat16:
      return launch_from<__nv_bfloat16>(args, options, stream);
    case Element::kFloat16:
      return launch_from<__half>(args, options, stream);
    case Element::kFloat32:
      break;
  }
  return launch_from<float>(args, options, stream);
}

cudaError_t launch_softmax(const BlockArgs& args, cudaStream_t stream) noexcept {
  constexpr int kThreads = 128;
  const std::int64_t frames = args.items.table != nullptr ? args.items.max_frames : args.items.first.frames;
  const dim3 grid(static_cast<unsigned>(std::clamp<std::int64_t>((frames + kThreads - 1) / kThreads, 1, 4096)),
                  static_cast<unsigned>(std::clamp<std::int64_t>(args.items.count, 1, 65535)));
  softmax_channels<<<grid, kThreads, 0, stream>>>(args);
  return cudaPeekAtLastError();
}

}  // namespace halotap::kernels::cuda
