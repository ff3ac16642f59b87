// model/row_checks.cc: checks shapes, ids and positions of rows.
#include "model/row_checks.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "model/columns.h"

namespace tessera::model {
namespace {

Result<void> check_ids(const Rows& rows, int64_t first, RowColumn column,
                       int64_t count) {
  const std::vector<int32_t>& ids = rows.column(column);
  const auto tokens = static_cast<size_t>(rows.shape.tokens);
  const auto start = static_cast<size_t>(first);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < count) continue;
    return invalid(
        "train",
        "{} must be 0 to {}, as the model has ids, found {} for row {}, token "
        "{}",
        spec_of(column).name, count - 1, ids[i], start + i / tokens,
        i % tokens);
  }
  return {};
}

// RoPE needs positions: rows without them, all 0, would not be turned.
Result<void> check_positions(const Rows& rows, int64_t first) {
  const auto& positions = rows.column(RowColumn::positions);
  const auto& documents = rows.column(RowColumn::doc_ids);
  const auto tokens = static_cast<size_t>(rows.shape.tokens);
  for (size_t i = 0; i < positions.size(); ++i) {
    const bool goes_on = i % tokens != 0 && documents[i] >= 0 &&
                         documents[i] == documents[i - 1];
    if (!goes_on || int64_t{positions[i - 1]} + 1 == positions[i]) continue;
    return invalid("train",
                   "positions must rise by 1 within a document, found {} after "
                   "{} for row {}, token {}",
                   positions[i], positions[i - 1],
                   static_cast<size_t>(first) + i / tokens, i % tokens);
  }
  return {};
}

// The router of a clustered layer pools only a block's last document, so each
// document must be one run of tokens.
Result<void> check_runs(const Rows& rows, int64_t first) {
  const auto& documents = rows.column(RowColumn::doc_ids);
  const auto tokens = static_cast<size_t>(rows.shape.tokens);
  for (size_t i = 0; i < documents.size(); ++i) {
    if (i % tokens == 0 || documents[i] < 0) continue;
    // The greatest id so far, unless padding stands within the row.
    const int32_t before = documents[i - 1];
    if (before >= 0 && documents[i] >= before) continue;
    return invalid("train",
                   "documents must be runs of tokens that rise where a layer "
                   "is clustered, found {} after {} for row {}, token {}",
                   documents[i], before,
                   static_cast<size_t>(first) + i / tokens, i % tokens);
  }
  return {};
}

}  // namespace

std::vector<TakenColumn> columns_of(const ModelConfig& m) {
  std::vector<TakenColumn> out;
  for (const auto& [column, ids] :
       {std::pair(RowColumn::input_ids, m.vocab),
        std::pair(RowColumn::target_ids, m.vocab),
        std::pair(RowColumn::loss_mask, int64_t{0}),
        std::pair(RowColumn::positions, int64_t{0})}) {
    out.push_back({std::string(spec_of(column).name), column, ids});
  }
  for (const auto& [name, ids] : m.columns) {
    out.push_back({name, *find_column(name), ids});
  }
  return out;
}

Result<void> check_rows_of(const TrainOptions& o,
                           const std::vector<TakenColumn>& columns,
                           const Rows& rows, int64_t first) {
  if (rows.rows != o.rows || rows.shape.tokens != o.tokens) {
    return invalid("train", "a step takes {} rows of {} tokens, found {} of {}",
                   o.rows, o.tokens, rows.rows, rows.shape.tokens);
  }
  for (const TakenColumn& c : columns) {
    if (c.ids == 0) continue;
    if (auto e = check_ids(rows, first, c.column, c.ids); !e) return e;
  }
  if (auto e = check_positions(rows, first); !e) return e;
  const bool clustered = std::ranges::any_of(
      o.model.routes, [](const LayerRoute& r) { return r.top > 0; });
  return clustered ? check_runs(rows, first) : Result<void>();
}

}  // namespace tessera::model
