// data/plain_line.h: a line of JSON as most are, read in one pass with no tree.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "data/document_fields.h"

namespace tessera::data {

// What lies in the line goes with it.
struct PlainLine {
  FieldSet known;
  // By field; pairs one after another.
  std::array<std::vector<int32_t>, kFields> numbers;
  std::string_view chunk_unit;
  std::set<std::string_view> others;  // names of fields without a column
};

// None where the line is no object, or where anything in it is not plain: a
// string that is not printable ASCII or has a backslash, a number that is no
// int32, null for a field, a key given twice. Whoever reads all of JSON then
// says what it is.
std::optional<PlainLine> read_plain_line(std::string_view line);

}  // namespace tessera::data
