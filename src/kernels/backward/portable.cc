// kernels/backward/portable.cc
#include "kernels/simd/portable.h"

#include "kernels/backward/backward_kernel.h"

namespace tessera {

extern const BackwardKernel backward_portable_floats =
    backward_kernel<Portable, FloatWords<Portable>>();

}  // namespace tessera
