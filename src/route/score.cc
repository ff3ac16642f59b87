// route/score.cc: fp32 scores as products of queries and packed pooled keys.
#include "route/score.h"

#include <algorithm>
#include <cstring>

#include "base/integers.h"
#include "route/numbers.h"

namespace tessera::routing {
namespace {

using Key = ScoreKeys::Key;

// Adjacent routing queries [begin, end) of one document.
struct QueryRun {
  size_t begin = 0, end = 0;
  int32_t document = 0;
  int64_t position = 0;  // largest position
};

std::vector<QueryRun> runs_of(std::span<const RoutingQuery> queries) {
  std::vector<QueryRun> out;
  for (size_t i = 0; i < queries.size(); ++i) {
    const RoutingQuery& q = queries[i];
    if (out.empty() || out.back().document != q.document) {
      out.push_back({i, i, q.document, q.position});
    }
    out.back().end = i + 1;
    out.back().position = std::max(out.back().position, q.position);
  }
  return out;
}

// The number of keys that count for a position: `last` ascends with the index.
int64_t keys_until(std::span<const Key> keys, int64_t position, int64_t end) {
  const auto it = std::partition_point(
      keys.begin(), keys.end(),
      [&](const Key& k) { return k.last <= position && k.index < end; });
  return it - keys.begin();
}

// A routing query's vector for one head: its query or its queries' mean.
void stage_query(const TensorView& q, const RoutingQuery& of, int64_t b,
                 int64_t head, ScoreScratch& scratch, float* to) {
  const auto bytes = static_cast<size_t>(q.dim) * sizeof(float);
  scratch.row.resize(static_cast<size_t>(q.dim));
  const auto row = [&](int32_t query) {
    return float_row(q, b, head, query, scratch.row.data());
  };
  if (of.more.empty()) {
    std::memcpy(to, row(of.query), bytes);
    return;
  }
  std::fill(to, to + q.dim, 0.0F);
  of.each([&](int32_t query) {
    const float* from = row(query);
    for (int64_t d = 0; d < q.dim; ++d) to[d] += from[d];
  });
  const auto count = static_cast<float>(of.more.size() + 1);
  for (int64_t d = 0; d < q.dim; ++d) to[d] /= count;
}

// Panels [begin, end), counted from the one with the document's first key.
struct Panels {
  int64_t begin = 0, end = 0;
};

// Scores of a run for panels, summed over heads in order, into scratch.dots.
// Row i is routing query begin + i; rows are `ldo` floats apart. The document's
// first key is at its lane.
void score_run(const ScoreTile& t, const QueryRun& run,
               std::span<const Panels> parts, int64_t ldo,
               ScoreScratch& scratch) {
  const auto rows = static_cast<int64_t>(run.end - run.begin);
  scratch.queries.resize(static_cast<size_t>(rows * t.q.dim));
  scratch.dots.resize(static_cast<size_t>(rows * ldo));
  for (int64_t h = 0; h < t.heads; ++h) {
    for (int64_t i = 0; i < rows; ++i) {
      stage_query(t.q, t.queries[run.begin + static_cast<size_t>(i)],
                  t.batch_row, t.first_head + h, scratch,
                  scratch.queries.data() + i * t.q.dim);
    }
    PanelProduct p;
    p.a = scratch.queries.data();
    p.rows = rows;
    p.lda = p.dim = t.q.dim;
    p.ldo = ldo;
    p.add = h > 0;
    for (const Panels& part : parts) {
      p.panels = t.keys.panels_of(run.document, t.kv_head) +
                 part.begin * t.q.dim * kPanelKeys;
      p.count = part.end - part.begin;
      p.out = scratch.dots.data() + part.begin * kPanelKeys;
      multiply_panels(t.isa, p);
    }
  }
}

// The candidates of one query: its document's keys and blocks, and its scores.
struct Scores {
  const ScoreKeys& keys;
  size_t document;
  const float* dots;
  int64_t until;  // keys of the document that count
  int32_t query;
};

// The first key of the document's block `b`, counted within the document.
int64_t first_key(const Scores& s, int64_t b) {
  const auto at = static_cast<size_t>(s.keys.block_start[s.document] + b);
  return s.keys.first_key[at] - s.keys.start[s.document];
}

bool any_nan(const float* x, int64_t n) {
  bool odd = false;
  for (int64_t i = 0; i < n; ++i) odd |= x[i] != x[i];
  return odd;
}

// Adds blocks [begin, end) of the document, up to the last key that counts.
void add_blocks(const Scores& s, int64_t begin, int64_t end, bool name_blocks,
                TileScores& out) {
  const auto base = static_cast<size_t>(s.keys.block_start[s.document]);
  const int32_t* first = s.keys.first_key.data() + base;
  const int32_t zero = s.keys.start[s.document];
  const int64_t key = first[begin] - zero;
  if (key >= s.until) return;
  // The last key that counts is in the last block.
  const auto last = static_cast<size_t>(zero + s.until - 1);
  end = std::min<int64_t>(end, s.keys.keys[last].block + 1);
  const int64_t stop = std::min<int64_t>(first[end] - zero, s.until);
  if (stop - key == end - begin) {  // one key each
    out.values.insert(out.values.end(), s.dots + key, s.dots + stop);
  } else {
    const size_t before = out.values.size();
    out.values.resize(before + static_cast<size_t>(end - begin));
    float* to = out.values.data() + before;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t from = first[b] - zero;
      const int64_t past = std::min<int64_t>(first[b + 1] - zero, stop);
      float best = s.dots[from];
      for (int64_t i = from + 1; i < past; ++i) {
        best = s.dots[i] > best ? s.dots[i] : best;
      }
      *to++ = best;
    }
  }
  out.products += stop - key;
  if (name_blocks) {
    const auto from = s.keys.blocks.begin() + static_cast<std::ptrdiff_t>(base);
    out.blocks.insert(out.blocks.end(), from + begin, from + end);
  }
  if (out.nan || !any_nan(s.dots + key, stop - key)) return;
  for (int64_t i = key; i < stop; ++i) {
    if (s.dots[i] == s.dots[i]) continue;
    const auto number = s.keys.keys[static_cast<size_t>(zero + i)].block;
    out.nan = {s.query, s.keys.blocks[base + static_cast<size_t>(number)]};
    return;
  }
}

void clear(const ScoreTile& tile, TileScores& out) {
  out.start.assign(1, 0);
  out.start.reserve(tile.queries.size() + 1);
  out.values.clear();
  out.blocks.clear();
  out.products = 0;
  out.nan.reset();
}

}  // namespace

