// tests/simd_parts_avx2.cc
#if defined(__x86_64__)
#include "kernels/simd/avx2.h"
#include "tests/simd_parts_kernel.h"

namespace tessera::testing {

SimdParts simd_parts_avx2() { return simd_parts_of<kernels::Avx2>(); }

}  // namespace tessera::testing
#endif
