// data/check_rows.cc: checks the rules for packed rows.
#include <string>

#include "base/fail.h"
#include "base/text.h"
#include "data/row_file.h"
#include "tessera/data.h"

namespace tessera {
namespace {

using enum RowColumn;

// Checks one row; errors end in the row's number and the file.
class RowCheck {
 public:
  RowCheck(const Rows& rows, int64_t r, int64_t number, std::string_view file)
      : rows_(rows), r_(r), number_(number), file_(file) {}

  Result<void> all() {
    if (auto e = counts(); !e) return e;
    if (auto e = ids(); !e) return e;
    if (auto e = loss(); !e) return e;
    if (auto e = tokens(); !e) return e;
    if (auto e = padding(); !e) return e;
    if (auto e = chunks(); !e) return e;
    if (auto e = edges(call_edges, num_call_edges); !e) return e;
    return edges(type_edges, num_type_edges);
  }

 private:
  std::span<const int32_t> of(RowColumn column) const {
    return rows_.row(column, r_);
  }
  int64_t number(RowColumn column) const { return of(column)[0]; }

  std::string place(int64_t at) const {
    return fmt::format("element {} of row {} of {}", at, number_, file_);
  }
  Error wrong(RowColumn column, std::string_view rule, int64_t found,
              int64_t at) const {
    return invalid("data", "{} {}, found {} for {}", spec_of(column).name, rule,
                   found, place(at));
  }

  Result<void> count(RowColumn column, int64_t most) const {
    if (number(column) >= 0 && number(column) <= most) return {};
    return invalid("data", "{} must be 0 to {}, found {} for row {} of {}",
                   spec_of(column).name, most, number(column), number_, file_);
  }

  Result<void> counts() const {
    const RowShape& shape = rows_.shape;
    if (auto e = count(valid_token_count, shape.tokens); !e) return e;
    if (auto e = count(num_chunks, shape.max_chunks); !e) return e;
    if (auto e = count(num_call_edges, shape.max_edges); !e) return e;
    return count(num_type_edges, shape.max_edges);
  }

  Result<void> ids() const {
    const std::span<const int32_t> id = of(doc_ids);
    const int64_t valid = number(valid_token_count);
    int32_t last = -1;
    for (int64_t t = 0; t < valid; ++t) {
      const int32_t here = id[static_cast<size_t>(t)];
      if (here != last && (here != last + 1)) {
        return wrong(doc_ids,
                     here < last ? "must not fall within the valid tokens"
                                 : "must count 0, 1, 2, ...",
                     here, t);
      }
      if (here < 0) return wrong(doc_ids, "must be 0 or more", here, t);
      last = here;
    }
    if (number(num_docs) != last + 1) {
      return invalid("data",
                     "num_docs must count the documents, {}, found {} for row "
                     "{} of {}",
                     last + 1, number(num_docs), number_, file_);
    }
    return {};
  }

  Result<void> loss() const {
    const std::span<const int32_t> mask = of(loss_mask);
    for (size_t t = 0; t < mask.size(); ++t) {
      if (mask[t] != 0 && mask[t] != 1) {
        return wrong(loss_mask, "must be 0 or 1", mask[t],
                     static_cast<int64_t>(t));
      }
    }
    return {};
  }

  // A target that does not count may be the pad id, which may be negative.
  Result<void> tokens() const {
    const std::span<const int32_t> input = of(input_ids);
    const std::span<const int32_t> target = of(target_ids);
    const std::span<const int32_t> mask = of(loss_mask);
    const auto valid = static_cast<size_t>(number(valid_token_count));
    for (size_t t = 0; t < valid; ++t) {
      if (input[t] < 0) {
        return wrong(input_ids, "must be 0 or more", input[t],
                     static_cast<int64_t>(t));
      }
      if (target[t] < 0 && (mask[t] == 1 || target[t] != rows_.pad_id)) {
        return wrong(target_ids,
                     "must be 0 or more, or the pad id where the loss is 0",
                     target[t], static_cast<int64_t>(t));
      }
    }
    return {};
  }

