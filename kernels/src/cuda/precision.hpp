// The executor's words for arithmetic, as the block's.
#pragma once

#include "cuda/block.hpp"
#include "halotap/kernels/executor.hpp"

namespace halotap::kernels::cuda {

// [any thread]
inline Math math_of(Precision precision) {
  switch (precision) {
    case Precision::kTf32:
      return Math::kTf32;
    case Precision::kBf16:
      return Math::kBf16;
    case Precision::kFp16:
      return Math::kFp16;
    case Precision::kFp32:
      break;
  }
  return Math::kFp32;
}

}  // namespace halotap::kernels::cuda
