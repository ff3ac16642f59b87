// route/score.cc: fp32 scores, as products of queries and packed pooled keys.
#include "route/score.h"

#include <algorithm>
#include <cstring>

#include "base/integers.h"
#include "route/numbers.h"

namespace tessera {
namespace {

using Key = ScoreKeys::Key;

// Neighbouring routing queries [begin, end) of one document.
struct QueryRun {
  size_t begin = 0, end = 0;
  int32_t document = 0;
  int64_t position = 0;  // the greatest
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

// How many of the keys count for a position: `last` ascends with the index.
int64_t keys_until(std::span<const Key> keys, int64_t position, int64_t end) {
  const auto it = std::partition_point(
      keys.begin(), keys.end(),
      [&](const Key& k) { return k.last <= position && k.index < end; });
  return it - keys.begin();
}

// The routing query's own numbers for one head: its query, or the mean of its
// queries.
void stage_query(const TensorView& q, const RoutingQuery& of, int64_t b,
                 int64_t head, ScoreScratch& scratch, float* to) {
  const auto bytes = static_cast<size_t>(q.dim) * sizeof(float);
  scratch.row.resize(static_cast<size_t>(q.dim));
  const auto row = [&](int32_t query) {
    return float_row(q, b, head, query, scratch.row.data());
  };
  if (of.queries.size() == 1) {
    std::memcpy(to, row(of.queries.front()), bytes);
    return;
  }
  std::fill(to, to + q.dim, 0.0F);
  for (const int32_t query : of.queries) {
    const float* from = row(query);
    for (int64_t d = 0; d < q.dim; ++d) to[d] += from[d];
  }
  const auto count = static_cast<float>(of.queries.size());
  for (int64_t d = 0; d < q.dim; ++d) to[d] /= count;
}

// Panels [begin, end) of a document.
struct Panels {
  int64_t begin = 0, end = 0;
};

// Scores of a run against panels, summed in head order, into scratch.dots: row
// i of it is routing query begin + i, `ldo` floats apart.
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

// Adds the blocks of keys [begin, end), whose scores are at `dots`, to the
// candidates of a query; `blocks` are the document's.
void add_blocks(std::span<const Key> keys, std::span<const int32_t> blocks,
                const float* dots, int64_t begin, int64_t end, int32_t query,
                bool name_blocks, TileScores& out) {
  int32_t block = -1;
  for (int64_t i = begin; i < end; ++i) {
    const float x = dots[i];
    const Key& key = keys[static_cast<size_t>(i)];
    if (x != x && !out.nan) {
      out.nan = {query, blocks[static_cast<size_t>(key.block)]};
    }
    if (key.block != block) {
      block = key.block;
      out.values.push_back(x);
      if (name_blocks) {
        out.blocks.push_back(blocks[static_cast<size_t>(block)]);
      }
    } else if (x > out.values.back()) {
      out.values.back() = x;
    }
  }
  out.products += std::max<int64_t>(end - begin, 0);
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
  std::vector<size_t> from;  // of each key, in pooled.keys
  out.start = out.block_start = {0};
  out.panel_start = {0};
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
      if (!same) out.blocks.push_back(number);
      out.keys.push_back({key.index, key.last, same ? blocks - 1 : blocks});
      from.push_back(at);
    }
    out.start.push_back(static_cast<int32_t>(out.keys.size()));
    out.block_start.push_back(static_cast<int32_t>(out.blocks.size()));
    const int64_t count = out.start[d + 1] - out.start[d];
    out.panel_start.push_back(out.panel_start[d] + ceil_div(count, kPanelKeys));
  }
  const int64_t panels = out.panel_start.back();
  out.panels.assign(static_cast<size_t>(kv_heads * panels * dim * kPanelKeys),
                    0);
  const auto pooled_keys = static_cast<int64_t>(pooled.keys.size());
  for (int64_t h = 0; h < kv_heads; ++h) {
    for (size_t d = 0; d < documents; ++d) {
      const auto document = static_cast<int32_t>(d);
      float* to =
          out.panels.data() + (out.panels_of(document, h) - out.panels.data());
      for (int32_t i = out.start[d]; i < out.start[d + 1]; ++i) {
        const int64_t in_document = i - out.start[d];
        float* lane = to + in_document / kPanelKeys * dim * kPanelKeys +
                      in_document % kPanelKeys;
        const float* value =
            pooled.values.data() +
            (h * pooled_keys +
             static_cast<int64_t>(from[static_cast<size_t>(i)])) *
                dim;
        for (int64_t n = 0; n < dim; ++n) lane[n * kPanelKeys] = value[n];
      }
    }
  }
  return out;
}

std::vector<RoutingQuery> routing_queries(const RouteRow& row, RouteRule rule,
                                          int64_t begin, int64_t end) {
  std::vector<RoutingQuery> out;
  for (int64_t q = begin; q < end; ++q) {
    const int32_t document = row.query_document[static_cast<size_t>(q)];
    if (document < 0) continue;
    const auto query = static_cast<int32_t>(q);
    auto same = out.end();
    if (rule == RouteRule::query_tile) {
      same = std::find_if(out.begin(), out.end(), [&](const RoutingQuery& r) {
        return r.document == document;
      });
    }
    if (same == out.end()) {
      out.push_back({document, q + row.q_offset, {query}});
    } else {
      same->position = q + row.q_offset;
      same->queries.push_back(query);
    }
  }
  return out;
}

void score_tile(const ScoreTile& tile, ScoreScratch& scratch, TileScores& out) {
  clear(tile, out);
  for (const QueryRun& run : runs_of(tile.queries)) {
    const std::span<const Key> keys = tile.keys.keys_of(run.document);
    const std::span<const int32_t> blocks = tile.keys.blocks_of(run.document);
    const int64_t most = keys_until(keys, run.position, tile.end);
    const Panels all{0, ceil_div(most, kPanelKeys)};
    const int64_t ldo = all.end * kPanelKeys;
    score_run(tile, run, {&all, 1}, ldo, scratch);
    for (size_t i = run.begin; i < run.end; ++i) {
      const RoutingQuery& query = tile.queries[i];
      const float* dots =
          scratch.dots.data() + static_cast<int64_t>(i - run.begin) * ldo;
      const int64_t n = keys_until(keys.first(static_cast<size_t>(most)),
                                   query.position, tile.end);
      add_blocks(keys, blocks, dots, 0, n, query.queries.front(), false, out);
      out.start.push_back(static_cast<int64_t>(out.values.size()));
    }
  }
}

void score_children(const ScoreTile& tile, const MetaChoice& choice,
                    ScoreScratch& scratch, TileScores& out) {
  clear(tile, out);
  std::vector<int32_t> metas;
  std::vector<Panels> parts;
  for (const QueryRun& run : runs_of(tile.queries)) {
    const std::span<const Key> keys = tile.keys.keys_of(run.document);
    const std::span<const int32_t> blocks = tile.keys.blocks_of(run.document);
    const int64_t most = keys_until(keys, run.position, tile.end);
    const int64_t ldo = round_up(most, kPanelKeys);
    // Keys of a meta's blocks lie side by side.
    const auto first_of = [&](int64_t meta) {
      const auto it = std::partition_point(
          keys.begin(), keys.begin() + most, [&](const Key& k) {
            return blocks[static_cast<size_t>(k.block)] < meta * choice.ratio;
          });
      return static_cast<int64_t>(it - keys.begin());
    };
    metas.clear();
    for (size_t i = run.begin; i < run.end; ++i) {
      const auto of_query = choice.metas.subspan(
          i * static_cast<size_t>(choice.k), static_cast<size_t>(choice.k));
      for (const int32_t meta : of_query) {
        if (meta >= 0) metas.push_back(meta);
      }
    }
    std::sort(metas.begin(), metas.end());
    metas.erase(std::unique(metas.begin(), metas.end()), metas.end());
    parts.clear();
    for (const int32_t meta : metas) {
      const int64_t begin = first_of(meta) / kPanelKeys;
      const int64_t end = ceil_div(first_of(int64_t{meta} + 1), kPanelKeys);
      if (!parts.empty() && begin <= parts.back().end) {
        parts.back().end = std::max(parts.back().end, end);
      } else if (begin < end) {
        parts.push_back({begin, end});
      }
    }
    score_run(tile, run, parts, ldo, scratch);
    for (size_t i = run.begin; i < run.end; ++i) {
      const RoutingQuery& query = tile.queries[i];
      const float* dots =
          scratch.dots.data() + static_cast<int64_t>(i - run.begin) * ldo;
      const int64_t n = keys_until(keys, query.position, tile.end);
      for (int64_t m = 0; m < choice.k; ++m) {
        const int32_t meta = choice.metas[i * static_cast<size_t>(choice.k) +
                                          static_cast<size_t>(m)];
        if (meta < 0) continue;
        add_blocks(keys, blocks, dots, first_of(meta),
                   std::min(n, first_of(int64_t{meta} + 1)),
                   query.queries.front(), true, out);
      }
      out.start.push_back(static_cast<int64_t>(out.values.size()));
    }
  }
}

}  // namespace tessera
