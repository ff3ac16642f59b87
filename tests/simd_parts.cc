// tests/simd_parts.cc: the parts in plain C++, and the choice by ISA.
#include "tests/simd_parts.h"

#include "kernels/simd/portable.h"
#include "tests/simd_parts_kernel.h"

namespace tessera::testing {

SimdParts simd_parts(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512) return simd_parts_avx512();
  if (isa == Isa::avx2) return simd_parts_avx2();
#endif
  (void)isa;
  return simd_parts_of<kernels::Portable>();
}

}  // namespace tessera::testing
