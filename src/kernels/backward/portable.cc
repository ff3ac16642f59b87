// kernels/backward/portable.cc: the backward kernel for any machine.
#include "kernels/simd/portable.h"

#include "kernels/backward/backward_kernel.h"

namespace tessera::kernels {

const BackwardKernel& backward_portable_floats() {
  static constexpr BackwardKernel kKernel =
      backward_kernel<Portable, FloatWords<Portable>>();
  return kKernel;
}

}  // namespace tessera::kernels
