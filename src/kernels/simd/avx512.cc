// kernels/simd/avx512.cc: the functions of functions.h for AVX-512.
#include "kernels/simd/avx512.h"

#include "kernels/simd/functions_kernel.h"

namespace tessera::kernels {

void exp2_avx512(const float* from, float* to, int64_t count) {
  exp2_array<Avx512>(from, to, count);
}
void log2_avx512(const float* from, float* to, int64_t count) {
  log2_array<Avx512>(from, to, count);
}
void tanh_avx512(const float* from, float* to, int64_t count) {
  tanh_array<Avx512>(from, to, count);
}

}  // namespace tessera::kernels
