// picture/parts.cc: checks, counts, document spans, shaded cells.
#include "picture/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/fail.h"
#include "base/integers.h"
#include "picture/labels.h"
#include "plan/batch_state.h"

namespace tessera::picture {
namespace {

using Kind = DocumentSpan::Kind;

std::vector<DocumentSpan> spans_of(Ints ids) {
  std::vector<DocumentSpan> spans;
  const int64_t n = static_cast<int64_t>(ids.size());
  for (int64_t i = 0; i < n; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    // All negative ids count as the same padding.
    const Kind kind = id < 0 ? Kind::padding : Kind::document;
    if (!spans.empty() && spans.back().kind == kind &&
        (kind == Kind::padding || spans.back().id == id)) {
      spans.back().end = i + 1;
    } else {
      spans.push_back({i, i + 1, kind == Kind::padding ? -1 : id, kind, 0});
    }
  }
  return spans;
}

// Key spans cut and shifted to the positions of the queries.
std::vector<DocumentSpan> shift_spans(const std::vector<DocumentSpan>& keys,
                                      int64_t q_offset, int64_t q_len) {
  std::vector<DocumentSpan> spans;
  int64_t at = 0;
  for (const DocumentSpan& key : keys) {
    DocumentSpan s = key;
    s.begin = std::max<int64_t>(0, key.begin - q_offset);
    s.end = std::min(q_len, key.end - q_offset);
    if (s.begin >= s.end) continue;
    if (s.begin > at) spans.push_back({at, s.begin, 0, Kind::outside, 0});
    at = s.end;
    spans.push_back(s);
  }
  if (at < q_len) spans.push_back({at, q_len, 0, Kind::outside, 0});
  return spans;
}

Ints row_of(Ints all, int64_t row, int64_t width) {
  return all.subspan(static_cast<size_t>(row * width),
                     static_cast<size_t>(width));
}

}  // namespace

Result<void> check_input(const Input& input) {
  auto read = plan::read_batch(input.batch, "show");
  if (!read) return read.error();
  const Plan& plan = input.batch.plan();
  if (input.batch_row < 0 || input.batch_row >= plan.batch) {
    return invalid("show", "batch row is 0 to {}, found {}", plan.batch - 1,
                   input.batch_row);
  }
  if (input.head < 0 || input.head >= plan.heads) {
    return invalid("show", "plan head is 0 to {}, found {}", plan.heads - 1,
                   input.head);
  }
  return {};
}

Parts make_parts(const Input& input, int64_t batch_row, int64_t head) {
  const Plan& plan = input.batch.plan();
  const Facts& facts = input.batch.facts();
  const Worklist& w = plan.forward;
  Parts p;
  p.batch_row = batch_row;
  p.head = head;
  p.list = plan.list(batch_row, head);
  p.q_offset = facts.q_offsets
                   ? (*facts.q_offsets)[static_cast<size_t>(batch_row)]
                   : plan.kv_len - plan.q_len;
  for (int64_t r = 0; r < w.rows; ++r) {
    const int64_t q = std::min(plan.tile.q, plan.q_len - r * plan.tile.q);
    for (const Entry& e : w.row(p.list, r)) {
      (e.tile_class() == TileClass::full ? p.full : p.partial) += 1;
      p.paid +=
          q * std::min(plan.tile.kv, plan.kv_len - e.column() * plan.tile.kv);
    }
  }
  p.empty = w.rows * w.columns - p.active();
  p.pairs = plan.q_len * plan.kv_len;
  p.needed = plan.legal_pairs[static_cast<size_t>(p.list)];
  if (facts.doc_ids) {
    p.keys = spans_of(row_of(*facts.doc_ids, batch_row, plan.kv_len));
    p.queries = shift_spans(p.keys, p.q_offset, plan.q_len);
  }
  if (facts.q_doc_ids) {
    p.queries = spans_of(row_of(*facts.q_doc_ids, batch_row, plan.q_len));
  }
  std::unordered_map<int32_t, int64_t> order;
  for (auto* spans : {&p.keys, &p.queries}) {
    for (DocumentSpan& s : *spans) {
      if (s.kind != Kind::document) continue;
      const int64_t next = static_cast<int64_t>(order.size());
      s.order = order.try_emplace(s.id, next).first->second;
    }
  }
  p.documents = static_cast<int64_t>(order.size());
  return p;
}

std::vector<TileRun> tile_runs(std::span<const Entry> row) {
  std::vector<TileRun> runs;
  for (const Entry& e : row) {
    if (!runs.empty() && runs.back().end == e.column() &&
        runs.back().tile_class == e.tile_class()) {
      runs.back().end += 1;
    } else {
      runs.push_back({e.column(), e.column() + 1, e.tile_class()});
    }
  }
  return runs;
}

Cells make_cells(const Worklist& w, int64_t list, int64_t down,
                 int64_t across) {
  Cells g;
  g.down = down;
  g.across = across;
  g.rows = ceil_div(w.rows, down);
  g.columns = ceil_div(w.columns, across);
  g.cells.resize(static_cast<size_t>(g.rows * g.columns));
  for (int64_t r = 0; r < g.rows; ++r) {
    const int64_t high = std::min(down, w.rows - r * down);
    Cell* line = &g.cells[static_cast<size_t>(r * g.columns)];
    for (int64_t c = 0; c < g.columns; ++c) {
      line[c].total = high * std::min(across, w.columns - c * across);
    }
    for (int64_t t = r * down; t < r * down + high; ++t) {
      for (const Entry& e : w.row(list, t)) {
        Cell& cell = line[e.column() / across];
        (e.tile_class() == TileClass::full ? cell.full : cell.partial) += 1;
      }
    }
  }
  return g;
}

SpanRange spans_in(const std::vector<DocumentSpan>& spans, int64_t begin,
                   int64_t end) {
  const auto first = std::upper_bound(
      spans.begin(), spans.end(), begin,
      [](int64_t t, const DocumentSpan& s) { return t < s.end; });
  const auto last = std::lower_bound(
      first, spans.end(), end,
      [](const DocumentSpan& s, int64_t t) { return s.begin < t; });
  return {static_cast<size_t>(first - spans.begin()),
          static_cast<size_t>(last - first)};
}

std::string subtitle(const Input& input) {
  const Plan& p = input.batch.plan();
  std::string s = fmt::format(
      "{} {} x {} {}, {} x {} tiles of {} x {}", with_commas(p.q_len),
      p.q_len == 1 ? "query" : "queries", with_commas(p.kv_len),
      p.kv_len == 1 ? "key" : "keys", with_commas(p.forward.rows),
      with_commas(p.forward.columns), p.tile.q, p.tile.kv);
  if (p.batch > 1) {
    s += fmt::format(", batch row {} of {}", input.batch_row, p.batch);
  }
  if (p.heads > 1) {
    s += fmt::format(", plan head {} of {}", input.head, p.heads);
  }
  return s;
}

}  // namespace tessera::picture
