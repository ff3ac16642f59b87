// kernels/backward/avx512bf16.cc: the backward kernel for AVX512-BF16.
#include "kernels/backward/backward_kernel.h"
#include "kernels/simd/bf16_pairs.h"

namespace tessera::kernels {

const BackwardKernel& backward_avx512bf16_bf16_pairs() {
  static constexpr BackwardKernel kKernel =
      backward_kernel<Avx512, Bf16Pairs>();
  return kKernel;
}

}  // namespace tessera::kernels