ScoreKeys pack_score_keys(const PooledRow& pooled, const Compression& c,
                          int64_t block, int64_t kv_heads, int64_t dim) {
  ScoreKeys out;
  out.dim = dim;
  const size_t documents = pooled.start.size() - 1;
  std::vector<size_t> from;  // per key: its index in pooled.keys
  out.start = out.block_start = {0};
  for (size_t d = 0; d < documents; ++d) {
    for (int32_t i = pooled.start[d]; i < pooled.start[d + 1]; ++i) {
      const auto at = static_cast<size_t>(i);
      const PooledKey& key = pooled.keys[at];
      const int64_t begin = key.index * c.stride;
      if (begin / block != (begin + c.compression - 1) / block) continue;
      const auto number = static_cast<int32_t>(begin / block);
      const auto blocks =
          static_cast<int32_t>(out.blocks.size()) - out.block_start[d];
      const bool same = blocks > 0 && out.blocks.back() == number;
      if (!same) {
        out.blocks.push_back(number);
        out.first_key.push_back(static_cast<int32_t>(out.keys.size()));
      }
      out.keys.push_back({key.index, key.last, same ? blocks - 1 : blocks});
      from.push_back(at);
    }
    out.start.push_back(static_cast<int32_t>(out.keys.size()));
    out.block_start.push_back(static_cast<int32_t>(out.blocks.size()));
  }
  out.first_key.push_back(static_cast<int32_t>(out.keys.size()));
  const auto keys = static_cast<int64_t>(out.keys.size());
  out.panel_count = ceil_div(keys, kPanelKeys);
  const int64_t panel = dim * kPanelKeys;
  out.panels.assign(static_cast<size_t>(kv_heads * out.panel_count * panel), 0);
  const auto pooled_keys = static_cast<int64_t>(pooled.keys.size());
  for (int64_t h = 0; h < kv_heads; ++h) {
    for (int64_t i = 0; i < keys; ++i) {
      float* lane = out.panels.data() +
                    (h * out.panel_count + i / kPanelKeys) * panel +
                    i % kPanelKeys;
      const auto at = static_cast<int64_t>(from[static_cast<size_t>(i)]);
      const float* value = pooled.values.data() + (h * pooled_keys + at) * dim;
      for (int64_t n = 0; n < dim; ++n) lane[n * kPanelKeys] = value[n];
    }
  }
  return out;
}

std::vector<RoutingQuery> routing_queries(const RouteRow& row, RouteRule rule,
                                          int64_t begin, int64_t end,
                                          std::vector<size_t>& place) {
  std::vector<RoutingQuery> out;
  const bool together = rule == RouteRule::query_tile;
  if (together && place.size() < static_cast<size_t>(row.documents)) {
    place.resize(static_cast<size_t>(row.documents));
  }
  for (int64_t q = begin; q < end; ++q) {
    const int32_t document = row.query_document[static_cast<size_t>(q)];
    if (document < 0) continue;
    const auto query = static_cast<int32_t>(q);
    if (together) {
      // The document's routing query in `out`, if it has one.
      size_t& at = place[static_cast<size_t>(document)];
      if (at < out.size() && out[at].document == document) {
        out[at].position = q + row.q_offset;
        out[at].more.push_back(query);
        continue;
      }
      at = out.size();
    }
    out.push_back({document, query, q + row.q_offset, {}});
  }
  return out;
}

