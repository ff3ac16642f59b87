#include "arrays.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>

#include "failure.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

std::optional<Dtype> dtype_of(nb::dlpack::dtype t) {
  using nb::dlpack::dtype_code;
  if (t.lanes != 1) return {};
  const auto is = [&](dtype_code code, int bits) {
    return t.code == static_cast<uint8_t>(code) && t.bits == bits;
  };
  if (is(dtype_code::Float, 32)) return Dtype::f32;
  if (is(dtype_code::Bfloat, 16)) return Dtype::bf16;
  if (is(dtype_code::Float, 16)) return Dtype::f16;
  if (is(dtype_code::Float, 64)) return Dtype::f64;
  if (is(dtype_code::Int, 32)) return Dtype::i32;
  if (is(dtype_code::Int, 64)) return Dtype::i64;
  if (is(dtype_code::Int, 16)) return Dtype::i16;
  if (is(dtype_code::Int, 8)) return Dtype::i8;
  if (is(dtype_code::UInt, 8)) return Dtype::u8;
  if (is(dtype_code::Bool, 8)) return Dtype::boolean;
  return {};
}

std::string text_of(nb::handle object) {
  return nb::cast<std::string>(nb::str(object));
}

std::string shape_words(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) out += ", ";
    out += shape[i] < 0 ? "any" : std::to_string(shape[i]);
  }
  return out + "]";
}

bool import(nb::handle object, bool writable, nb::ndarray<nb::ro>& out) {
  if (!writable) return nb::try_cast(object, out, false);
  nb::ndarray<> view;
  if (!nb::try_cast(object, view, false)) return false;
  out = nb::ndarray<nb::ro>(view);
  return true;
}

}  // namespace

std::vector<int64_t> Array::shape() const {
  std::vector<int64_t> out(view.ndim());
  for (size_t i = 0; i < out.size(); ++i) out[i] = view.shape(i);
  return out;
}

std::string words_of(nb::handle object) {
  std::string out = text_of(object.type().attr("__name__"));
  if (nb::hasattr(object, "dtype")) {
    out += " of " + text_of(object.attr("dtype"));
  }
  return out;
}

bool is_negated(nb::handle object) {
  return nb::hasattr(object, "is_neg") &&
         nb::cast<bool>(object.attr("is_neg")());
}

Array read_array(const char* name, nb::handle object, bool writable,
                 const char* what) {
  Array out;
  out.object = nb::borrow(object);
  out.name = name;
  std::optional<Dtype> dtype;
  if (import(object, writable, out.view)) {
    dtype = dtype_of(out.view.dtype());
  } else if (nb::hasattr(object, "dtype") && nb::hasattr(object, "view") &&
             text_of(object.attr("dtype")) == "bfloat16" &&
             import(object.attr("view")("uint16"), writable, out.view)) {
    dtype = Dtype::bf16;
  } else if (writable && nb::try_cast(object, out.view, false)) {
    refuse(std::string(name) + " must be writable, found a read-only array");
  }
  if (!dtype) {
    refuse(std::string(name) + " must be " + what + ", found " +
           words_of(object));
  }
  if (out.view.device_type() != nb::device::cpu::value) {
    refuse(std::string(name) + " must be in memory of the CPU, found " +
           words_of(object) + " on another device");
  }
  if (is_negated(object)) {
    refuse(std::string(name) +
           " must hold its own numbers, as resolve_neg() has them, found " +
           words_of(object) + " with its negative bit set");
  }
  out.dtype = *dtype;
  return out;
}

Dtype parse_dtype(const std::string& text) {
  if (text == "f32" || text == "float32") return Dtype::f32;
  if (text == "bf16" || text == "bfloat16") return Dtype::bf16;
  if (text == "f16" || text == "float16") return Dtype::f16;
  refuse("dtype must be f32, bf16 or f16, found '" + text + "'");
}

Layout parse_layout(const std::string& text) {
  if (text == "bhsd") return Layout::bhsd;
  if (text == "bshd") return Layout::bshd;
  refuse("layout must be 'bhsd' or 'bshd', found '" + text + "'");
}

MutableTensorView tensor_of(const Array& array, Layout layout) {
  const auto& v = array.view;
  if (v.ndim() != 4) {
    refuse(std::string(array.name) + " must have 4 dimensions, found " +
           std::to_string(v.ndim()));
  }
  if (v.size() > 0 && v.shape(3) > 1 && v.stride(3) != 1) {
    refuse(std::string(array.name) +
           " must be contiguous in its last dimension, found a stride of " +
           std::to_string(v.stride(3)));
  }
  const size_t head = layout == Layout::bhsd ? 1 : 2;
  const size_t token = 3 - head;
  MutableTensorView out;
  out.data = array.data();
  out.dtype = array.dtype;
  out.batch = static_cast<int64_t>(v.shape(0));
  out.heads = static_cast<int64_t>(v.shape(head));
  out.tokens = static_cast<int64_t>(v.shape(token));
  out.dim = static_cast<int64_t>(v.shape(3));
  out.batch_stride = v.stride(0);
  out.head_stride = v.stride(head);
  out.token_stride = v.stride(token);
  return out;
}

