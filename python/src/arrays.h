// arrays.h: arrays of NumPy, JAX, PyTorch and others as views of the library,
// without a copy or a cast.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/attention.h"

namespace tessera::python {

namespace nb = nanobind;

// An array of another library, kept alive while it is used.
struct Array {
  nb::object object;  // as it was given
  nb::ndarray<nb::ro> view;
  Dtype dtype = Dtype::f32;
  const char* name = "";

  void* data() const { return const_cast<void*>(view.data()); }
  std::vector<int64_t> shape() const;
};

// The array must be in CPU memory and of a dtype that the library knows.
// ml_dtypes' bfloat16 is read as the uint16 that it is stored as.
Array read_array(const char* name, nb::handle object, bool writable = false,
                 const char* what =
                     "an array (NumPy, or DLPack) of a dtype "
                     "that attention knows");

// Whether `object` is a PyTorch tensor with its negative bit set: its memory
// holds the negated values, and DLPack does not say so.
bool is_negated(nb::handle object);

// "ndarray of int64"
std::string words_of(nb::handle object);

// The shape of a call without arrays. By default there are as many KV heads as
// heads, and values are as wide as keys.
inline AttentionShape shape_of(int64_t heads, std::optional<int64_t> kv_heads,
                               int64_t head_dim,
                               std::optional<int64_t> v_head_dim) {
  AttentionShape out;
  out.heads = heads;
  out.kv_heads = kv_heads.value_or(heads);
  out.head_dim = head_dim;
  out.v_head_dim = v_head_dim.value_or(head_dim);
  return out;
}

// `text` is f32, bf16 or f16, or a long name such as float32.
Dtype parse_dtype(const std::string& text);

enum class Layout : uint8_t { bhsd, bshd };
Layout parse_layout(const std::string& text);

// A view of an array with four dimensions, the last one contiguous; other
// arrays are refused.
MutableTensorView tensor_of(const Array& array, Layout layout);
inline TensorView input_of(const Array& array, Layout layout) {
  return as_input(tensor_of(array, layout));
}

// Whether the array is contiguous, in C order.
bool in_c_order(const Array& array);

// The numbers of a float32 array of this shape in C order; others are refused.
std::span<float> floats_of(const Array& array, std::span<const int64_t> shape);

// The shape of the log-sum-exp, which is the same in both layouts.
inline std::array<int64_t, 3> lse_shape(const TensorView& like) {
  return {like.batch, like.heads, like.tokens};
}

// A new NumPy array. Dtype bf16 becomes ml_dtypes' bfloat16.
nb::object empty_array(std::span<const int64_t> shape, Dtype dtype);

// int32 numbers in C order, read from an array, nested lists, or one number for
// all of [n]. The shape must be `shape`, in which -1 is any size; leading sizes
// of 1 may be missing.
struct IntArray {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};
IntArray read_ints(const char* name, nb::handle object,
                   std::span<const int64_t> shape);

// A NumPy array of T, which is also its type in the stubs.
template <class T>
using NumpyArray = nb::typed<nb::object, nb::ndarray<nb::numpy, T>>;

// A read-only NumPy array of memory that `owner` keeps alive.
template <class T>
NumpyArray<const T> view_of(std::span<const T> values, nb::handle owner) {
  return nb::borrow<NumpyArray<const T>>(
      nb::cast(nb::ndarray<nb::numpy, const T, nb::ndim<1>>(
          values.data(), {values.size()}, owner)));
}

// A NumPy array that owns its memory.
template <class T>
NumpyArray<T> own_array(std::vector<T> values, std::vector<size_t> shape) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(
      kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::borrow<NumpyArray<T>>(nb::cast(nb::ndarray<nb::numpy, T>(
      kept->data(), shape.size(), shape.data(), owner)));
}

}  // namespace tessera::python
