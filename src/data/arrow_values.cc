// data/arrow_values.cc: reads values of checked Arrow arrays.
#include <type_traits>

#include "base/fail.h"
#include "data/arrow_batch.h"
#include "data/arrow_numbers.h"

namespace tessera::data {
namespace {

// An integer of any width; `beyond` means unsigned and above int64.
struct Integer {
  int64_t value = 0;
  bool beyond = false;
};

Integer integer_at(const ArrowType& type, const void* buffer, int64_t at) {
  if (type.kind == ArrowKind::boolean) return {load_bit(buffer, at) ? 1 : 0};
  switch (type.bytes) {
    case 1:
      return {type.is_signed ? int64_t{load<int8_t>(buffer, at)}
                             : int64_t{load<uint8_t>(buffer, at)}};
    case 2:
      return {type.is_signed ? int64_t{load<int16_t>(buffer, at)}
                             : int64_t{load<uint16_t>(buffer, at)}};
    case 4:
      return {type.is_signed ? int64_t{load<int32_t>(buffer, at)}
                             : int64_t{load<uint32_t>(buffer, at)}};
    default:
      break;
  }
  const auto value = load<uint64_t>(buffer, at);
  const bool beyond = !type.is_signed && value > uint64_t{INT64_MAX};
  return {static_cast<int64_t>(value), beyond};
}

// Whether a test of bits decides the range: 0 to 2^n - 1, or all of int32.
bool has_bits(IntegerRange range) {
  if (range.least == INT32_MIN) return range.most == INT32_MAX;
  return range.least == 0 && (range.most & (range.most + 1)) == 0;
}

// Writes all to `to`; returns whether all are in the range. Their bits are
// combined with OR and checked once, so the loop compares no number.
template <class T>
bool convert(const void* buffer, int64_t first, int64_t count,
             IntegerRange range, int32_t* to) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  Bits seen = 0, lost = 0;
  for (int64_t i = 0; i < count; ++i) {
    const T value = load<T>(buffer, first + i);
    const auto n = static_cast<int32_t>(value);
    to[i] = n;
    seen |= static_cast<Bits>(value);
    lost |= static_cast<Bits>(value) ^ static_cast<Bits>(n);
  }
  const bool from_zero = range.least == 0 || std::is_unsigned_v<T>;
  return (from_zero ? seen & ~static_cast<Bits>(range.most) : lost) == 0;
}

bool convert_all(const ArrowType& type, const void* buffer, int64_t first,
                 int64_t count, IntegerRange range, int32_t* to) {
  switch (type.bytes * 2 + (type.is_signed ? 1 : 0)) {
    case 2:
      return convert<uint8_t>(buffer, first, count, range, to);
    case 3:
      return convert<int8_t>(buffer, first, count, range, to);
    case 4:
      return convert<uint16_t>(buffer, first, count, range, to);
    case 5:
      return convert<int16_t>(buffer, first, count, range, to);
    case 8:
      return convert<uint32_t>(buffer, first, count, range, to);
    case 9:
      return convert<int32_t>(buffer, first, count, range, to);
    case 16:
      return convert<uint64_t>(buffer, first, count, range, to);
    case 17:
      return convert<int64_t>(buffer, first, count, range, to);
    default:
      return false;
  }
}

// Appends all to `to`; returns whether all are in the range.
bool add_all(const ArrowItems& items, IntegerRange range,
             std::vector<int32_t>& to) {
  const ArrowType& type = *items.type;
  const void* const buffer = items.array->buffers[1];
  const int64_t first = items.array->offset + items.first;
  const size_t begin = to.size();
  const bool aligned = reinterpret_cast<uintptr_t>(buffer) % 4 == 0;
  if (type.bytes == 4 && type.is_signed && aligned) {
    // insert() copies without clearing the memory first.
    const auto* const from = static_cast<const int32_t*>(buffer) + first;
    to.insert(to.end(), from, from + items.count);
    if (range.least == INT32_MIN) return true;
    int32_t seen = 0;
    for (size_t i = begin; i < to.size(); ++i) seen |= to[i];
    return (seen & ~static_cast<int32_t>(range.most)) == 0;
  }
  to.resize(begin + static_cast<size_t>(items.count));
  return convert_all(type, buffer, first, items.count, range,
                     to.data() + begin);
}

bool may_have_nulls(const ArrowArray& array) {
  return array.null_count != 0 && array.n_buffers > 0 &&
         array.buffers[0] != nullptr;
}

}  // namespace

std::string ArrowPlace::words() const {
  if (first >= 0) return fmt::format("row {} of {}", first + row, name);
  return fmt::format("row {} of batch {} of {}", row, batch, name);
}

bool is_there(const ArrowArray& array, int64_t i) {
  return !may_have_nulls(array) || load_bit(array.buffers[0], array.offset + i);
}

