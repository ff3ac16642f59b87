// kernels/backward/avx512.cc
#include "kernels/simd/avx512.h"

#include "kernels/backward/backward_kernel.h"

namespace tessera {

extern const BackwardKernel backward_avx512_floats =
    backward_kernel<Avx512, FloatWords<Avx512>>();

}  // namespace tessera
