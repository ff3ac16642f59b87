// kernels/backward/avx2.cc
#include "kernels/simd/avx2.h"

#include "kernels/backward/backward_kernel.h"

namespace tessera {

extern const BackwardKernel backward_avx2_floats =
    backward_kernel<Avx2, FloatWords<Avx2>>();

}  // namespace tessera