Result<ArrowValue> arrow_value(const ArrowType& type, const ArrowArray& array,
                               int64_t i, std::string_view column,
                               const ArrowPlace& place) {
  if (type.kind == ArrowKind::nulls || !is_there(array, i)) {
    return ArrowValue{&type, nullptr, 0};
  }
  const int64_t at = array.offset + i;
  if (!type.dictionary) return ArrowValue{&type, &array, at};
  const Integer index = integer_at(type, array.buffers[1], at);
  const int64_t most = array.dictionary->length;
  if (index.beyond || index.value < 0 || index.value >= most) {
    return invalid("data",
                   "an index must be within its dictionary of {} values, found "
                   "{} for {} of {}",
                   most,
                   index.beyond
                       ? std::to_string(static_cast<uint64_t>(index.value))
                       : std::to_string(index.value),
                   column, place.words());
  }
  return arrow_value(*type.dictionary, *array.dictionary, index.value, column,
                     place);
}

ArrowItems items_of(const ArrowValue& list) {
  const ArrowType& type = *list.type;
  ArrowItems items{type.item.get(), list.array->children[0], 0, type.size};
  if (type.kind == ArrowKind::fixed_list) {
    items.first = list.at * type.size;
    return items;
  }
  const void* const offsets = list.array->buffers[1];
  items.first = type.bytes == 4 ? load<int32_t>(offsets, list.at)
                                : load<int64_t>(offsets, list.at);
  items.count = (type.bytes == 4 ? load<int32_t>(offsets, list.at + 1)
                                 : load<int64_t>(offsets, list.at + 1)) -
                items.first;
  return items;
}

std::string text_of(const ArrowValue& text) {
  constexpr int64_t kMaxBytes = 64;
  int64_t size = 0;
  const char* begin = nullptr;
  if (text.type->kind == ArrowKind::text_view) {
    // A view has 16 bytes: the size, then up to 12 characters or a pointer.
    const char* const view =
        static_cast<const char*>(text.array->buffers[1]) + 16 * text.at;
    size = load<int32_t>(view, 0);
    begin = view + 4;
    if (size > 12) return fmt::format("a text of {} bytes", size);
  } else {
    const void* const offsets = text.array->buffers[1];
    const bool narrow = text.type->bytes == 4;
    const int64_t first = narrow ? load<int32_t>(offsets, text.at)
                                 : load<int64_t>(offsets, text.at);
    size = (narrow ? load<int32_t>(offsets, text.at + 1)
                   : load<int64_t>(offsets, text.at + 1)) -
           first;
    begin = static_cast<const char*>(text.array->buffers[2]) + first;
    if (size > kMaxBytes) return fmt::format("a text of {} bytes", size);
  }
  return size > 0 ? std::string(begin, static_cast<size_t>(size)) : "";
}

Result<void> check_count(const ArrowItems& items, std::string_view column,
                         const ArrowPlace& place) {
  if (items.count <= kMaxDocumentTokens) return {};
  return over_limit("data", "{} must have at most {} elements, found {} for {}",
                    column, kMaxDocumentTokens, items.count, place.words());
}

Result<void> add_integers(const ArrowItems& items, IntegerRange range,
                          std::string_view column, const ArrowPlace& place,
                          std::vector<int32_t>& to) {
  if (auto e = check_count(items, column, place); !e) return e;
  if (items.count == 0) return {};
  const size_t begin = to.size();
  const ArrowType& type = *items.type;
  const bool plain = type.kind == ArrowKind::integer && !type.dictionary &&
                     !may_have_nulls(*items.array);
  if (plain && has_bits(range) && add_all(items, range, to)) return {};
  to.resize(begin);
  // Reads one by one, to follow dictionaries or to name the bad element.
  // Nothing is reserved: nulls take no bytes, so an array may claim any number
  // of them.
  for (int64_t i = 0; i < items.count; ++i) {
    const auto called = [&] {
      return fmt::format("element {} of {} of {}", i, column, place.words());
    };
    auto value =
        arrow_value(type, *items.array, items.first + i, column, place);
    if (!value) return value.error();
    const auto refused = [&](std::string_view found) {
      return invalid("data",
                     "{} must be an integer of {} to {}, found {} for it",
                     called(), range.least, range.most, found);
    };
    if (value->is_null()) return refused("null");
    const Integer n =
        integer_at(*value->type, value->array->buffers[1], value->at);
    if (n.beyond) {
      return refused(
          fmt::format("the integer {}", static_cast<uint64_t>(n.value)));
    }
    if (n.value < range.least || n.value > range.most) {
      return refused(fmt::format("the integer {}", n.value));
    }
    to.push_back(static_cast<int32_t>(n.value));
  }
  return {};
}

}  // namespace tessera::data
