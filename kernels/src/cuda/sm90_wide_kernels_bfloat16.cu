#include "cuda/sm90_kernels.cuh"

namespace halotap::kernels::cuda {

Sm90Kernel sm90_wide_kernel_bfloat16(const Sm90Plan& plan, Math math, Taps taps, Store store) {
  return kernel_of<__nv_bfloat16, true>(plan, math, taps, store);
}

}  // namespace halotap::kernels::cuda
