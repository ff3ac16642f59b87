// tests/route_oracle.cc: a router in plain loops, without code of src/route.
#include "tests/route_oracle.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

namespace tessera::testing {
namespace {

constexpr int64_t kNone = -1;

// One batch row: the document of each key and query, or kNone.
struct Row {
  std::vector<int64_t> key, query;
  int64_t offset = 0;
};

Row row_of(const RouteCase& c, int64_t b) {
  Row row;
  row.offset =
      c.q_offsets ? (*c.q_offsets)[static_cast<size_t>(b)] : c.kv_len - c.q_len;
  const int64_t valid = c.valid ? (*c.valid)[static_cast<size_t>(b)] : c.kv_len;
  const bool parted = c.documents || c.segments;
  const auto id = [&](int64_t t) {
    return (*c.doc_ids)[static_cast<size_t>(b * c.kv_len + t)];
  };
  int64_t segment = 0;
  for (int64_t t = 0; t < c.kv_len; ++t) {
    if (t > 0 && parted && id(t) != id(t - 1)) ++segment;
    int64_t document = 0;
    if (parted) document = id(t) < 0 ? kNone : c.segments ? segment : id(t);
    row.key.push_back(t < valid ? document : kNone);
  }
  for (int64_t i = 0; i < c.q_len; ++i) {
    const int64_t position = i + row.offset;
    const bool vetoed = c.valid && position >= valid;
    if (vetoed) {
      row.query.push_back(kNone);
    } else if (!parted) {
      row.query.push_back(0);
    } else if (c.q_doc_ids) {
      const int32_t q = (*c.q_doc_ids)[static_cast<size_t>(b * c.q_len + i)];
      row.query.push_back(q < 0 ? kNone : q);
    } else {
      row.query.push_back(row.key[static_cast<size_t>(position)]);
    }
  }
  return row;
}

// A query, or the queries of one document in a query tile.
struct Asker {
  int64_t document = 0, position = 0;
  std::vector<int64_t> queries;
};

std::vector<Asker> askers_of(const RouteCase& c, const Row& row) {
  std::vector<Asker> out;
  for (int64_t i = 0; i < c.q_len; ++i) {
    const int64_t d = row.query[static_cast<size_t>(i)];
    if (d == kNone) continue;
    Asker* same = nullptr;
    for (Asker& a : out) {
      if (c.settings.rule == RouteRule::query_tile && a.document == d &&
          a.queries[0] / c.settings.query_tile == i / c.settings.query_tile) {
        same = &a;
      }
    }
    if (same == nullptr) {
      out.push_back({d, i + row.offset, {i}});
    } else {
      same->queries.push_back(i);
      same->position = i + row.offset;
    }
  }
  return out;
}

float score_of(const RouteCase& c, int64_t b, int64_t head, const Asker& asker,
               const std::vector<float>& pooled) {
  std::vector<float> query(static_cast<size_t>(c.dim), 0);
  for (const int64_t i : asker.queries) {
    for (int64_t d = 0; d < c.dim; ++d) {
      query[static_cast<size_t>(d)] += c.q[static_cast<size_t>(
          ((b * c.heads + head) * c.q_len + i) * c.dim + d)];
    }
  }
  float dot = 0;
  for (int64_t d = 0; d < c.dim; ++d) {
    const float mean = query[static_cast<size_t>(d)] /
                       static_cast<float>(asker.queries.size());
    const float product = mean * pooled[static_cast<size_t>(d)];
    dot += product;
  }
  return dot;
}

// Sizes of the blocks, or of the groups of blocks, that are pooled and scored.
struct Sizes {
  int64_t block, compression, stride;
};

// The score of a block; nothing if it is no candidate.
std::optional<float> block_score(const RouteCase& c, const Sizes& s,
                                 const Row& row, int64_t b, int64_t pick_head,
                                 const Asker& asker, int64_t block) {
  const int64_t group = c.heads / c.kv_heads;
  const bool alone = c.settings.rule == RouteRule::query_head;
  const int64_t kv_head = alone ? pick_head / group : pick_head;
  std::optional<float> best;
  for (int64_t index = 0; index * s.stride < c.kv_len; ++index) {
    const int64_t begin = index * s.stride;
    const int64_t end = begin + s.compression;
    if (begin < block * s.block || end > (block + 1) * s.block) continue;
    std::vector<float> pooled(static_cast<size_t>(c.dim), 0);
    int64_t tokens = 0;
    int64_t last = kNone;
    for (int64_t t = begin; t < std::min(end, c.kv_len); ++t) {
      if (row.key[static_cast<size_t>(t)] != asker.document) continue;
      for (int64_t d = 0; d < c.dim; ++d) {
        pooled[static_cast<size_t>(d)] += c.k[static_cast<size_t>(
            ((b * c.kv_heads + kv_head) * c.kv_len + t) * c.dim + d)];
      }
      ++tokens;
      last = t;
    }
    if (tokens == 0 || last > asker.position) continue;
    for (float& x : pooled) x /= static_cast<float>(tokens);
    float score = 0;
    if (alone) {
      score = score_of(c, b, pick_head, asker, pooled);
    } else {
      for (int64_t h = 0; h < group; ++h) {
        const float one = score_of(c, b, kv_head * group + h, asker, pooled);
        score = h == 0 ? one : score + one;
      }
    }
    if (!best || score > *best) best = score;
  }
  return best;
}

std::vector<int64_t> forced_of(const RouteCase& c, const Row& row,
                               const Asker& asker) {
  std::vector<int64_t> out;
  for (const int64_t i : asker.queries) {
    const int64_t position = i + row.offset;
    if (position >= 0 && position < c.kv_len) {
      out.push_back(position / c.settings.block);
    }
  }
  int64_t sinks = 0;
  for (int64_t block = 0; block * c.settings.block < c.kv_len; ++block) {
    int64_t first = kNone;
    for (int64_t t = block * c.settings.block;
         t < std::min(c.kv_len, (block + 1) * c.settings.block); ++t) {
      if (first == kNone && row.key[static_cast<size_t>(t)] == asker.document) {
        first = t;
      }
    }
    if (first == kNone) continue;
    if (sinks++ < c.settings.sink_blocks && first <= asker.position) {
      out.push_back(block);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool holds(const std::vector<int64_t>& list, int64_t value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// The forced blocks and the best of the others, `top` in all, ascending. Of
// blocks with equal scores the lowest is taken.
template <class Wanted>
std::vector<int64_t> best_of(const RouteCase& c, const Sizes& s, const Row& row,
                             int64_t b, int64_t head, const Asker& asker,
                             std::vector<int64_t> forced, int64_t top,
                             Wanted&& wanted) {
  std::vector<std::pair<int64_t, float>> others;
  for (int64_t block = 0; block * s.block < c.kv_len; ++block) {
    if (holds(forced, block) || !wanted(block)) continue;
    const auto score = block_score(c, s, row, b, head, asker, block);
    if (score) others.push_back({block, *score});
  }
  while (!others.empty() && static_cast<int64_t>(forced.size()) < top) {
    size_t best = 0;
    for (size_t i = 1; i < others.size(); ++i) {
      if (others[i].second > others[best].second) best = i;
    }
    forced.push_back(others[best].first);
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(best));
  }
  std::sort(forced.begin(), forced.end());
  return forced;
}

// The groups of blocks that hierarchical routing looks into.
std::vector<int64_t> kept_metas(const RouteCase& c, const Row& row, int64_t b,
                                int64_t head, const Asker& asker,
                                const std::vector<int64_t>& forced) {
  const RouteSettings& s = c.settings;
  if (!s.hierarchical) return {};
  const int64_t size = s.block * s.meta_ratio;
  std::vector<int64_t> own;
  for (const int64_t block : forced) {
    if (!holds(own, block / s.meta_ratio)) own.push_back(block / s.meta_ratio);
  }
  return best_of(c, {size, size, size}, row, b, head, asker, own, s.top_metas,
                 [](int64_t) { return true; });
}

}  // namespace

Request RouteCase::request() const {
  Expr e = causal() & routed(settings.top, settings.block);
  if (documents) e = e & tessera::documents();
  if (segments) e = e & tessera::segments();
  Request r;
  r.masks = {*make_mask(e)};
  r.batch = batch;
  r.q_len = q_len;
  r.kv_len = kv_len;
  return r;
}

Facts RouteCase::facts() const {
  Facts f;
  if (doc_ids) f.doc_ids = *doc_ids;
  if (q_doc_ids) f.q_doc_ids = *q_doc_ids;
  if (valid) f.valid_token_counts = *valid;
  if (q_offsets) f.q_offsets = *q_offsets;
  return f;
}

RouteInputs RouteCase::inputs() const {
  RouteInputs in;
  in.q = TensorView::bhsd(q.data(), Dtype::f32, batch, heads, q_len, dim);
  in.k = TensorView::bhsd(k.data(), Dtype::f32, batch, kv_heads, kv_len, dim);
  return in;
}

int64_t RouteCase::pick_heads() const {
  return settings.rule == RouteRule::query_head ? heads : kv_heads;
}

std::string RouteCase::describe() const {
  std::ostringstream out;
  const RouteSettings& s = settings;
  out << "seed " << seed << ": batch " << batch << ", heads " << heads << "/"
      << kv_heads << ", " << q_len << " x " << kv_len << ", dim " << dim
      << (documents ? ", documents" : "") << (segments ? ", segments" : "")
      << (q_doc_ids ? ", q_docs" : "") << (valid ? ", valid" : "")
      << (q_offsets ? ", q_offsets" : "") << ", " << to_string(s.rule)
      << ", top " << s.top << ", block " << s.block << ", compression "
      << s.compression << ", stride " << s.stride << ", query tile "
      << s.query_tile << ", kv tile " << s.kv_tile << ", sinks "
      << s.sink_blocks << (s.windowed ? "" : ", no window")
      << (s.hierarchical ? ", hierarchical" : "");
  return out.str();
}

RouteCase random_route_case(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto from = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  const auto one_in = [&](int64_t n) { return from(1, n) == 1; };
  RouteCase c;
  c.seed = seed;
  c.batch = one_in(3) ? 2 : 1;
  c.kv_heads = from(1, 2);
  c.heads = c.kv_heads * from(1, 3);
  c.kv_len = from(1, 90);
  c.q_len = one_in(2) ? c.kv_len : from(1, 60);
  c.dim = from(1, 20);
  RouteSettings& s = c.settings;
  s.rule = static_cast<RouteRule>(from(0, 2));
  s.stride = from(1, 4);
  s.block = s.stride * from(1, 4);
  s.compression = from(1, s.block);
  s.query_tile = from(1, 20);
  s.kv_tile = s.stride * from(1, 6);
  s.windowed = !one_in(3);
  s.union_method = one_in(2) ? UnionMethod::sort : UnionMethod::bitmap;
  s.sink_blocks = one_in(3) ? from(1, 2) : 0;
  s.top = s.sink_blocks + from(1, 6);
  if (s.rule == RouteRule::query_tile) {
    s.top += s.query_tile / s.block + 1;  // own blocks of all its queries
  }

  const int64_t kind = from(0, 3);
  c.documents = kind == 1 || kind == 3;
  c.segments = kind == 2;
  const bool parted = c.documents || c.segments;
  if (parted) {
    std::vector<int32_t> ids;
    while (static_cast<int64_t>(ids.size()) < c.batch * c.kv_len) {
      const auto id = static_cast<int32_t>(from(one_in(4) ? -1 : 0, 3));
      for (int64_t n = from(1, one_in(3) ? 3 : 30); n > 0; --n) {
        ids.push_back(id);
      }
    }
    ids.resize(static_cast<size_t>(c.batch * c.kv_len));
    c.doc_ids = ids;
  }
  if (c.documents && kind == 3) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < c.batch * c.q_len; ++i) {
      ids.push_back(static_cast<int32_t>(from(-1, 4)));
    }
    c.q_doc_ids = ids;
  }
  if (one_in(3)) {
    c.valid.emplace();
    for (int64_t b = 0; b < c.batch; ++b) {
      c.valid->push_back(static_cast<int32_t>(from(0, c.kv_len)));
    }
  }
  // Ids are read at positions. With q_doc_ids, or without ids, positions are
  // free.
  const bool anywhere = !parted || c.q_doc_ids;
  if (!anywhere) c.q_len = std::min(c.q_len, c.kv_len);
  if (one_in(3)) {
    c.q_offsets.emplace();
    for (int64_t b = 0; b < c.batch; ++b) {
      c.q_offsets->push_back(static_cast<int32_t>(
          anywhere ? from(-20, c.kv_len + 5) : from(0, c.kv_len - c.q_len)));
    }
  }
  // Few distinct numbers give equal scores.
  const bool ties = one_in(2);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::vector<float>& x, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      x.push_back(ties ? static_cast<float>(from(-1, 1)) : normal(random));
    }
  };
  fill(c.q, c.batch * c.heads * c.q_len * c.dim);
  fill(c.k, c.batch * c.kv_heads * c.kv_len * c.dim);
  return c;
}

