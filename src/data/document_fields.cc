// data/document_fields.cc: the rules for a document of any input format.
#include "data/document_fields.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/huge_pages.h"
#include "data/chunk_checks.h"

namespace tessera::data {
namespace {

constexpr std::string_view kNames[kFields] = {
    "input_ids",  "loss_mask",     "structure_ids", "dep_levels",
    "ast_depth",  "sibling_index", "node_type",     "chunk_starts",
    "chunk_ends", "chunk_kinds",   "chunk_unit",    "token_spans",
    "call_edges", "type_edges"};
constexpr Field kStructure[] = {Field::structure_ids, Field::dep_levels,
                                Field::ast_depth, Field::sibling_index,
                                Field::node_type};
constexpr Field kEdges[] = {Field::call_edges, Field::type_edges};
constexpr Field kChunks[] = {Field::chunk_starts, Field::chunk_ends,
                             Field::chunk_kinds, Field::chunk_unit,
                             Field::token_spans};

// Extends a column to `first`, where a document that has the column begins.
// Documents before it without the column get `absent`.
void begin_column(const Documents& into, size_t first, int32_t absent,
                  std::vector<int32_t>& to) {
  // Growing would copy the column repeatedly, so it gets room as tokens do.
  if (to.empty()) reserve_huge(to, into.input_ids.capacity());
  to.resize(first, absent);
}

class Adding {
 public:
  Adding(const DocumentFields& fields, Documents& into)
      : fields_(fields), into_(into) {}

  Result<void> all() {
    const auto first = static_cast<size_t>(into_.tokens());
    if (!fields_.has(Field::input_ids)) {
      return invalid("data",
                     "a document must have the column input_ids, found none "
                     "for {}",
                     fields_.place());
    }
    if (auto e =
            fields_.numbers(Field::input_ids, 0, INT32_MAX, into_.input_ids);
        !e) {
      return e;
    }
    tokens_ = static_cast<int64_t>(into_.input_ids.size() - first);
    if (tokens_ > kMaxDocumentTokens) {
      return over_limit("data",
                        "a document must have at most {} tokens, found {} for "
                        "{}",
                        kMaxDocumentTokens, tokens_, fields_.place());
    }
    if (auto e = column(Field::loss_mask, 0, 1, 1, into_.loss_mask, first);
        !e) {
      return e;
    }
    for (size_t s = 0; s < Documents::kStructures; ++s) {
      auto e = column(kStructure[s], INT32_MIN, INT32_MAX, 0,
                      into_.structure[s], first);
      if (!e) return e;
    }
    if (auto e = chunks(); !e) return e;
    for (size_t kind = 0; kind < into_.edges.size(); ++kind) {
      if (auto e = edges(kind); !e) return e;
    }
    into_.close_document();
    return {};
  }

 private:
  // Adds one number per token, if the document has the column.
  Result<void> column(Field field, int64_t least, int64_t most, int32_t absent,
                      std::vector<int32_t>& to, size_t first) const {
    if (!fields_.has(field)) return {};
    begin_column(into_, first, absent, to);
    if (auto e = fields_.numbers(field, least, most, to); !e) return e;
    const auto found = static_cast<int64_t>(to.size() - first);
    if (found == tokens_) return {};
    return invalid("data",
                   "{} must be as long as the tokens, {}, found {} for {}",
                   name_of(field), tokens_, found, fields_.place());
  }

  Result<void> chunks() const {
    const auto has = [&](Field field) { return fields_.has(field); };
    if (std::none_of(std::begin(kChunks), std::end(kChunks), has)) return {};
    ChunkColumns chunks;
    for (const auto& [field, to] :
         {std::pair{Field::chunk_starts, &chunks.starts},
          std::pair{Field::chunk_ends, &chunks.ends},
          std::pair{Field::chunk_kinds, &chunks.kinds}}) {
      if (!has(field)) continue;
      if (auto e = fields_.numbers(field, 0, INT32_MAX, *to); !e) return e;
    }
    if (has(Field::token_spans)) {
      chunks.token_spans.emplace();
      if (auto e = fields_.pairs(Field::token_spans, *chunks.token_spans); !e) {
        return e;
      }
    }
    if (has(Field::chunk_unit)) {
      auto unit = fields_.text(Field::chunk_unit);
      if (!unit) return unit.error();
      chunks.unit = std::move(*unit);
    }
    return add_chunks(std::move(chunks), tokens_, fields_.place(), into_);
  }

  Result<void> edges(size_t kind) const {
    if (!fields_.has(kEdges[kind])) return {};
    std::vector<int32_t> ends;
    if (auto e = fields_.pairs(kEdges[kind], ends); !e) return e;
    return add_edges(ends, kind, name_of(kEdges[kind]), fields_.place(), into_);
  }

  const DocumentFields& fields_;
  Documents& into_;
  int64_t tokens_ = 0;
};

}  // namespace

std::string_view name_of(Field field) {
  return kNames[static_cast<size_t>(field)];
}

std::optional<Field> field_called(std::string_view name) {
  const auto at = std::find(std::begin(kNames), std::end(kNames), name);
  if (at == std::end(kNames)) return std::nullopt;
  return static_cast<Field>(at - std::begin(kNames));
}

void ignore(std::string_view name, std::set<std::string>& ignored) {
  constexpr size_t kMaxNames = 64;  // untrusted: there may be any number
  if (ignored.size() < kMaxNames) ignored.emplace(name);
}

Result<void> refuse_rows(const std::function<bool(std::string_view)>& has,
                         std::string_view place) {
  std::vector<std::string_view> required;
  for (const RowColumnSpec& spec : row_columns()) {
    if (!spec.required) continue;
    if (!has(spec.name)) return {};
    required.push_back(spec.name);
  }
  return invalid("data",
                 "documents must not be packed rows already, found the columns "
                 "of such ({}) for {}",
                 fmt::join(required, ", "), place);
}

Result<void> add_document(const DocumentFields& fields, Documents& into) {
  return Adding(fields, into).all();
}

void copy_document(const Documents& from, size_t document, FieldSet fields,
                   Documents& into) {
  const auto first = static_cast<size_t>(into.tokens());
  const auto copy = [document](const std::vector<int32_t>& values,
                               const std::vector<int64_t>& start,
                               std::vector<int32_t>& to, int64_t each = 1) {
    to.insert(to.end(), values.begin() + each * start[document],
              values.begin() + each * start[document + 1]);
  };
  const auto column = [&](Field field, int32_t absent,
                          const std::vector<int32_t>& values,
                          std::vector<int32_t>& to) {
    if (!fields.test(static_cast<size_t>(field))) return;
    begin_column(into, first, absent, to);
    copy(values, from.token_start, to);
  };
  copy(from.input_ids, from.token_start, into.input_ids);
  column(Field::loss_mask, 1, from.loss_mask, into.loss_mask);
  for (size_t s = 0; s < Documents::kStructures; ++s) {
    column(kStructure[s], 0, from.structure[s], into.structure[s]);
  }
  copy(from.chunk_starts, from.chunk_start, into.chunk_starts);
  copy(from.chunk_ends, from.chunk_start, into.chunk_ends);
  copy(from.chunk_kinds, from.chunk_start, into.chunk_kinds);
  for (size_t kind = 0; kind < into.edges.size(); ++kind) {
    copy(from.edges[kind], from.edge_start[kind], into.edges[kind], 2);
  }
  into.close_document();
}

}  // namespace tessera::data
