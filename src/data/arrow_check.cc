// data/arrow_check.cc: checks an untrusted Arrow array before it is read.
#include "base/fail.h"
#include "data/arrow_batch.h"
#include "data/arrow_numbers.h"

namespace tessera::data {
namespace {

// Below this limit no sum or product of lengths and widths overflows; above it
// no memory could hold the values.
constexpr int64_t kMaxValues = int64_t{1} << 48;

Result<void> check_counts(const ArrowArray& array, int64_t buffers,
                          int64_t children, const std::string& place) {
  if (array.release == nullptr) {
    return invalid("data",
                   "an array must be there, found a released one for "
                   "{}",
                   place);
  }
  for (const auto& [what, n] :
       {std::pair{"length", array.length}, std::pair{"offset", array.offset}}) {
    if (n >= 0 && n <= kMaxValues) continue;
    return invalid("data", "an array's {} must be 0 to {}, found {} for {}",
                   what, kMaxValues, n, place);
  }
  if (array.null_count < -1 || array.null_count > array.length) {
    return invalid("data",
                   "an array's nulls must be -1 to its length {}, found {} for "
                   "{}",
                   array.length, array.null_count, place);
  }
  if (array.n_buffers < buffers ||
      (array.n_buffers > 0 && array.buffers == nullptr)) {
    return invalid("data", "an array must have {} buffers, found {} for {}",
                   buffers, array.buffers == nullptr ? 0 : array.n_buffers,
                   place);
  }
  if (array.n_children != children ||
      (children > 0 && array.children == nullptr)) {
    return invalid("data", "an array must have {} children, found {} for {}",
                   children, array.children == nullptr ? 0 : array.n_children,
                   place);
  }
  if (buffers > 0 && array.null_count > 0 && array.buffers[0] == nullptr) {
    return invalid("data",
                   "an array with nulls must say which, found no such buffer "
                   "for {}",
                   place);
  }
  return {};
}

Result<void> check_buffer(const ArrowArray& array, int64_t number,
                          const std::string& place) {
  if (array.length == 0 || array.buffers[number] != nullptr) return {};
  return invalid("data", "an array must have its buffer {}, found none for {}",
                 number, place);
}

// Offsets begin at 0 or more and do not fall; the last is at most `most`.
template <class Offset>
Result<void> check_offsets(const ArrowArray& array, int64_t most,
                           const std::string& place) {
  const void* const offsets = array.buffers[1];
  int64_t last = 0;
  for (int64_t i = 0; i <= array.length; ++i) {
    const int64_t here = load<Offset>(offsets, array.offset + i);
    if (here < last) {
      return invalid("data",
                     "offsets must not fall, found {} after {} for row {} of "
                     "{}",
                     here, last, i, place);
    }
    last = here;
  }
  if (last <= most) return {};
  return invalid("data",
                 "offsets must be at most {}, found {} for row {} of "
                 "{}",
                 most, last, array.length - 1, place);
}

Result<void> check_lists(const ArrowType& type, const ArrowArray& array,
                         const std::string& place) {
  const ArrowArray* const items = array.children[0];
  if (auto e = check_arrow_array(*type.item, items, "the values of " + place);
      !e) {
    return e;
  }
  if (type.kind == ArrowKind::fixed_list) {
    const int64_t lists = array.offset + array.length;
    if (type.size == 0 || lists <= items->length / type.size) return {};
    return invalid("data",
                   "{} lists of {} must have as many values, found {} for {}",
                   lists, type.size, items->length, place);
  }
  if (auto e = check_buffer(array, 1, place); !e) return e;
  if (array.length == 0) return {};
  return type.bytes == 4 ? check_offsets<int32_t>(array, items->length, place)
                         : check_offsets<int64_t>(array, items->length, place);
}

}  // namespace

Result<void> check_arrow_array(const ArrowType& type, const ArrowArray* array,
                               const std::string& place) {
  if (array == nullptr) {
    return invalid("data", "an array must be there, found none for {}", place);
  }
  constexpr int64_t kBuffers[] = {0, 0, 2, 2, 2, 1, 3, 2};  // by ArrowKind
  if (auto e = check_counts(*array, kBuffers[static_cast<size_t>(type.kind)],
                            type.item ? 1 : 0, place);
      !e) {
    return e;
  }
  if ((array->dictionary != nullptr) != (type.dictionary != nullptr)) {
    return invalid("data",
                   "an array must have a dictionary where its schema has one, "
                   "found {} for {}",
                   array->dictionary != nullptr ? "one" : "none", place);
  }
  if (type.dictionary) {
    if (auto e = check_arrow_array(*type.dictionary, array->dictionary,
                                   "the dictionary of " + place);
        !e) {
      return e;
    }
  }
  switch (type.kind) {
    case ArrowKind::list:
    case ArrowKind::fixed_list:
      return check_lists(type, *array, place);
    case ArrowKind::text:
      for (const int64_t number : {1, 2}) {
        if (auto e = check_buffer(*array, number, place); !e) return e;
      }
      if (array->length == 0) return {};
      return type.bytes == 4
                 ? check_offsets<int32_t>(*array, INT32_MAX, place)
                 : check_offsets<int64_t>(*array, kMaxValues, place);
    case ArrowKind::boolean:
    case ArrowKind::integer:
    case ArrowKind::text_view:
      return check_buffer(*array, 1, place);
    case ArrowKind::other:
    case ArrowKind::nulls:
      break;
  }
  return {};
}

Result<void> check_arrow_batch(const ArrowArray& batch, int64_t columns,
                               const std::string& place) {
  if (auto e = check_counts(batch, 1, columns, place); !e) return e;
  for (int64_t c = 0; c < columns; ++c) {
    const ArrowArray* const column = batch.children[c];
    if (column == nullptr) {
      return invalid("data",
                     "an array must be there, found none for column {} "
                     "of {}",
                     c, place);
    }
    if (column->length >= batch.offset + batch.length) continue;
    return invalid("data",
                   "a column must be as long as its batch, {}, found {} for "
                   "column {} of {}",
                   batch.offset + batch.length, column->length, c, place);
  }
  return {};
}

}  // namespace tessera::data
