// tessera/tensor.h: views of the arrays that attention reads and writes. They
// own nothing; any layout whose last dimension is contiguous will do.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

enum class Dtype : uint8_t {
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  i8,
  i16,
  u8,
  boolean
};

std::string_view to_string(Dtype dtype);  // "I32", as .safetensors spells it
int64_t byte_width(Dtype dtype);

// [batch, heads, tokens, dim]; element (b, h, t, d) lies b * batch_stride + h *
// head_stride + t * token_stride + d elements after `data`.
template <class Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t batch = 1, heads = 1, tokens = 0, dim = 0;
  int64_t batch_stride = 0, head_stride = 0, token_stride = 0;

  // Contiguous [batch, heads, tokens, dim].
  static BasicTensorView bhsd(Pointer data, Dtype dtype, int64_t batch,
                              int64_t heads, int64_t tokens, int64_t dim) {
    return {
        data,         dtype, batch, heads, tokens, dim, heads * tokens * dim,
        tokens * dim, dim};
  }
  // Contiguous [batch, tokens, heads, dim].
  static BasicTensorView bshd(Pointer data, Dtype dtype, int64_t batch,
                              int64_t heads, int64_t tokens, int64_t dim) {
    return {data, dtype,      batch, heads, tokens, dim, tokens * heads * dim,
            dim,  heads * dim};
  }
};

using TensorView = BasicTensorView<const void*>;
using MutableTensorView = BasicTensorView<void*>;

inline TensorView as_input(const MutableTensorView& t) {
  return {t.data, t.dtype,        t.batch,       t.heads,       t.tokens,
          t.dim,  t.batch_stride, t.head_stride, t.token_stride};
}

}  // namespace tessera
