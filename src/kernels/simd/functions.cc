// kernels/simd/functions.cc: selects the functions of an ISA.
#include "kernels/simd/functions.h"

namespace tessera::kernels {

#define FUNCTION(isa, name) \
  void name##_##isa(const float* from, float* to, int64_t count);
#include "kernels/simd/functions.inc"
#undef FUNCTION

ArrayFunctions array_functions(Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::avx512) {
    return {exp2_avx512, log2_avx512, tanh_avx512};
  }
  if (isa == Isa::avx2) return {exp2_avx2, log2_avx2, tanh_avx2};
#endif
  (void)isa;
  return {exp2_portable, log2_portable, tanh_portable};
}

}  // namespace tessera::kernels
