// kernels/simd/avx2.cc: the functions of functions.h for AVX2.
#include "kernels/simd/avx2.h"

#include "kernels/simd/functions_kernel.h"

namespace tessera::kernels {

void exp2_avx2(const float* from, float* to, int64_t count) {
  exp2_array<Avx2>(from, to, count);
}
void log2_avx2(const float* from, float* to, int64_t count) {
  log2_array<Avx2>(from, to, count);
}
void tanh_avx2(const float* from, float* to, int64_t count) {
  tanh_array<Avx2>(from, to, count);
}

}  // namespace tessera::kernels