  // Behind the valid tokens, chunks and edges, columns must hold their padding.
  Result<void> padding() const {
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto column = static_cast<RowColumn>(c);
      const RowColumnSpec& spec = spec_of(column);
      int64_t used = 0;
      if (spec.unit == RowUnit::row) continue;
      if (spec.unit == RowUnit::token) used = number(valid_token_count);
      if (spec.unit == RowUnit::chunk) used = number(num_chunks);
      if (column == call_edges) used = 2 * number(num_call_edges);
      if (column == type_edges) used = 2 * number(num_type_edges);
      const int32_t expected = spec.pad_id ? rows_.pad_id : spec.padding;
      const std::span<const int32_t> values = of(column);
      for (size_t at = static_cast<size_t>(used); at < values.size(); ++at) {
        if (values[at] == expected) continue;
        return wrong(
            column,
            fmt::format("must be {} where the row has no more", expected),
            values[at], static_cast<int64_t>(at));
      }
    }
    return {};
  }

  Result<void> chunks() const {
    const int64_t valid = number(valid_token_count);
    const std::span<const int32_t> id = of(doc_ids);
    for (int64_t c = 0; c < number(num_chunks); ++c) {
      const int64_t start = of(chunk_starts)[static_cast<size_t>(c)];
      const int64_t end = of(chunk_ends)[static_cast<size_t>(c)];
      if (start < 0 || start >= valid) {
        return wrong(chunk_starts, "must be one of the row's valid tokens",
                     start, c);
      }
      if (end <= start || end > valid) {
        return wrong(chunk_ends,
                     "must be after the chunk's start and within the row's "
                     "valid tokens",
                     end, c);
      }
      if (id[static_cast<size_t>(start)] != id[static_cast<size_t>(end - 1)]) {
        return wrong(chunk_ends, "must stay in the document of its start", end,
                     c);
      }
    }
    return {};
  }

  // The document of a chunk; no chunk spans two documents.
  int32_t document_of(int32_t chunk) const {
    const int32_t start = of(chunk_starts)[static_cast<size_t>(chunk)];
    return of(doc_ids)[static_cast<size_t>(start)];
  }

  Result<void> edges(RowColumn column, RowColumn counter) const {
    const std::span<const int32_t> ends = of(column);
    int32_t from = 0;  // the document of an edge's first end
    for (int64_t at = 0; at < 2 * number(counter); ++at) {
      const int32_t chunk = ends[static_cast<size_t>(at)];
      if (chunk < 0 || chunk >= number(num_chunks)) {
        return wrong(column, "must join chunks of its row", chunk, at);
      }
      const int32_t document = document_of(chunk);
      if (at % 2 == 0) from = document;
      if (document != from) {
        return wrong(column,
                     fmt::format("must join chunks of one document, {}", from),
                     document, at);
      }
    }
    return {};
  }

  const Rows& rows_;
  int64_t r_;
  int64_t number_;  // in its file
  std::string_view file_;
};

}  // namespace

Result<void> data::check_rows_from(int64_t first, const Rows& rows,
                                   std::string_view file) {
  const std::string name = in_quotes(file);
  for (size_t c = 0; c < kRowColumns; ++c) {
    const auto column = static_cast<RowColumn>(c);
    const auto expected =
        static_cast<size_t>(rows.rows * rows.shape.size(column));
    if (rows.columns[c].size() != expected) {
      return invalid("data", "{} must hold {} numbers, found {} for {}",
                     spec_of(column).name, expected, rows.columns[c].size(),
                     name);
    }
  }
  for (int64_t r = 0; r < rows.rows; ++r) {
    if (auto e = RowCheck(rows, r, first + r, name).all(); !e) return e;
  }
  return {};
}

Result<void> check_rows(const Rows& rows, std::string_view file) {
  return data::check_rows_from(0, rows, file);
}

}  // namespace tessera
