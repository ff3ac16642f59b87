// base/tensor_rows.cc: single rows of tensors as fp64.
#include "base/tensor_rows.h"

#include "base/float16.h"

namespace tessera {
namespace {

template <class View>
int64_t offset(const View& v, int64_t b, int64_t h, int64_t t) {
  return b * v.batch_stride + h * v.head_stride + t * v.token_stride;
}

}  // namespace

void read_row(const TensorView& from, int64_t b, int64_t h, int64_t t,
              double* to) {
  const int64_t at = offset(from, b, h, t);
  if (from.dtype == Dtype::f32) {
    const float* x = static_cast<const float*>(from.data) + at;
    for (int64_t d = 0; d < from.dim; ++d) to[d] = x[d];
    return;
  }
  const uint16_t* x = static_cast<const uint16_t*>(from.data) + at;
  if (from.dtype == Dtype::bf16) {
    for (int64_t d = 0; d < from.dim; ++d) to[d] = bf16_to_float(x[d]);
  } else {
    for (int64_t d = 0; d < from.dim; ++d) to[d] = f16_to_float(x[d]);
  }
}

void write_row(const MutableTensorView& to, int64_t b, int64_t h, int64_t t,
               const double* from) {
  const int64_t at = offset(to, b, h, t);
  if (to.dtype == Dtype::f32) {
    float* x = static_cast<float*>(to.data) + at;
    for (int64_t d = 0; d < to.dim; ++d) x[d] = static_cast<float>(from[d]);
    return;
  }
  uint16_t* x = static_cast<uint16_t*>(to.data) + at;
  if (to.dtype == Dtype::bf16) {
    for (int64_t d = 0; d < to.dim; ++d) x[d] = to_bf16(from[d]);
  } else {
    for (int64_t d = 0; d < to.dim; ++d) x[d] = to_f16(from[d]);
  }
}

}  // namespace tessera
