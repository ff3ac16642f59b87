// kernels/backward/avx512.cc: the backward kernel for AVX-512.
#include "kernels/simd/avx512.h"

#include "kernels/backward/backward_kernel.h"

namespace tessera::kernels {

const BackwardKernel& backward_avx512_floats() {
  static constexpr BackwardKernel kKernel =
      backward_kernel<Avx512, FloatWords<Avx512>>();
  return kKernel;
}

}  // namespace tessera::kernels
