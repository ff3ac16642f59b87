// data/arrow_batch.h: the arrays of an Arrow stream: checked, then read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/arrow_type.h"
#include "tessera/documents.h"

namespace tessera::data {

// What can be checked of an array of this type with all that lies in it:
// counts, pointers, offsets. `place` ends the errors: "column input_ids of
// batch 2 of the stream".
Result<void> check_arrow_array(const ArrowType& type, const ArrowArray* array,
                               const std::string& place);
// As much of a batch's own: `columns` arrays, each as long as the batch.
Result<void> check_arrow_batch(const ArrowArray& batch, int64_t columns,
                               const std::string& place);

// What ends the errors of values: made into words only then.
struct ArrowPlace {
  int64_t row = 0;
  int64_t batch = 0;
  int64_t first = -1;  // row of the file that the batch begins with, if of one
  std::string_view name;

  // "row 3 of batch 2 of the stream", "row 203 of 'a.parquet'"
  std::string words() const;
};

// A value of a checked array; no array stands for null. Dictionaries are
// followed.
struct ArrowValue {
  const ArrowType* type = nullptr;
  const ArrowArray* array = nullptr;
  int64_t at = 0;  // with the array's offset

  bool is_null() const { return array == nullptr; }
};

// Whether value i of an array is there; dictionaries are not followed.
bool is_there(const ArrowArray& array, int64_t i);

// Value i of an array of a column. An index beyond its dictionary is an error.
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

// The characters of a text; of one that is longer than 64, how many there are.
std::string text_of(const ArrowValue& text);

// That a document may have as many.
Result<void> check_count(const ArrowItems& items, std::string_view column,
                         const ArrowPlace& place);

struct IntegerRange {
  int64_t least, most;
};
// Adds integers to `to`. `column` and `place` are what errors call them.
Result<void> add_integers(const ArrowItems& items, IntegerRange range,
                          std::string_view column, const ArrowPlace& place,
                          std::vector<int32_t>& to);

}  // namespace tessera::data