void score_tile(const ScoreTile& tile, ScoreScratch& scratch, TileScores& out) {
  clear(tile, out);
  for (const QueryRun& run : runs_of(tile.queries)) {
    const std::span<const Key> keys = tile.keys.keys_of(run.document);
    const int64_t most = keys_until(keys, run.position, tile.end);
    const int64_t lane = tile.keys.lane_of(run.document);
    const Panels all{0, most > 0 ? ceil_div(lane + most, kPanelKeys) : 0};
    const int64_t ldo = all.end * kPanelKeys;
    score_run(tile, run, {&all, 1}, ldo, scratch);
    for (size_t i = run.begin; i < run.end; ++i) {
      const RoutingQuery& query = tile.queries[i];
      const int64_t n = keys_until(keys.first(static_cast<size_t>(most)),
                                   query.position, tile.end);
      if (n > 0) {
        const Scores s{tile.keys, static_cast<size_t>(run.document),
                       scratch.dots.data() +
                           static_cast<int64_t>(i - run.begin) * ldo + lane,
                       n, query.query};
        add_blocks(s, 0, keys[static_cast<size_t>(n - 1)].block + 1, false,
                   out);
      }
      out.start.push_back(static_cast<int64_t>(out.values.size()));
    }
  }
}

namespace {

// The metas of a query; -1: an empty slot.
std::span<const int32_t> metas_of(const MetaChoice& choice, size_t query) {
  const auto k = static_cast<size_t>(choice.k);
  return choice.metas.subspan(query * k, k);
}

// The metas of all queries of a run, ascending without repeats.
void gather_metas(const MetaChoice& choice, const QueryRun& run,
                  std::vector<int32_t>& metas) {
  metas.clear();
  for (size_t i = run.begin; i < run.end; ++i) {
    const auto own = metas_of(choice, i);
    // Most metas are also those of the previous query.
    const auto before = i > run.begin ? metas_of(choice, i - 1) : own.first(0);
    for (size_t n = 0; n < own.size(); ++n) {
      if (own[n] < 0 || (!before.empty() && before[n] == own[n])) continue;
      metas.push_back(own[n]);
    }
  }
  std::sort(metas.begin(), metas.end());
  metas.erase(std::unique(metas.begin(), metas.end()), metas.end());
}

}  // namespace

void score_children(const ScoreTile& tile, const MetaChoice& choice,
                    ScoreScratch& scratch, TileScores& out) {
  clear(tile, out);
  // A meta's blocks [begin, end) in the document, and their first key.
  struct Children {
    int64_t begin = 0, end = 0, key = 0;
  };
  std::vector<int32_t> metas;
  std::vector<Children> children;
  std::vector<Panels> parts;
  for (const QueryRun& run : runs_of(tile.queries)) {
    const std::span<const Key> keys = tile.keys.keys_of(run.document);
    const std::span<const int32_t> blocks = tile.keys.blocks_of(run.document);
    const int64_t most = keys_until(keys, run.position, tile.end);
    const int64_t lane = tile.keys.lane_of(run.document);
    const int64_t ldo = round_up(lane + most, kPanelKeys);
    Scores s{tile.keys, static_cast<size_t>(run.document), nullptr, 0, 0};
    gather_metas(choice, run, metas);
    // The blocks of a meta are contiguous, and so are their keys.
    const int64_t lowest = metas.empty() ? 0 : metas.front();
    children.assign(
        metas.empty() ? 0 : static_cast<size_t>(metas.back() - lowest + 1), {});
    parts.clear();
    for (const int32_t meta : metas) {
      const auto block_of = [&](int64_t m) {
        return std::lower_bound(blocks.begin(), blocks.end(),
                                m * choice.ratio) -
               blocks.begin();
      };
      Children& c = children[static_cast<size_t>(meta - lowest)];
      c.begin = block_of(meta);
      c.end = block_of(int64_t{meta} + 1);
      c.key = first_key(s, c.begin);
      const int64_t stop = std::min(most, first_key(s, c.end));
      if (c.key >= stop) continue;
      const int64_t begin = (lane + c.key) / kPanelKeys;
      const int64_t end = ceil_div(lane + stop, kPanelKeys);
      if (!parts.empty() && begin <= parts.back().end) {
        parts.back().end = std::max(parts.back().end, end);
      } else {
        parts.push_back({begin, end});
      }
    }
    score_run(tile, run, parts, ldo, scratch);
    for (size_t i = run.begin; i < run.end; ++i) {
      const RoutingQuery& query = tile.queries[i];
      s.dots = scratch.dots.data() + static_cast<int64_t>(i - run.begin) * ldo +
               lane;
      s.until = keys_until(keys, query.position, tile.end);
      s.query = query.query;
      // Children of adjacent metas are contiguous and are added in one call.
      int64_t begin = 0;
      int64_t end = 0;
      for (const int32_t meta : metas_of(choice, i)) {
        if (meta < 0) continue;
        const Children& c = children[static_cast<size_t>(meta - lowest)];
        if (c.begin == c.end || c.key >= s.until) continue;
        if (c.begin != end) {
          if (begin < end) add_blocks(s, begin, end, true, out);
          begin = c.begin;
        }
        end = c.end;
      }
      if (begin < end) add_blocks(s, begin, end, true, out);
      out.start.push_back(static_cast<int64_t>(out.values.size()));
    }
  }
}

}  // namespace tessera::routing
