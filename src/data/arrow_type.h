// data/arrow_type.h: what a column of an Arrow stream holds, from its schema.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/document_fields.h"
#include "tessera/documents.h"

namespace tessera::data {

enum class ArrowKind : uint8_t {
  other,  // nothing that a document is made of
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
  std::unique_ptr<ArrowType> dictionary;  // what the integers are numbers of

  // Without dictionaries.
  const ArrowType& values() const {
    return dictionary ? dictionary->values() : *this;
  }
};

// Of a schema whose children are there.
bool has_column(const ArrowSchema& schema, std::string_view name);
// Of any schema; what is not known is `other`.
ArrowType arrow_type_of(const ArrowSchema* schema);

// An error where the field cannot be made of it. `name` is the stream's.
Result<ArrowType> read_arrow_type(const ArrowSchema& schema, Field field,
                                  std::string_view name);

}  // namespace tessera::data
