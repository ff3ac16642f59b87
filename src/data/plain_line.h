// data/plain_line.h: parses the common form of a JSON line in one pass.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "data/document_fields.h"

namespace tessera::data {

// Views point into the line, which must outlive them.
struct PlainLine {
  FieldSet known;
  // By field; pairs are flattened.
  std::array<std::vector<int32_t>, kFields> numbers;
  std::string_view chunk_unit;
  std::set<std::string_view> others;  // names of fields without a column
};

// Nothing if the line is not an object or has something that is not plain: a
// string that is not printable ASCII or has a backslash, a number that is not
// int32, null for a field, or a duplicate key.
std::optional<PlainLine> read_plain_line(std::string_view line);

}  // namespace tessera::data
