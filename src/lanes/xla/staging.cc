// lanes/xla/staging.cc: copies row by row.
#include "lanes/xla/staging.h"

#include <algorithm>
#include <cstring>

namespace tessera::xla {
namespace {

template <class Pointer>
bool is_dense(const BasicTensorView<Pointer>& t, const Dims& dims) {
  return Dims{t.batch, t.heads, t.tokens, t.dim} == dims &&
         (t.tokens == 1 || t.token_stride == t.dim) &&
         (t.heads == 1 || t.head_stride == t.tokens * t.dim) &&
         (t.batch == 1 || t.batch_stride == t.heads * t.tokens * t.dim);
}

int64_t count(const Dims& dims) {
  int64_t n = 1;
  for (int64_t d : dims) n *= d;
  return n;
}

// Calls f(element of the tensor, element of the array) for each row.
template <class Pointer, class F>
void for_each_row(const BasicTensorView<Pointer>& t, const Dims& dims, F f) {
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s) {
        f(b * t.batch_stride + h * t.head_stride + s * t.token_stride,
          ((b * dims[1] + h) * dims[2] + s) * dims[3]);
      }
    }
  }
}

}  // namespace

Staged::Staged(const TensorView& t, const Dims& dims) {
  if (is_dense(t, dims)) {
    data_ = t.data;
    return;
  }
  const int64_t width = byte_width(t.dtype);
  copy_.resize(static_cast<size_t>(count(dims) * width));
  const auto* from = static_cast<const uint8_t*>(t.data);
  const auto bytes = static_cast<size_t>(t.dim * width);
  for_each_row(t, dims, [&](int64_t at, int64_t to) {
    std::memcpy(copy_.data() + to * width, from + at * width, bytes);
  });
  data_ = copy_.data();
}

Staged::Staged(const float* data, const Dims& from, const Dims& dims,
               float beyond) {
  if (from == dims) {
    data_ = data;
    return;
  }
  copy_.resize(static_cast<size_t>(count(dims)) * sizeof(float));
  auto* to = reinterpret_cast<float*>(copy_.data());
  std::fill_n(to, count(dims), beyond);
  for (int64_t b = 0; b < from[0]; ++b) {
    for (int64_t h = 0; h < from[1]; ++h) {
      std::copy_n(data + (b * from[1] + h) * from[2], from[2],
                  to + (b * dims[1] + h) * dims[2]);
    }
  }
  data_ = copy_.data();
}

void* in_place(const MutableTensorView& tensor, const Dims& dims) {
  return is_dense(tensor, dims) ? tensor.data : nullptr;
}

void unstage(const void* array, const Dims& dims, const MutableTensorView& t) {
  const int64_t width = byte_width(t.dtype);
  const auto* from = static_cast<const uint8_t*>(array);
  auto* to = static_cast<uint8_t*>(t.data);
  const auto bytes = static_cast<size_t>(t.dim * width);
  for_each_row(t, dims, [&](int64_t at, int64_t source) {
    std::memcpy(to + at * width, from + source * width, bytes);
  });
}

void unstage(const float* array, const Dims& dims, float* to,
             const Dims& from) {
  for (int64_t b = 0; b < from[0]; ++b) {
    for (int64_t h = 0; h < from[1]; ++h) {
      std::copy_n(array + (b * dims[1] + h) * dims[2], from[2],
                  to + (b * from[1] + h) * from[2]);
    }
  }
}

}  // namespace tessera::xla