bool oracle_pick_legal(const RouteCase& c, int64_t b, int64_t query,
                       int64_t block) {
  const Row row = row_of(c, b);
  const int64_t document = row.query[static_cast<size_t>(query)];
  if (document == kNone) return false;
  for (int64_t t = block * c.settings.block;
       t < std::min(c.kv_len, (block + 1) * c.settings.block); ++t) {
    if (row.key[static_cast<size_t>(t)] == document &&
        t <= query + row.offset) {
      return true;
    }
  }
  return false;
}

std::vector<int32_t> oracle_picks(const RouteCase& c) {
  const int64_t heads = c.pick_heads();
  const int64_t top = c.settings.top;
  std::vector<int32_t> out(static_cast<size_t>(c.batch * heads * c.q_len * top),
                           -1);
  for (int64_t b = 0; b < c.batch; ++b) {
    const Row row = row_of(c, b);
    for (int64_t h = 0; h < heads; ++h) {
      for (const Asker& asker : askers_of(c, row)) {
        const std::vector<int64_t> forced = forced_of(c, row, asker);
        const RouteSettings& s = c.settings;
        const auto kept = kept_metas(c, row, b, h, asker, forced);
        const auto wanted = [&](int64_t block) {
          return !s.hierarchical || holds(kept, block / s.meta_ratio);
        };
        const std::vector<int64_t> picked =
            best_of(c, {s.block, s.compression, s.stride}, row, b, h, asker,
                    forced, top, wanted);
        for (const int64_t i : asker.queries) {
          int32_t* to = out.data() + ((b * heads + h) * c.q_len + i) * top;
          for (const int64_t block : picked) {
            if (oracle_pick_legal(c, b, i, block)) {
              *to++ = static_cast<int32_t>(block);
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace tessera::testing
