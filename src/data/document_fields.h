// data/document_fields.h: one document as a door brings it, field by field, and
// the rules that hold for it at every door.
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
// Keeps the name of a field that no row has a place for; the first 64.
void ignore(std::string_view name, std::set<std::string>& ignored);

// Documents are no packed rows, which have every column that is required of
// such and would lose all but their tokens. `has` tells which columns there
// are.
Result<void> refuse_rows(const std::function<bool(std::string_view name)>& has,
                         std::string_view place);

// Errors name field, element and place.
class DocumentFields {
 public:
  virtual ~DocumentFields() = default;
  virtual bool has(Field field) const = 0;
  // Adds integers of least to most to `to`. Called only where it has the field,
  // as the next two are.
  virtual Result<void> numbers(Field field, int64_t least, int64_t most,
                               std::vector<int32_t>& to) const = 0;
  // Adds pairs of integers of 0 and more.
  virtual Result<void> pairs(Field field, std::vector<int32_t>& to) const = 0;
  virtual Result<std::string> text(Field field) const = 0;
  // Ends the errors: "line 3 of 'a.jsonl'".
  virtual std::string place() const = 0;
};

// On an error `into` is unspecified behind the documents that it had.
Result<void> add_document(const DocumentFields& fields, Documents& into);

// Adds one of other documents, as add_document adds it. `fields` are those that
// it had: what fills its columns because others have them is not copied.
void copy_document(const Documents& from, size_t document, FieldSet fields,
                   Documents& into);

}  // namespace tessera::data
