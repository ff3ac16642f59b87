// tests/simd_parts.h: parts of the kernels (stage.h, product.h and a slope of
// math.h in src/kernels/simd) as plain functions of each ISA.
#pragma once

#include <cstdint>

#include "tessera/attention.h"
#include "tessera/machine.h"

namespace tessera::testing {

// Arguments are those of stage.h, with words of one float.
struct SimdParts {
  int64_t lanes = 0, rows = 0;  // of a vector; of a register tile
  bool (*is_finite)(const void* row, Dtype dtype, int64_t dim) = nullptr;
  void (*stage)(const void* row, Dtype dtype, int64_t dim, float* to) = nullptr;
  void (*pack)(const void* data, Dtype dtype, int64_t stride, int64_t rows,
               const uint8_t* live, int64_t dim, int64_t lanes,
               float* to) = nullptr;
  void (*unpack)(const float* from, int64_t lanes, const float* factor,
                 int64_t rows, int64_t dim, void* data, Dtype dtype,
                 int64_t stride) = nullptr;
  // c [rows, two vectors] += A [rows, n] * b [n, two vectors]. A's element (m,
  // i) is a[m * lda + i], or a[i * lda + m] if `by_columns`.
  void (*multiply)(const float* a, int64_t lda, bool by_columns, const float* b,
                   int64_t n, int64_t rows, float* c) = nullptr;
  // For each y, the slope of tanh at y * ln(2) / 2 (math.h). `count` is a
  // multiple of the lanes.
  void (*slope)(const float* from, float* to, int64_t count) = nullptr;
};
// The parts of portable, avx2 or avx512; call them only if the machine has it.
SimdParts simd_parts(Isa isa);

}  // namespace tessera::testing
