#include "documents.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/fail.h"
#include "data/document_fields.h"
#include "failure.h"
#include "tessera/documents.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

using data::Field;
using data::name_of;

std::string kind_of(nb::handle object) {
  return nb::cast<std::string>(nb::str(object.type().attr("__name__")));
}

// Reads integers of an array or of lists into a column. Errors name them by
// `called`.
class Reading {
 public:
  Reading(std::string called, int64_t least, int64_t most,
          std::vector<int32_t>& to)
      : called_(std::move(called)), least_(least), most_(most), to_(to) {}

  // `object` has one dimension, or with `pairs` the shape [any, 2].
  Result<void> read(nb::handle object, bool pairs) {
    nb::ndarray<nb::ro, nb::device::cpu> array;
    if (nb::try_cast(object, array, false)) {
      if (is_negated(object)) {
        return wrong_kind(pairs, "a tensor with its negative bit set");
      }
      return read_array(array, pairs);
    }
    if (!nb::isinstance<nb::list>(object) &&
        !nb::isinstance<nb::tuple>(object)) {
      return wrong_kind(pairs, kind_of(object));
    }
    for (nb::handle item : nb::borrow<nb::sequence>(object)) {
      if (!pairs) {
        if (auto e = add_object(item); !e) return e;
        continue;
      }
      const size_t before = to_.size();
      if (auto e = read(item, false); !e) return e;
      if (to_.size() != before + 2) {
        return wrong_kind(true, fmt::format("one of {}", to_.size() - before));
      }
    }
    return {};
  }

 private:
  Result<void> wrong_kind(bool pairs, std::string_view found) const {
    return invalid("data", "{} must be {}, found {} for it", called_,
                   pairs ? "pairs of integers, as an array [any, 2] or lists"
                         : "integers, as an array of one dimension or a list",
                   found);
  }

  template <class N>
  Result<void> add(N n) {
    if (std::cmp_greater_equal(n, least_) && std::cmp_less_equal(n, most_)) {
      to_.push_back(static_cast<int32_t>(n));
      ++count_;
      return {};
    }
    return out_of_range(fmt::format("{}", n));
  }
  Error out_of_range(std::string_view found) const {
    return invalid("data",
                   "element {} of {} must be an integer of {} to {}, found {} "
                   "for it",
                   count_, called_, least_, most_, found);
  }

  Result<void> add_object(nb::handle item) {
    int64_t n = 0;
    if (nb::try_cast(item, n, false)) return add(n);
    if (nb::isinstance<nb::int_>(item)) {
      return out_of_range(nb::cast<std::string>(nb::str(item)));
    }
    // NumPy scalars are no Python ints, but convert by __index__.
    if (nb::hasattr(item, "__index__")) {
      const nb::object index = nb::steal(PyNumber_Index(item.ptr()));
      if (index.is_valid()) return add_object(index);
      PyErr_Clear();
    }
    return out_of_range(kind_of(item));
  }

  template <class N>
  Result<void> add_all(const nb::ndarray<nb::ro, nb::device::cpu>& array) {
    const auto* const data = static_cast<const N*>(array.data());
    const size_t width = array.ndim() == 2 ? 2 : 1;
    for (size_t i = 0; i < array.shape(0); ++i) {
      for (size_t j = 0; j < width; ++j) {
        const int64_t at =
            static_cast<int64_t>(i) * array.stride(0) +
            (width == 2 ? static_cast<int64_t>(j) * array.stride(1) : 0);
        if (auto e = add(data[at]); !e) return e;
      }
    }
    return {};
  }

  Result<void> read_array(const nb::ndarray<nb::ro, nb::device::cpu>& array,
                          bool pairs) {
    if (array.ndim() != (pairs ? 2 : 1) || (pairs && array.shape(1) != 2)) {
      return wrong_kind(pairs,
                        fmt::format("an array of {} dimensions", array.ndim()));
    }
    const nb::dlpack::dtype type = array.dtype();
    const bool is_signed =
        type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Int);
    const bool is_unsigned =
        type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::UInt);
    const bool is_bool =
        type.code == static_cast<uint8_t>(nb::dlpack::dtype_code::Bool);
    if (type.lanes == 1 && is_signed) {
      if (type.bits == 8) return add_all<int8_t>(array);
      if (type.bits == 16) return add_all<int16_t>(array);
      if (type.bits == 32) return add_all<int32_t>(array);
      if (type.bits == 64) return add_all<int64_t>(array);
    }
    if (type.lanes == 1 && (is_unsigned || (is_bool && most_ == 1))) {
      if (type.bits == 8) return add_all<uint8_t>(array);
      if (type.bits == 16) return add_all<uint16_t>(array);
      if (type.bits == 32) return add_all<uint32_t>(array);
      if (type.bits == 64) return add_all<uint64_t>(array);
    }
    return wrong_kind(pairs, "an array of another dtype");
  }

  std::string called_;
  int64_t least_, most_;
  std::vector<int32_t>& to_;
  int64_t count_ = 0;
};

// The fields of one document: a token array, or a dict of fields.
class PyFields : public data::DocumentFields {
 public:
  PyFields(nb::handle item, int64_t number) : item_(item), number_(number) {}

