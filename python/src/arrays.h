// arrays.h: arrays of NumPy, JAX, PyTorch and others as the library's views:
// nothing is copied and nothing is cast.
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

// An array of somebody else's, held while it is used.
struct Array {
  nb::object object;  // as it was given
  nb::ndarray<nb::ro> view;
  Dtype dtype = Dtype::f32;
  const char* name = "";

  void* data() const { return const_cast<void*>(view.data()); }
  std::vector<int64_t> shape() const;
};

// In memory of the CPU, of a dtype that the library knows. NumPy's bfloat16 is
// read as the uint16 that it is stored as.
Array read_array(const char* name, nb::handle object, bool writable = false,
                 const char* what =
                     "an array (NumPy, or DLPack) of a dtype "
                     "that attention knows");

// Whether it is a tensor of PyTorch's with its negative bit set: its memory
// holds minus its numbers, and DLPack does not say so.
bool is_negated(nb::handle object);

// "ndarray of int64"
std::string words_of(nb::handle object);

// Of a call whose arrays are not there: as many heads and as wide where K/V's
// and values' own are not said.
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

// f32, bf16 or f16, or their long names.
Dtype parse_dtype(const std::string& text);

enum class Layout : uint8_t { bhsd, bshd };
Layout parse_layout(const std::string& text);

// Four dimensions, the last one contiguous.
MutableTensorView tensor_of(const Array& array, Layout layout);
inline TensorView input_of(const Array& array, Layout layout) {
  return as_input(tensor_of(array, layout));
}

// Whether its elements lie one behind another.
bool in_c_order(const Array& array);

// float32 of this shape, in C order.
std::span<float> floats_of(const Array& array, std::span<const int64_t> shape);

// Of a log-sum-exp, whatever the layout.
inline std::array<int64_t, 3> lse_shape(const TensorView& like) {
  return {like.batch, like.heads, like.tokens};
}

// A new NumPy array. BF16 is ml_dtypes' bfloat16.
nb::object empty_array(std::span<const int64_t> shape, Dtype dtype);

// int32 numbers in C order: an array of them, or a list of whatever depth. The
// shape must be `shape`, without leading sizes of 1 if need be; -1 is any.
struct IntArray {
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};
IntArray read_ints(const char* name, nb::handle object,
                   std::span<const int64_t> shape);

// A NumPy array of these numbers, as the stubs say it.
template <class T>
using NumpyArray = nb::typed<nb::object, nb::ndarray<nb::numpy, T>>;

// A read-only NumPy array of memory that `owner` keeps.
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
