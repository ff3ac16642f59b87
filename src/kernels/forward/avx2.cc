// kernels/forward/avx2.cc: the forward kernel for AVX2.
#include "kernels/simd/avx2.h"

#include "kernels/forward/forward_kernel.h"

namespace tessera::kernels {

void forward_avx2_floats(const ForwardTask& task) {
  Forward<Avx2, FloatWords<Avx2>>(task).run();
}

}  // namespace tessera::kernels
