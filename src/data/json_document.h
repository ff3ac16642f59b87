// data/json_document.h: parses one line of JSON as a document.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "data/document_fields.h"
#include "tessera/documents.h"

namespace tessera::data {

// Returns the fields that the document has. Errors end in `place`: "line 3 of
// 'a.jsonl'". After an error, `into` is valid only up to its previous
// documents. Names of fields without a column are added to `ignored`.
Result<FieldSet> add_json_document(std::string_view line,
                                   std::string_view place, Documents& into,
                                   std::set<std::string>& ignored);

}  // namespace tessera::data
