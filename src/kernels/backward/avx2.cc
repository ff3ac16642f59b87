// kernels/backward/avx2.cc: the backward kernel for AVX2.
#include "kernels/simd/avx2.h"

#include "kernels/backward/backward_kernel.h"

namespace tessera::kernels {

const BackwardKernel& backward_avx2_floats() {
  static constexpr BackwardKernel kKernel =
      backward_kernel<Avx2, FloatWords<Avx2>>();
  return kKernel;
}

}  // namespace tessera::kernels
