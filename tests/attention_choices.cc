// tests/attention_choices.cc: masks of every atom, awkward sizes, and rows of
// choices that cover every pair of choices.
#include "tests/attention_choices.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <random>
#include <set>
#include <tuple>
#include <utility>

#include "tests/random_tree.h"

namespace tessera::testing {
namespace {

using Random = std::mt19937_64;

int64_t uniform(Random& random, int64_t low, int64_t high) {
  return low +
         static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// ---- Cases by their mask. ----

// Runs of ids with returns (A, B, A) and padding in the middle.
std::vector<int32_t> some_ids(Random& random, int64_t rows, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t left = length;
    while (left > 0) {
      const int64_t run = std::min(left, uniform(random, 1, 40));
      ids.insert(ids.end(), static_cast<size_t>(run),
                 static_cast<int32_t>(uniform(random, -1, 3)));
      left -= run;
    }
  }
  return ids;
}

struct MaskKind {
  std::vector<const char*> masks;
  int64_t pick_heads = 0;  // 0: no picks
};

const std::vector<MaskKind>& mask_kinds() {
  static const std::vector<MaskKind> kinds = {
      {{"full"}},
      {{"causal"}},
      {{"causal & window(20, 0)"}},
      {{"window(3, 70)"}},
      {{"chunk(24)"}},
      {{"causal | prefix"}},
      {{"documents"}},
      {{"causal & documents"}},
      {{"causal & segments"}},
      {{"documents & (sink(3) | window(9, 0))"}},
      {{"causal & (sink(5) | window(12, 0))"}},
      {{"blocks(16)"}, 1},
      {{"causal & blocks(8)"}, 2},
      {{"!window(5, 5)"}},
      {{"causal & !chunk(10) | window(1, 1)"}},
      {{"(chunk(16) | !documents) & !window(2, 2)"}},
      {{"causal", "window(8, 8) & !causal"}},
      {{"!full"}},
      {{"tree"}},
      {{"tree & documents", "causal & (tree | sink(3))"}},
      {{"tree & (window(6, 0) | !segments)"}},
      {{"causal & !tree | window(1, 1)"}},
      {{"causal | same(a)"}},
      {{"(causal | same(a)) & documents", "same(b) & !same(a)"}},
  };
  return kinds;
}

bool names(const Expr& e, Atom atom) {
  if (e.atom == atom) return true;
  return std::any_of(e.children.begin(), e.children.end(),
                     [&](const Expr& child) { return names(child, atom); });
}

RandomCase case_of(const MaskKind& kind, int64_t batch, int64_t q_len,
                   int64_t kv_len, Tile tile, bool counts, uint64_t seed) {
  Random random(seed);
  RandomCase c;
  c.seed = seed;
  c.batch = batch, c.q_len = q_len, c.kv_len = kv_len, c.tile = tile;
  bool ids = false, runs = false, prefix = false, tree = false, same = false;
  for (const char* text : kind.masks) {
    c.masks.push_back(*parse_expr(text));
    runs |= names(c.masks.back(), Atom::segments);
    ids |= runs || names(c.masks.back(), Atom::documents);
    prefix |= names(c.masks.back(), Atom::prefix);
    tree |= names(c.masks.back(), Atom::tree);
    same |= names(c.masks.back(), Atom::same);
  }
  const auto each_row = [&](int64_t low, int64_t high) {
    std::vector<int32_t> values;
    for (int64_t b = 0; b < batch; ++b) {
      values.push_back(static_cast<int32_t>(uniform(random, low, high)));
    }
    return values;
  };
  if (counts) {
    c.valid_tokens = each_row(0, kv_len);
    c.valid_tokens->back() = static_cast<int32_t>((kv_len * 3 + 3) / 4);
  }
  if (ids) {
    c.doc_ids = some_ids(random, batch, kv_len);
    if (runs && q_len > kv_len) {
      // Queries past the keys need no id if a count excludes them.
      c.q_offsets = each_row(0, 0);
      if (!c.valid_tokens) c.valid_tokens = each_row(kv_len, kv_len);
    } else if (q_len > kv_len || (!runs && random() % 4 == 0)) {
      c.q_doc_ids = some_ids(random, batch, q_len);
    }
  } else if (!tree && !same && random() % 3 == 0) {
    c.q_offsets = each_row(-5, kv_len);
  }
  if ((tree || same) && q_len > kv_len && !c.q_offsets) {
    // Queries past the keys are no tokens, so a count must exclude them.
    c.q_offsets = each_row(0, 0);
    if (!c.valid_tokens) c.valid_tokens = each_row(kv_len, kv_len);
  }
  if (tree) {
    c.tree_enter.emplace();
    c.tree_leave.emplace();
    for (size_t b = 0; b < static_cast<size_t>(batch); ++b) {
      const int64_t valid = c.valid_tokens ? (*c.valid_tokens)[b] : kv_len;
      append_random_tree(random, kv_len, valid, *c.tree_enter, *c.tree_leave);
    }
  }
  if (same) {
    c.same_a = some_ids(random, batch, kv_len);
    c.same_b = some_ids(random, batch, kv_len);
  }
  if (prefix) c.prefix = each_row(0, kv_len);
  for (size_t b = 0; prefix && c.valid_tokens && b < c.prefix->size(); ++b) {
    (*c.prefix)[b] = std::min((*c.prefix)[b], (*c.valid_tokens)[b]);
  }
  if (kind.pick_heads > 0) {
    const int64_t block = 8 * (3 - kind.pick_heads);  // as in the masks
    c.pick_heads = kind.pick_heads;
    c.pick_k = 4;
    c.picks.emplace();
    for (int64_t i = 0; i < batch * c.pick_heads * q_len * c.pick_k; ++i) {
      c.picks->push_back(
          static_cast<int32_t>(uniform(random, -1, (kv_len - 1) / block)));
    }
  }
  return c;
}

// ---- Combinations: every pair of levels of two factors appears. ----

// Rows with one level for each factor; `levels` has the number of levels.
// Greedy: of some random rows with a new pair, the one with the most new pairs
// is taken.
std::vector<std::vector<int>> all_pairs(const std::vector<int>& levels,
                                        Random& random) {
  using Pair = std::array<int, 4>;
  std::set<Pair> open;
  const int factors = static_cast<int>(levels.size());
  const auto at = [](int i) { return static_cast<size_t>(i); };
  for (int i = 0; i < factors; ++i) {
    for (int j = 0; j < i; ++j) {
      for (int x = 0; x < levels[at(i)]; ++x) {
        for (int y = 0; y < levels[at(j)]; ++y) open.insert({i, j, x, y});
      }
    }
  }
  std::vector<std::vector<int>> rows;
  while (!open.empty()) {
    std::vector<int> best;
    size_t most = 0;
    for (int tries = 0; tries < 20; ++tries) {
      std::vector<int> row;
      for (const int n : levels) {
        row.push_back(static_cast<int>(uniform(random, 0, n - 1)));
      }
      auto first = open.begin();
      std::advance(first, uniform(random, 0,
                                  std::min<int64_t>(50, std::ssize(open) - 1)));
      row[at((*first)[0])] = (*first)[2];
      row[at((*first)[1])] = (*first)[3];
      size_t found = 0;
      for (int i = 0; i < factors; ++i) {
        for (int j = 0; j < i; ++j) {
          found += open.count({i, j, row[at(i)], row[at(j)]});
        }
      }
      if (found > most) best = row, most = found;
    }
    for (int i = 0; i < factors; ++i) {
      for (int j = 0; j < i; ++j) {
        open.erase({i, j, best[at(i)], best[at(j)]});
      }
    }
    rows.push_back(best);
  }
  return rows;
}

constexpr int64_t kLengths[] = {1,  2,   15,  16,  17,  31,  32,  33,  63, 64,
                                65, 127, 128, 129, 255, 256, 257, 300, 83};
constexpr Tile kTiles[] = {{8, 8},     {16, 16},   {48, 48},
                           {64, 64},   {128, 128}, {256, 256},
                           {384, 384}, {16, 128},  {256, 24}};
constexpr int64_t kDims[] = {8, 24, 40, 64, 72, 128, 256};
constexpr std::pair<int64_t, int64_t> kHeads[] = {
    {1, 1}, {2, 2}, {4, 2}, {2, 1}};
constexpr std::optional<double> kScales[] = {{}, -0.2, 0.0, 1.0};

}  // namespace

std::vector<AttentionCase> attention_choices(uint64_t seed) {
  const auto count = [](const auto& list) {
    return static_cast<int>(std::size(list));
  };
  const std::vector<int> levels = {count(kLengths),
                                   4,
                                   count(mask_kinds()),
                                   count(kTiles),
                                   count(kDims),
                                   count(kDims),
                                   count(kHeads),
                                   count(kDtypes),
                                   4,
                                   count(kCaps),
                                   count(kScales),
                                   2,
                                   2,
                                   2,
                                   2,
                                   2};
  Random random(seed);
  std::vector<AttentionCase> cases;
  for (const std::vector<int>& row : all_pairs(levels, random)) {
    auto next = row.begin();
    const auto level = [&] { return static_cast<size_t>(*next++); };
    AttentionCase c;
    int64_t q_len = kLengths[level()], kv_len = q_len;
    switch (level()) {
      case 0:
        break;
      case 1:  // a cache before the queries
        kv_len = q_len + uniform(random, 1, 60);
        break;
      case 2:  // fewer keys
        kv_len = std::max<int64_t>(1, q_len - uniform(random, 1, 40));
        break;
      default:  // few queries
        q_len = uniform(random, 1, 3);
    }
    const MaskKind& kind = mask_kinds()[level()];
    const Tile tile = kTiles[level()];
    c.shape.head_dim = kDims[level()];
    c.shape.v_head_dim = kDims[level()];
    std::tie(c.shape.heads, c.shape.kv_heads) = kHeads[level()];
    const auto plan_heads =
        std::max(std::ssize(kind.masks), std::max<int64_t>(1, kind.pick_heads));
    if (c.shape.heads < plan_heads) c.shape.heads = plan_heads;
    c.dtype = kDtypes[level()];
    c.layout = static_cast<Layout>(level());
    c.shape.softcap = kCaps[level()];
    c.shape.scale = kScales[level()];
    c.sinks = level() != 0;
    c.lse = level() != 0;
    c.dlse = level() != 0;
    const bool counts = level() != 0;
    c.q_size = level() != 0 ? 20 : 1;
    c.seed = random();
    c.plan = case_of(kind, q_len * kv_len > 20000 ? 1 : 2, q_len, kv_len, tile,
                     counts, c.seed);
    cases.push_back(std::move(c));
  }
  return cases;
}

AttentionCase plain_attention(const char* mask, int64_t q_len, int64_t kv_len,
                              int64_t dim) {
  AttentionCase c;
  c.plan = case_of({{mask}}, 1, q_len, kv_len, {64, 64}, false, 2);
  c.plan.q_offsets.reset();
  c.shape = {2, 1, dim, dim, {}, 0};
  return c;
}

}  // namespace tessera::testing
