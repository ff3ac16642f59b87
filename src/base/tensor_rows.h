// base/tensor_rows.h: single rows of f32, bf16 and f16 tensors as fp64. Slow
// and simple, for checks and the reference.
#pragma once

#include <cstdint>

#include "tessera/attention.h"

namespace tessera {

inline constexpr bool is_float_dtype(Dtype d) {
  return d == Dtype::f32 || d == Dtype::bf16 || d == Dtype::f16;
}

// The `dim` values of row (b, h, t); the dtype is one of the three.
void read_row(const TensorView& from, int64_t b, int64_t h, int64_t t,
              double* to);

// Rounds each value once.
void write_row(const MutableTensorView& to, int64_t b, int64_t h, int64_t t,
               const double* from);

}  // namespace tessera
