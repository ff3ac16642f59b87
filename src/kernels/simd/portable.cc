// kernels/simd/portable.cc: the functions of functions.h for any machine.
#include "kernels/simd/portable.h"

#include "kernels/simd/functions_kernel.h"

namespace tessera::kernels {

void exp2_portable(const float* from, float* to, int64_t count) {
  exp2_array<Portable>(from, to, count);
}
void log2_portable(const float* from, float* to, int64_t count) {
  log2_array<Portable>(from, to, count);
}
void tanh_portable(const float* from, float* to, int64_t count) {
  tanh_array<Portable>(from, to, count);
}

}  // namespace tessera::kernels
