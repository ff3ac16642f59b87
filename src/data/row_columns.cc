// data/row_columns.cc: the schema of a packed row, in one table of columns.
#include <algorithm>

#include "base/fail.h"
#include "data/row_file.h"
#include "tessera/data.h"

namespace tessera {
namespace {

constexpr auto kRow = RowUnit::row;
constexpr auto kToken = RowUnit::token;
constexpr auto kChunk = RowUnit::chunk;
constexpr auto kEdge = RowUnit::edge;
constexpr auto kI32 = Dtype::i32;
constexpr std::string_view kOwn = "as the document says";

// name, unit, dtype, required, padded with the pad id, padding, about.
constexpr std::array<RowColumnSpec, kRowColumns> kColumns = {{
    {"input_ids", kToken, kI32, true, true, 0, "the token"},
    {"target_ids", kToken, kI32, true, true, 0,
     "the next token of its document; the pad id at the document's end"},
    {"loss_mask", kToken, kI32, true, false, 0, "1 where the target counts"},
    {"doc_ids", kToken, kI32, true, false, -1,
     "0, 1, 2, ... over the valid tokens"},
    {"valid_token_count", kRow, kI32, true, false, 0, "tokens before padding"},
    {"num_docs", kRow, kI32, true, false, 0, "documents in the row"},
    {"positions", kToken, kI32, false, false, 0,
     "the token's place in its document"},
    {"structure_ids", kToken, kI32, false, false, 0, kOwn},
    {"dep_levels", kToken, kI32, false, false, 0, kOwn},
    {"ast_depth", kToken, kI32, false, false, 0, kOwn},
    {"sibling_index", kToken, kI32, false, false, 0, kOwn},
    {"node_type", kToken, kI32, false, false, 0, kOwn},
    {"chunk_starts", kChunk, kI32, false, false, -1, "its first token"},
    {"chunk_ends", kChunk, kI32, false, false, -1, "one past its last token"},
    {"chunk_kinds", kChunk, kI32, false, false, 0, kOwn},
    {"num_chunks", kRow, kI32, false, false, 0, "chunks in the row"},
    {"call_edges", kEdge, kI32, false, false, -1, "from chunk, to chunk"},
    {"num_call_edges", kRow, kI32, false, false, 0, "edges in the row"},
    {"type_edges", kEdge, kI32, false, false, -1, "from chunk, to chunk"},
    {"num_type_edges", kRow, kI32, false, false, 0, "edges in the row"},
}};

}  // namespace

std::span<const RowColumnSpec> row_columns() { return kColumns; }

const RowColumnSpec& spec_of(RowColumn column) {
  return kColumns[static_cast<size_t>(column)];
}

RowShape RowShape::of(int64_t tokens) {
  const int64_t chunks = std::max<int64_t>(128, tokens / 32);
  return {tokens, chunks, 2 * chunks};
}

int64_t RowShape::size(RowColumn column) const {
  switch (spec_of(column).unit) {
    case RowUnit::row:
      return 1;
    case RowUnit::token:
      return tokens;
    case RowUnit::chunk:
      return max_chunks;
    case RowUnit::edge:
      return 2 * max_edges;
  }
  return 0;
}

std::vector<int64_t> RowShape::array(RowColumn column, int64_t rows) const {
  switch (spec_of(column).unit) {
    case RowUnit::row:
      return {rows};
    case RowUnit::token:
      return {rows, tokens};
    case RowUnit::chunk:
      return {rows, max_chunks};
    case RowUnit::edge:
      return {rows, max_edges, 2};
  }
  return {};
}

int64_t data::numbers_of_row(const RowShape& shape) {
  int64_t numbers = 0;
  for (size_t c = 0; c < kRowColumns; ++c) {
    numbers += shape.size(static_cast<RowColumn>(c));
  }
  return numbers;
}

Result<void> data::check_size(const RowShape& shape, int64_t rows,
                              std::string_view name) {
  if (shape.tokens < 1 || shape.tokens > kMaxRowTokens) {
    return invalid("data", "a row must have 1 to {} tokens, found {} for {}",
                   kMaxRowTokens, shape.tokens, name);
  }
  for (const int64_t n : {shape.max_chunks, shape.max_edges}) {
    if (n < 0 || n > kMaxRowChunks) {
      return invalid("data",
                     "a row must have room for 0 to {} chunks and edges, found "
                     "{} for {}",
                     kMaxRowChunks, n, name);
    }
  }
  const int64_t numbers = numbers_of_row(shape);
  if (rows < 0 || rows > kMaxRowNumbers / numbers) {
    return over_limit("data",
                      "rows of {} numbers must be 0 to {}, found {} for {}",
                      numbers, kMaxRowNumbers / numbers, rows, name);
  }
  return {};
}

Result<void> data::check_filled(const RowShape& shape, RowColumn column,
                                std::string_view name) {
  const int64_t usual = RowShape::of(shape.tokens).size(column);
  if (shape.size(column) <= usual) return {};
  return invalid("data",
                 "column {} must be there where a row has more than {} numbers "
                 "of it, found none for {} of {}",
                 spec_of(column).name, usual, shape.size(column), name);
}

Result<Rows> Rows::make(const RowShape& shape, int64_t rows, int32_t pad_id) {
  if (auto e = data::check_size(shape, rows); !e) return e.error();
  Rows made{shape, rows, pad_id, {}};
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    const RowColumnSpec& spec = kColumns[c];
    made.columns[c].assign(static_cast<size_t>(rows * shape.size(column)),
                           spec.pad_id ? pad_id : spec.padding);
  }
  return made;
}

std::span<int32_t> Rows::row(RowColumn column, int64_t r) {
  const int64_t n = shape.size(column);
  return {columns[static_cast<size_t>(column)].data() + r * n,
          static_cast<size_t>(n)};
}

std::span<const int32_t> Rows::row(RowColumn column, int64_t r) const {
  const int64_t n = shape.size(column);
  return {columns[static_cast<size_t>(column)].data() + r * n,
          static_cast<size_t>(n)};
}

Facts Rows::facts() const {
  Facts facts;
  facts.doc_ids = Ints(column(RowColumn::doc_ids));
  facts.valid_token_counts = Ints(column(RowColumn::valid_token_count));
  return facts;
}

}  // namespace tessera