  bool has(Field field) const override {
    if (!nb::isinstance<nb::dict>(item_)) return field == Field::input_ids;
    const nb::dict fields = nb::borrow<nb::dict>(item_);
    const nb::str name(name_of(field).data());
    return fields.contains(name) && !fields[name].is_none();
  }
  Result<void> numbers(Field field, int64_t least, int64_t most,
                       std::vector<int32_t>& to) const override {
    return Reading(called(field), least, most, to).read(value(field), false);
  }
  Result<void> pairs(Field field, std::vector<int32_t>& to) const override {
    return Reading(called(field), 0, INT32_MAX, to).read(value(field), true);
  }
  Result<std::string> text(Field field) const override {
    std::string text;
    if (nb::try_cast(value(field), text)) return text;
    return invalid("data", "{} must be a string, found {} for it",
                   called(field), kind_of(value(field)));
  }
  std::string place() const override {
    return fmt::format("document {}", number_);
  }

 private:
  std::string called(Field field) const {
    return fmt::format("{} of {}", name_of(field), place());
  }
  nb::object value(Field field) const {
    if (!nb::isinstance<nb::dict>(item_)) return nb::borrow(item_);
    return nb::borrow<nb::dict>(item_)[nb::str(name_of(field).data())];
  }

  nb::handle item_;
  int64_t number_;
};

// A source of documents from a Python iterator. The loader's thread reads it,
// so each call takes the GIL.
class PyDocuments : public DocumentSource {
 public:
  PyDocuments(nb::object iterator, std::shared_ptr<Raised> raised)
      : iterator_(std::move(iterator)), raised_(std::move(raised)) {}
  PyDocuments(const PyDocuments&) = delete;
  PyDocuments& operator=(const PyDocuments&) = delete;
  ~PyDocuments() override {
    const nb::gil_scoped_acquire held;
    iterator_.reset();
  }

  Result<bool> read(Documents& into) override {
    // Filling a window of rows can take long, so each document looks for
    // close().
    if (raised_->closed) {
      return invalid("data",
                     "a loader must be open, found it closed at "
                     "document {}",
                     at_);
    }
    const nb::gil_scoped_acquire held;
    auto item = next();
    if (!item) return item.error();
    if (!item->is_valid()) return false;
    if (auto e = check_no_row(*item); !e) return e.error();
    if (auto e = data::add_document(PyFields(*item, at_), into); !e) {
      return e.error();
    }
    ignore_fields(*item);
    ++at_;
    return true;
  }

  SourcePosition position() const override { return {0, at_, 0}; }
  std::string place(const SourcePosition& end) const override {
    return "document " + std::to_string(end.offset - 1);
  }
  std::set<std::string> ignored() const override { return ignored_; }

  Result<void> seek(const SourcePosition& position) override {
    if (position.file != 0 || position.offset < 0) {
      return invalid(
          "data",
          "a position must be one of these documents, found file {}, "
          "document {}",
          position.file, position.offset);
    }
    const nb::gil_scoped_acquire held;
    while (at_ < position.offset) {
      auto item = next();
      if (!item) return item.error();
      if (!item->is_valid()) {
        return invalid("data",
                       "a position must come from the same documents, found {} "
                       "for {} of them",
                       position.offset, at_);
      }
      ++at_;
    }
    return {};
  }

 private:
  // Returns a null object after the last document.
  Result<nb::object> next() {
    nb::object item = nb::steal(PyIter_Next(iterator_.ptr()));
    if (item.is_valid() || PyErr_Occurred() == nullptr) return item;
    const nb::python_error error;
    raised_->exception = nb::borrow(error.value());
    return invalid("data",
                   "documents must be there, found an exception for "
                   "document {}",
                   at_);
  }

  Result<void> check_no_row(nb::handle item) const {
    if (!nb::isinstance<nb::dict>(item)) return {};
    const auto has = [&](std::string_view name) {
      return nb::borrow<nb::dict>(item).contains(
          nb::str(name.data(), name.size()));
    };
    return data::refuse_rows(has, fmt::format("document {}", at_));
  }

  void ignore_fields(nb::handle item) {
    if (!nb::isinstance<nb::dict>(item)) return;
    for (const auto [key, unused] : nb::borrow<nb::dict>(item)) {
      std::string name;
      if (nb::try_cast(key, name) && !data::field_called(name)) {
        data::ignore(name, ignored_);
      }
    }
  }

  nb::object iterator_;
  std::shared_ptr<Raised> raised_;
  int64_t at_ = 0;
  std::set<std::string> ignored_;
};

}  // namespace

std::unique_ptr<DocumentSource> documents_of(
    nb::handle object, const std::shared_ptr<Raised>& raised) {
  if (nb::hasattr(object, "__arrow_c_stream__")) {
    const nb::object capsule = object.attr("__arrow_c_stream__")();
    void* const stream =
        PyCapsule_GetPointer(capsule.ptr(), "arrow_array_stream");
    if (stream == nullptr) throw nb::python_error();
    auto made = unlocked([&] {
      return open_arrow_stream(static_cast<ArrowArrayStream*>(stream));
    });
    return take(std::move(made));
  }
  std::vector<std::string> paths;
  std::filesystem::path path;
  // bytes are tokens here, although try_cast would accept them as a path.
  const auto is_path = [&](nb::handle given) {
    return !nb::isinstance<nb::bytes>(given) && nb::try_cast(given, path);
  };
  if (is_path(object)) paths.push_back(path);
  if (nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object)) {
    for (nb::handle item : nb::borrow<nb::sequence>(object)) {
      if (!is_path(item)) {
        paths.clear();
        break;
      }
      paths.push_back(path);
    }
  }
  if (!paths.empty()) return take(open_documents(std::move(paths)));
  return std::make_unique<PyDocuments>(nb::iter(object), raised);
}

}  // namespace tessera::python
