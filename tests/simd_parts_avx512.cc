// tests/simd_parts_avx512.cc
#if defined(__x86_64__)
#include "kernels/simd/avx512.h"
#include "tests/simd_parts_kernel.h"

namespace tessera::testing {

SimdParts simd_parts_avx512() { return simd_parts_of<kernels::Avx512>(); }

}  // namespace tessera::testing
#endif
