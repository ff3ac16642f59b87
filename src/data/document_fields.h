// data/document_fields.h: one document of any input format, field by field, and
// the rules that hold in all formats.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/documents.h"

namespace tessera::data {

enum class Field : uint8_t {
  input_ids,
  loss_mask,
  structure_ids,
  dep_levels,
  ast_depth,
  sibling_index,
  node_type,
  chunk_starts,
  chunk_ends,
  chunk_kinds,
  chunk_unit,
  token_spans,
  call_edges,
  type_edges,
};
inline constexpr size_t kFields = 14;
using FieldSet = std::bitset<kFields>;

std::string_view name_of(Field field);
std::optional<Field> field_called(std::string_view name);
// Records the name of a field that has no column; at most 64 names.
void ignore(std::string_view name, std::set<std::string>& ignored);

// An error if the input is packed rows, that is, has every required column of
// rows; documents would keep only their tokens. `has` says what exists.
Result<void> refuse_rows(const std::function<bool(std::string_view name)>& has,
                         std::string_view place);

// Errors name the field, the element and the place.
class DocumentFields {
 public:
  virtual ~DocumentFields() = default;
  virtual bool has(Field field) const = 0;
  // Appends integers of least to most to `to`. This function and the next two
  // are called only for fields that the document has.
  virtual Result<void> numbers(Field field, int64_t least, int64_t most,
                               std::vector<int32_t>& to) const = 0;
  // Appends pairs of integers, which are 0 or more.
  virtual Result<void> pairs(Field field, std::vector<int32_t>& to) const = 0;
  virtual Result<std::string> text(Field field) const = 0;
  // Errors end in this: "line 3 of 'a.jsonl'".
  virtual std::string place() const = 0;
};

// After an error, `into` is valid only up to its previous documents.
Result<void> add_document(const DocumentFields& fields, Documents& into);

// Adds one document of `from`, as add_document() would. `fields` are those the
// document had itself; defaults in other columns are not copied.
void copy_document(const Documents& from, size_t document, FieldSet fields,
                   Documents& into);

}  // namespace tessera::data
