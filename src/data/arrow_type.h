// data/arrow_type.h: the type of a column of an Arrow stream, from its schema.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/document_fields.h"
#include "tessera/documents.h"

namespace tessera::data {

enum class ArrowKind : uint8_t {
  other,  // not usable for documents
  nulls,
  boolean,
  integer,
  list,
  fixed_list,
  text,
  text_view,
};

struct ArrowType {
  ArrowKind kind = ArrowKind::other;
  std::string words;       // for errors: the formats, outermost first
  int64_t bytes = 0;       // of an integer, or of an offset of lists or texts
  bool is_signed = false;  // of an integer
  int64_t size = 0;        // of a fixed list
  std::unique_ptr<ArrowType> item;        // of a list
  std::unique_ptr<ArrowType> dictionary;  // set for indices: their values' type

  // The type behind all dictionaries.
  const ArrowType& values() const {
    return dictionary ? dictionary->values() : *this;
  }
};

// The schema's children must not be null.
bool has_column(const ArrowSchema& schema, std::string_view name);
// Accepts any schema; a type that is not known is `other`.
ArrowType arrow_type_of(const ArrowSchema* schema);

// An error if the field cannot hold this type. `name` is the stream's.
Result<ArrowType> read_arrow_type(const ArrowSchema& schema, Field field,
                                  std::string_view name);

}  // namespace tessera::data
