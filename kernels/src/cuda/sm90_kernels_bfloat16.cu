#include "cuda/sm90_kernels.cuh"

namespace halotap::kernels::cuda {

Sm90Kernel sm90_kernel_bfloat16(const Sm90Plan& plan, Terms terms, Taps taps, Store store) {
  return kernel_of<__nv_bfloat16, false>(plan, terms, taps, store);
}

}  // namespace halotap::kernels::cuda
