// data/json_document.h: one line of JSON as a document.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "data/document_fields.h"
#include "tessera/documents.h"

namespace tessera::data {

// The fields that it has. `place` ends the errors: "line 3 of 'a.jsonl'". On an
// error `into` is unspecified behind the documents that it had. Fields without
// a column are added to `ignored`.
Result<FieldSet> add_json_document(std::string_view line,
                                   std::string_view place, Documents& into,
                                   std::set<std::string>& ignored);

}  // namespace tessera::data
