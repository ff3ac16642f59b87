// kernels/forward/portable.cc: the forward kernel for any machine.
#include "kernels/simd/portable.h"

#include "kernels/forward/forward_kernel.h"

namespace tessera::kernels {

void forward_portable_floats(const ForwardTask& task) {
  Forward<Portable, FloatWords<Portable>>(task).run();
}

}  // namespace tessera::kernels
