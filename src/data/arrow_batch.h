// data/arrow_batch.h: checks and reads the arrays of an Arrow stream.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/arrow_type.h"
#include "tessera/documents.h"

namespace tessera::data {

// Checks counts, pointers and offsets of an array and of all arrays within it.
// Errors end in `place`: "column input_ids of batch 2 of the stream".
Result<void> check_arrow_array(const ArrowType& type, const ArrowArray* array,
                               const std::string& place);
// Checks a batch itself: `columns` arrays, each as long as the batch.
Result<void> check_arrow_batch(const ArrowArray& batch, int64_t columns,
                               const std::string& place);

// The place that ends the errors of values; made into text only for an error.
struct ArrowPlace {
  int64_t row = 0;
  int64_t batch = 0;
  int64_t first = -1;  // row of the file where the batch begins; -1: no file
  std::string_view name;

  // "row 3 of batch 2 of the stream", "row 203 of 'a.parquet'"
  std::string words() const;
};

// A value of a checked array, with dictionaries followed; null has no array.
struct ArrowValue {
  const ArrowType* type = nullptr;
  const ArrowArray* array = nullptr;
  int64_t at = 0;  // index, including the array's offset

  bool is_null() const { return array == nullptr; }
};

// Whether value i of the array is not null; dictionaries are not followed.
bool is_there(const ArrowArray& array, int64_t i);

// Value i of an array of a column; an error if an index exceeds its dictionary.
Result<ArrowValue> arrow_value(const ArrowType& type, const ArrowArray& array,
                               int64_t i, std::string_view column,
                               const ArrowPlace& place);

// Values [first, first + count) of the array in a list.
struct ArrowItems {
  const ArrowType* type = nullptr;
  const ArrowArray* array = nullptr;
  int64_t first = 0;
  int64_t count = 0;
};
ArrowItems items_of(const ArrowValue& list);

// The characters of a text; for a text longer than 64 bytes, only its size.
std::string text_of(const ArrowValue& text);

// An error if a document may not have that many items.
Result<void> check_count(const ArrowItems& items, std::string_view column,
                         const ArrowPlace& place);

struct IntegerRange {
  int64_t least, most;
};
// Appends the integers to `to`. `column` and `place` name them in errors.
Result<void> add_integers(const ArrowItems& items, IntegerRange range,
                          std::string_view column, const ArrowPlace& place,
                          std::vector<int32_t>& to);

}  // namespace tessera::data