bool in_c_order(const Array& array) {
  const auto& v = array.view;
  int64_t expected = 1;
  for (size_t i = v.ndim(); i-- > 0;) {
    // The strides of an empty array may be anything.
    if (v.shape(i) > 1 && v.stride(i) != expected) return v.size() == 0;
    expected *= static_cast<int64_t>(v.shape(i));
  }
  return true;
}

std::span<float> floats_of(const Array& array, std::span<const int64_t> shape) {
  if (array.dtype != Dtype::f32) {
    refuse(std::string(array.name) + " must be float32, found " +
           words_of(array.object));
  }
  const std::vector<int64_t> found = array.shape();
  if (!std::ranges::equal(found, shape)) {
    refuse(std::string(array.name) + " must have the shape " +
           shape_words(shape) + ", found " + shape_words(found));
  }
  if (!in_c_order(array)) {
    refuse(std::string(array.name) + " must be in C order, found strides");
  }
  return {static_cast<float*>(array.data()), array.view.size()};
}

nb::object empty_array(std::span<const int64_t> shape, Dtype dtype) {
  nb::object type;
  switch (dtype) {
    case Dtype::bf16:
      type = nb::module_::import_("ml_dtypes").attr("bfloat16");
      break;
    case Dtype::f16:
      type = nb::str("float16");
      break;
    case Dtype::f64:
      type = nb::str("float64");
      break;
    default:
      type = nb::str("float32");
  }
  nb::list sizes;
  for (const int64_t n : shape) sizes.append(n);
  // Kept until the process ends: the look-up takes longer than making an array.
  // A plain pointer, because the import can release the GIL, and other threads
  // would wait at the guard of a static object while they hold it.
  static PyObject* kept = nullptr;
  if (!kept) {
    nb::object found = nb::module_::import_("numpy").attr("empty");
    if (!kept) kept = found.release().ptr();
  }
  const nb::handle empty = kept;
  return empty(nb::tuple(sizes), type);
}

namespace {

// Appends the numbers of nested lists. The first list at each depth sets the
// size of that dimension; a list of another size is refused as ragged.
void append_ints(const char* name, nb::handle list, size_t depth,
                 IntArray& out) {
  nb::sequence items = nb::borrow<nb::sequence>(list);
  const auto size = static_cast<int64_t>(nb::len(items));
  if (out.shape.size() == depth) out.shape.push_back(size);
  if (depth >= out.shape.size() || out.shape[depth] != size || depth > 4) {
    refuse(std::string(name) +
           " must be a list of equal lists, found a ragged "
           "one");
  }
  for (nb::handle item : items) {
    if (nb::isinstance<nb::list>(item) || nb::isinstance<nb::tuple>(item)) {
      append_ints(name, item, depth + 1, out);
      continue;
    }
    int32_t n = 0;
    if (out.shape.size() != depth + 1 || !nb::try_cast(item, n, false)) {
      refuse(std::string(name) + " must hold int32 numbers, found " +
             text_of(nb::repr(item)));
    }
    out.values.push_back(n);
  }
}

bool fits(std::span<const int64_t> found, std::span<const int64_t> shape) {
  if (found.size() > shape.size()) return false;
  const size_t dropped = shape.size() - found.size();
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i < dropped ? shape[i] != 1
                    : shape[i] >= 0 && shape[i] != found[i - dropped]) {
      return false;
    }
  }
  return true;
}

// Copies in pieces: one copy took eight times as long on a Zen 3, because glibc
// copies 2 KiB and more by `rep movsb`, which is slow on that CPU.
void add_in_pieces(std::span<const int32_t> from, std::vector<int32_t>& to) {
  constexpr size_t kPiece = 448;
  to.reserve(to.size() + from.size());
  for (; !from.empty(); from = from.subspan(std::min(kPiece, from.size()))) {
    const auto piece = from.first(std::min(kPiece, from.size()));
    to.insert(to.end(), piece.begin(), piece.end());
  }
}

}  // namespace

IntArray read_ints(const char* name, nb::handle object,
                   std::span<const int64_t> shape) {
  IntArray out;
  int32_t one = 0;
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    append_ints(name, object, 0, out);
  } else if (nb::isinstance<nb::int_>(object)) {
    if (!nb::try_cast(object, one, false)) {
      refuse(std::string(name) + " must hold int32 numbers, found " +
             text_of(nb::repr(object)));
    }
    // One number is the value of every batch row.
    if (shape.size() != 1 || shape[0] < 0) {
      refuse(std::string(name) + " must be an array or a list, found a number");
    }
    out.shape.assign(shape.begin(), shape.end());
    out.values.assign(static_cast<size_t>(shape[0]), one);
    return out;
  } else {
    const Array array = read_array(
        name, object, false, "int32, as an array (NumPy, or DLPack) or a list");
    if (array.dtype != Dtype::i32) {
      refuse(std::string(name) + " must be int32, found " + words_of(object));
    }
    out.shape = array.shape();
    if (!in_c_order(array)) {
      refuse(std::string(name) + " must be in C order, found strides");
    }
    const std::span<const int32_t> given(
        static_cast<const int32_t*>(array.data()), array.view.size());
    unlocked_if_long(given.size(), [&] { add_in_pieces(given, out.values); });
  }
  if (!fits(out.shape, shape)) {
    refuse(std::string(name) + " must have the shape " + shape_words(shape) +
           ", found " + shape_words(out.shape));
  }
  return out;
}

}  // namespace tessera::python
