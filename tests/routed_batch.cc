// tests/routed_batch.cc: batches of a routed run, without code of src/route.
#include "tests/routed_batch.h"

#include <random>
#include <set>

namespace tessera::testing {

std::vector<int32_t> meant_picks(const RouteCase& c,
                                 const std::vector<int32_t>& picks,
                                 RouteMeaning meaning) {
  const int64_t top = c.settings.top;
  const int64_t tile = c.settings.query_tile;
  std::vector<int32_t> out;
  for (int64_t list = 0; list < c.batch * c.pick_heads(); ++list) {
    for (int64_t q = 0; q < c.q_len; ++q) {
      std::set<int32_t> seen;
      for (int64_t other = 0; other < c.q_len; ++other) {
        const bool counts = meaning == RouteMeaning::exact
                                ? other == q
                                : other / tile == q / tile;
        if (!counts) continue;
        for (int64_t i = 0; i < top; ++i) {
          const int32_t pick =
              picks[static_cast<size_t>((list * c.q_len + other) * top + i)];
          if (pick >= 0) seen.insert(pick);
        }
      }
      out.insert(out.end(), seen.begin(), seen.end());
      out.resize(static_cast<size_t>((list * c.q_len + q + 1) * kRoutedBlocks),
                 -1);
    }
  }
  return out;
}

RoutedBatch routed_batch(uint64_t seed, RouteMeaning meaning) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  RoutedBatch out;
  RouteCase& r = out.route;
  r.seed = seed;
  r.heads = 4;
  r.kv_heads = 2;
  r.dim = 8;
  // All lengths are in one bucket.
  r.q_len = r.kv_len = 97 + static_cast<int64_t>(random() % 32);
  r.documents = true;
  r.doc_ids.emplace();
  int32_t id = 0;
  for (int64_t t = 0; t < r.kv_len; ++t) {
    r.doc_ids->push_back(id += random() % 40 == 0);
  }
  for (int64_t i = 0; i < r.heads * r.q_len * r.dim; ++i) {
    r.q.push_back(normal(random));
  }
  for (int64_t i = 0; i < r.kv_heads * r.kv_len * r.dim; ++i) {
    r.k.push_back(normal(random));
  }
  RouteSettings& s = r.settings;
  s.top = 2;
  s.block = s.compression = kRoutedTile;
  s.stride = 8;
  s.kv_tile = 32;
  s.query_tile = kRoutedTile;
  s.meaning = meaning;

  AttentionCase& a = out.attention;
  a.plan.masks = {causal() & documents() & routed(s.top, s.block)};
  a.plan.q_len = a.plan.kv_len = r.q_len;
  a.plan.tile = {kRoutedTile, kRoutedTile};
  a.plan.doc_ids = r.doc_ids;
  a.plan.picks = meant_picks(r, oracle_picks(r), meaning);
  a.plan.pick_heads = r.pick_heads();
  a.plan.pick_k = kRoutedBlocks;
  a.shape = {r.heads, r.kv_heads, 16, 16, {}, 0};
  a.dlse = true;
  a.seed = random();
  return out;
}

}  // namespace tessera::testing
