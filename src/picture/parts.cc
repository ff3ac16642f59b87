// picture/parts.cc: checks, counts, document spans, shaded cells.
#include "picture/parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/fail.h"
#include "base/integers.h"
#include "picture/labels.h"

namespace tessera::picture {
namespace {

using Kind = DocumentSpan::Kind;

std::vector<DocumentSpan> spans_of(Ints ids) {
  std::vector<DocumentSpan> spans;
  const int64_t n = static_cast<int64_t>(ids.size());
  for (int64_t i = 0; i < n; ++i) {
    const int32_t id = ids[static_cast<size_t>(i)];
    // All negative ids are padding alike.
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

// Key spans as the queries at those positions see them.
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

Result<void> check_ids(const char* name, const std::optional<Ints>& ids,
                       int64_t batch, int64_t length) {
  if (ids && static_cast<int64_t>(ids->size()) != batch * length) {
    return invalid("show", "{} has one id for each of {} tokens, found {}",
                   name, batch * length, ids->size());
  }
  return {};
}

Result<void> check_worklist(const Plan& plan) {
  const Worklist& w = plan.forward;
  const bool sized =
      plan.batch >= 1 && plan.heads >= 1 && plan.q_len >= 1 &&
      plan.kv_len >= 1 && plan.batch <= kMaxBatch && plan.heads <= kMaxTiles &&
      plan.q_len <= kMaxTokens && plan.kv_len <= kMaxTokens &&
      plan.tile.q >= 1 && plan.tile.kv >= 1 &&
      w.lists == plan.batch * plan.heads &&
      w.rows == ceil_div(plan.q_len, plan.tile.q) &&
      w.columns == ceil_div(plan.kv_len, plan.tile.kv) &&
      w.lists <= kMaxTiles && w.rows * w.lists <= kMaxTiles &&
      static_cast<int64_t>(w.row_start.size()) == w.lists * w.rows + 1 &&
      static_cast<int64_t>(plan.legal_pairs.size()) == w.lists;
  if (!sized) {
    return invalid("show",
                   "a plan's lists agree with its lengths and tile, found {} "
                   "lists of {} x {} tiles for {} x {} tokens",
                   w.lists, w.rows, w.columns, plan.q_len, plan.kv_len);
  }
  uint32_t at = w.row_start[0];
  bool sound = at == 0 && w.row_start.back() == w.entries.size();
  for (uint32_t start : w.row_start) {
    sound = sound && start >= at && start <= w.entries.size();
    at = start;
  }
  for (int64_t l = 0; sound && l < w.lists; ++l) {
    for (int64_t r = 0; sound && r < w.rows; ++r) {
      int64_t last = -1;
      for (const Entry& e : w.row(l, r)) {
        sound = sound && e.column() > last && e.column() < w.columns &&
                (e.word & 3) >= 1 && (e.word & 3) <= 2;
        last = e.column();
      }
    }
  }
  if (!sound) {
    return invalid("show",
                   "a worklist row holds ascending columns of partial or full "
                   "tiles, found {} for {} entries",
                   "a broken row", w.entries.size());
  }
  return {};
}

}  // namespace

Result<void> check_input(const Input& input) {
  const Plan& plan = input.plan;
  if (Result<void> r = check_worklist(plan); !r) return r;
  if (input.batch_row < 0 || input.batch_row >= plan.batch) {
    return invalid("show", "batch row is 0 to {}, found {}", plan.batch - 1,
                   input.batch_row);
  }
  if (input.head < 0 || input.head >= plan.heads) {
    return invalid("show", "plan head is 0 to {}, found {}", plan.heads - 1,
                   input.head);
  }
  const Facts& f = input.facts;
  if (Result<void> r = check_ids("doc_ids", f.doc_ids, plan.batch, plan.kv_len);
      !r) {
    return r;
  }
  if (Result<void> r =
          check_ids("q_doc_ids", f.q_doc_ids, plan.batch, plan.q_len);
      !r) {
    return r;
  }
  if (f.q_offsets && static_cast<int64_t>(f.q_offsets->size()) != plan.batch) {
    return invalid("show", "q_offsets has one for each of {} rows, found {}",
                   plan.batch, f.q_offsets->size());
  }
  return {};
}

Parts make_parts(const Input& input, int64_t batch_row, int64_t head) {
  const Plan& plan = input.plan;
  const Facts& facts = input.facts;
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
  const Plan& p = input.plan;
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
