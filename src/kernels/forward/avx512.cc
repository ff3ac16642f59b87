// kernels/forward/avx512.cc: the forward kernel for AVX-512.
#include "kernels/simd/avx512.h"

#include "kernels/forward/forward_kernel.h"

namespace tessera::kernels {

void forward_avx512_floats(const ForwardTask& task) {
  Forward<Avx512, FloatWords<Avx512>>(task).run();
}

}  // namespace tessera::kernels
