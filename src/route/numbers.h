// route/numbers.h: rows of f32, bf16 and f16 arrays as floats.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/float16.h"
#include "tessera/attention.h"

namespace tessera::routing {

// The `dim` numbers of row (b, h, t): in place if they are floats, else
// converted into `scratch`.
inline const float* float_row(const TensorView& from, int64_t b, int64_t h,
                              int64_t t, float* scratch) {
  const int64_t at =
      b * from.batch_stride + h * from.head_stride + t * from.token_stride;
  if (from.dtype == Dtype::f32)
    return static_cast<const float*>(from.data) + at;
  const uint16_t* row = static_cast<const uint16_t*>(from.data) + at;
  if (from.dtype == Dtype::bf16) {
    for (int64_t d = 0; d < from.dim; ++d) scratch[d] = bf16_to_float(row[d]);
  } else {
    for (int64_t d = 0; d < from.dim; ++d) scratch[d] = f16_to_float(row[d]);
  }
  return scratch;
}

}  // namespace tessera::routing
