// tests/random_case.cc: seeded random requests with facts, and their shrinker.
#include "tests/random_case.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include "tests/oracle.h"
#include "tests/random_tree.h"

namespace tessera::testing {
namespace {

using Random = std::mt19937_64;

// Distributions of <random> differ between libraries, a remainder does not. So
// a seed gives the same case everywhere.
int64_t uniform(Random& random, int64_t low, int64_t high) {
  const uint64_t span = static_cast<uint64_t>(high - low) + 1;
  return low + static_cast<int64_t>(random() % span);
}

bool chance(Random& random, int percent) {
  return uniform(random, 1, 100) <= percent;
}

template <class T, size_t n>
T one_of(Random& random, const T (&values)[n]) {
  return values[uniform(random, 0, static_cast<int64_t>(n) - 1)];
}

Expr node(Atom atom, int64_t a = 0, int64_t b = 0) {
  Expr e;
  e.atom = atom;
  e.a = a;
  e.b = b;
  return e;
}

Expr join(Atom op, std::vector<Expr> children) {
  Expr e = node(op);
  e.children = std::move(children);
  return e;
}

// A distance that is small, near a block's edge, or far beyond every length.
int64_t distance(Random& random) {
  static constexpr int64_t edges[] = {0, 0,  1,  1,  2,   7,       8,
                                      9, 15, 16, 17, 255, 1 << 20, 2147483647};
  return chance(random, 60) ? uniform(random, 0, 40) : one_of(random, edges);
}

int64_t bound(Random& random) {
  return chance(random, 20) ? -1 : distance(random);
}

int64_t size(Random& random) { return std::max<int64_t>(1, distance(random)); }

Expr random_atom(Random& random, int64_t pick_block) {
  if (chance(random, 9)) return node(Atom::tree);
  if (chance(random, 9)) return node(Atom::same, uniform(random, 0, 1));
  switch (uniform(random, 0, pick_block > 0 ? 11 : 9)) {
    case 0:
      return node(Atom::full);
    case 1:
    case 2:
      return node(Atom::causal);
    case 3:
    case 4:
      return node(Atom::window, bound(random), bound(random));
    case 5:
      return node(Atom::chunk, size(random));
    case 6:
      return node(Atom::prefix);
    case 7:
      return node(Atom::documents);
    case 8:
      return node(Atom::segments);
    case 9:
      return node(Atom::sink, distance(random));
    case 10:
      return node(Atom::blocks, pick_block);
    default:
      return node(Atom::routed, 1000, pick_block);
  }
}

int64_t terms(const Expr& e) {
  int64_t n = e.children.empty() ? 1 : 0;
  for (const Expr& child : e.children) n += terms(child);
  return n;
}

// Many atoms of few kinds with little nesting, to fill the planner's bit sets.
Expr wide(Random& random, int64_t pick_block) {
  std::vector<Expr> children;
  for (int64_t i = uniform(random, 6, 24); i > 0; --i) {
    Expr e = random_atom(random, pick_block);
    if (chance(random, 30)) e = join(Atom::op_not, {std::move(e)});
    if (chance(random, 50)) {
      e = join(Atom::op_and, {std::move(e), random_atom(random, pick_block)});
    }
    children.push_back(std::move(e));
  }
  return join(chance(random, 70) ? Atom::op_or : Atom::op_and,
              std::move(children));
}

// Masks as users write them.
Expr realistic(Random& random, int64_t pick_block) {
  const Expr ids = node(chance(random, 60) ? Atom::documents : Atom::segments);
  const Expr c = node(Atom::causal);
  const Expr w = node(Atom::window, bound(random), bound(random));
  const Expr s = node(Atom::sink, distance(random));
  if (chance(random, 12)) {
    // Causal text, and images whose tokens see each other.
    const Expr both = join(Atom::op_or, {c, node(Atom::same, 0)});
    return chance(random, 40) ? both
           : chance(random, 50)
               ? join(Atom::op_and, {both, ids})
               : join(Atom::op_and,
                      {join(Atom::op_or, {both, w}), node(Atom::same, 1)});
  }
  if (chance(random, 12)) {
    const Expr tree = node(Atom::tree);
    return chance(random, 40) ? tree
           : chance(random, 50)
               ? join(Atom::op_and, {tree, ids})
               : join(Atom::op_and, {tree, join(Atom::op_or, {w, s})});
  }
  switch (uniform(random, 0, pick_block > 0 ? 10 : 7)) {
    case 0:
      return c;
    case 1:
      return join(Atom::op_and, {c, ids});
    case 2:
      return join(Atom::op_and, {c, w, ids});
    case 3:
      return join(Atom::op_and,
                  {join(Atom::op_or, {c, node(Atom::prefix)}), ids});
    case 4:
      return join(Atom::op_and, {c, join(Atom::op_or, {w, s})});
    case 5:
      return join(Atom::op_and, {c, join(Atom::op_or, {w, s}), ids});
    case 6:
      return join(Atom::op_and, {c, node(Atom::chunk, size(random))});
    case 7:
      return join(Atom::op_or, {join(Atom::op_and, {c, ids}), s});
    case 8:
      return join(Atom::op_and, {c, ids, node(Atom::blocks, pick_block)});
    case 9:
      return join(
          Atom::op_and,
          {c, join(Atom::op_or, {node(Atom::routed, 1000, pick_block), w, s})});
    default:
      return join(Atom::op_and, {c, node(Atom::blocks, pick_block)});
  }
}

int64_t length(Random& random) {
  const int64_t kind = uniform(random, 0, 9);
  if (kind < 4) return uniform(random, 1, 24);
  if (kind < 9) return uniform(random, 20, 80);
  return uniform(random, 1, 300);
}

int64_t tile_side(Random& random) {
  static constexpr int64_t sides[] = {8,  8,  8,  9,  9,   13,   13,  16,
                                      16, 17, 31, 32, 33,  63,   64,  8,
                                      9,  12, 16, 24, 128, 1000, 4096};
  return one_of(random, sides);
}

// The ids of one batch row, in a realistic or an unusual order.
std::vector<int32_t> row_of_ids(Random& random, int64_t n) {
  std::vector<int32_t> ids(static_cast<size_t>(n), 0);
  const int64_t kind = uniform(random, 0, 9);
  int64_t at = 0;
  int64_t next = 0;
  const int64_t mean = uniform(random, 1, std::max<int64_t>(2, n));
  while (at < n) {
    int64_t run = uniform(random, 1, mean);
    int64_t id = next;
    switch (kind) {
      case 0:  // packed, ascending
      case 1:
        ++next;
        break;
      case 2:  // A, B, A and the like
        id = uniform(random, 0, 2);
        break;
      case 3:  // documents of one token
        run = 1;
        ++next;
        break;
      case 4:  // two documents token by token
        run = 1;
        next = 1 - next;
        break;
      case 5:  // any id for any token
        run = 1;
        id = uniform(random, -1, 3);
        break;
      case 6:  // padding between documents
        id = chance(random, 40) ? -1 : next++;
        break;
      case 7:  // all or mostly padding
        id = chance(random, 80) ? -1 : 7;
        break;
      case 8: {  // extreme ids, unordered
        static constexpr int32_t far[] = {
            std::numeric_limits<int32_t>::max(),
            std::numeric_limits<int32_t>::max() - 1,
            std::numeric_limits<int32_t>::min(),
            -2,
            0,
            1 << 20};
        id = one_of(random, far);
        break;
      }
      default:  // one document
        run = n;
        break;
    }
    for (; run > 0 && at < n; --run) {
      ids[static_cast<size_t>(at++)] = static_cast<int32_t>(id);
    }
  }
  if (chance(random, 35)) {  // padding at the end
    for (int64_t j = uniform(random, 0, n); j < n; ++j) {
      ids[static_cast<size_t>(j)] = -1;
    }
  }
  return ids;
}

// A count: 0, `most`, or between.
int64_t some_count(Random& random, int64_t most) {
  const int64_t kind = uniform(random, 0, 9);
  if (kind == 0) return 0;
  if (kind <= 2) return most;
  return uniform(random, 0, most);
}

// The number of keys that the counts of a row allow; absent counts allow all.
int64_t keys_left(const RandomCase& c, size_t b) {
  int64_t left = c.kv_len;
  if (c.valid_tokens) left = std::min<int64_t>(left, (*c.valid_tokens)[b]);
  if (c.valid_slots) {
    left = std::min<int64_t>(left, (*c.valid_slots)[b] * c.base_block_tokens);
  }
  return left;
}

bool any_mask(const RandomCase& c, bool (*names)(const Expr&)) {
  return std::any_of(c.masks.begin(), c.masks.end(), names);
}

bool names_segments(const Expr& e) { return names_atom(e, Atom::segments); }
bool names_prefix(const Expr& e) { return names_atom(e, Atom::prefix); }
bool names_tree(const Expr& e) { return names_atom(e, Atom::tree); }
bool names_same(const Expr& e) { return names_atom(e, Atom::same); }

// Whether every query that no count excludes must be at the position of a key.
bool stands_on_keys(const RandomCase& c) {
  return any_mask(c, names_tree) || any_mask(c, names_same) ||
         (any_mask(c, names_ids) && !c.q_doc_ids);
}

bool queries_have_keys(const RandomCase& c) {
  if (!stands_on_keys(c)) return true;
  for (size_t b = 0; b < static_cast<size_t>(c.batch); ++b) {
    const int64_t first = c.q_offsets ? (*c.q_offsets)[b] : c.kv_len - c.q_len;
    const int64_t last = first + c.q_len - 1;
    if (first < 0) return false;
    // A count is at most kv_len, so it excludes queries past the keys.
    if (last >= c.kv_len && !c.valid_tokens && !c.valid_slots) return false;
  }
  return true;
}

int64_t block_of_picks(const Expr& e) {
  if (e.atom == Atom::blocks) return e.a;
  if (e.atom == Atom::routed) return e.b;
  int64_t found = 0;
  for (const Expr& child : e.children) {
    found = std::max(found, block_of_picks(child));
  }
  return found;
}

int64_t block_of_picks(const RandomCase& c) {
  int64_t found = 0;
  for (const Expr& mask : c.masks) {
    found = std::max(found, block_of_picks(mask));
  }
  return found;
}

}  // namespace

Facts RandomCase::facts() const {
  Facts f;
  const auto view = [](const std::optional<std::vector<int32_t>>& v) {
    return v ? std::optional<Ints>(Ints(*v)) : std::nullopt;
  };
  f.doc_ids = view(doc_ids);
  f.q_doc_ids = view(q_doc_ids);
  f.valid_token_counts = view(valid_tokens);
  f.valid_slot_counts = view(valid_slots);
  f.base_block_tokens = base_block_tokens;
  f.prefix_lengths = view(prefix);
  f.q_offsets = view(q_offsets);
  f.tree_enter = view(tree_enter);
  f.tree_leave = view(tree_leave);
  f.same_ids[0] = view(same_a);
  f.same_ids[1] = view(same_b);
  if (picks) {
    f.picks = Picks{.blocks = *picks, .heads = pick_heads, .k = pick_k};
  }
  return f;
}

Request RandomCase::shape() const {
  Request r;
  r.batch = batch;
  r.q_len = q_len;
  r.kv_len = kv_len;
  r.tile = tile;
  return r;
}

Result<Request> RandomCase::request() const {
  Request r = shape();
  for (const Expr& e : masks) {
    Result<Mask> mask = make_mask(e);
    if (!mask.ok()) return mask.error();
    r.masks.push_back(std::move(mask).value());
  }
  return r;
}

Expr random_expr(Random& random, int depth, int64_t pick_block) {
  const int64_t kind = depth <= 0 ? 0 : uniform(random, 0, 9);
  if (kind < 3) return random_atom(random, pick_block);
  if (kind == 3) {
    return join(Atom::op_not, {random_expr(random, depth - 1, pick_block)});
  }
  std::vector<Expr> children;
  const int64_t n = chance(random, 75) ? 2 : uniform(random, 2, 4);
  for (int64_t i = 0; i < n; ++i) {
    children.push_back(random_expr(random, depth - 1, pick_block));
  }
  return join(kind < 7 ? Atom::op_and : Atom::op_or, std::move(children));
}

namespace {

Expr random_mask(Random& random, int64_t pick_block) {
  Expr mask;
  if (chance(random, 40)) {
    mask = realistic(random, pick_block);
  } else if (chance(random, 6)) {
    mask = wide(random, pick_block);
  } else {
    // With more terms a mask could exceed its limit.
    do {
      const int depth = static_cast<int>(uniform(random, 0, 4));
      mask = random_expr(random, depth, pick_block);
    } while (terms(mask) > 30);
  }
  // A name that is simplified away must still exclude padding, and still decide
  // what a sink counts within.
  if (chance(random, 12)) {
    Expr name = node(chance(random, 50) ? Atom::documents : Atom::segments);
    if (chance(random, 50)) {
      mask = join(Atom::op_and,
                  {std::move(mask),
                   join(Atom::op_or, {node(Atom::full), std::move(name)})});
    } else {
      Expr nothing = join(Atom::op_not, {node(Atom::full)});
      mask = join(Atom::op_or,
                  {std::move(mask),
                   join(Atom::op_and, {std::move(nothing), std::move(name)})});
    }
  }
  return mask;
}

void draw_counts(Random& random, RandomCase& c) {
  const size_t rows = static_cast<size_t>(c.batch);
  if (chance(random, 45)) {
    c.valid_tokens.emplace();
    for (size_t b = 0; b < rows; ++b) {
      c.valid_tokens->push_back(
          static_cast<int32_t>(some_count(random, c.kv_len)));
    }
  }
  if (chance(random, 15)) {
    c.base_block_tokens = uniform(random, 1, c.kv_len + 3);
    const int64_t most =
        (c.kv_len + c.base_block_tokens - 1) / c.base_block_tokens;
    c.valid_slots.emplace();
    for (size_t b = 0; b < rows; ++b) {
      c.valid_slots->push_back(static_cast<int32_t>(some_count(random, most)));
    }
  }
}

void draw_ids(Random& random, RandomCase& c) {
  const size_t rows = static_cast<size_t>(c.batch);
  const bool ids = any_mask(c, names_ids);
  if (ids || chance(random, 10)) {
    c.doc_ids.emplace();
    for (size_t b = 0; b < rows; ++b) {
      const std::vector<int32_t> row = row_of_ids(random, c.kv_len);
      c.doc_ids->insert(c.doc_ids->end(), row.begin(), row.end());
    }
    if (!any_mask(c, names_segments) && chance(random, 25)) {
      c.q_doc_ids.emplace();
      for (size_t b = 0; b < rows; ++b) {
        const std::vector<int32_t> row = row_of_ids(random, c.q_len);
        c.q_doc_ids->insert(c.q_doc_ids->end(), row.begin(), row.end());
      }
    }
  }
}

void draw_offsets(Random& random, RandomCase& c) {
  const size_t rows = static_cast<size_t>(c.batch);
  if (chance(random, 45)) {
    c.q_offsets.emplace();
    for (size_t b = 0; b < rows; ++b) {
      // With ids, positions must be on the keys, or past a count.
      const bool counted = c.valid_tokens || c.valid_slots;
      const bool on_keys = stands_on_keys(c);
      const int64_t low = on_keys ? 0 : -c.q_len - 20;
      int64_t high = on_keys && !counted ? c.kv_len - c.q_len : c.kv_len + 20;
      if (high < low) high = low;
      int64_t offset = uniform(random, low, high);
      if (chance(random, 30)) {
        offset = std::clamp<int64_t>(c.kv_len - c.q_len, low, high);
      }
      if (!on_keys && chance(random, 3))
        offset = chance(random, 50) ? -(1 << 30) : 1 << 30;
      c.q_offsets->push_back(static_cast<int32_t>(offset));
    }
  }
  // If queries would be outside the keys, q_len is reduced.
  if (!queries_have_keys(c) && c.q_len > c.kv_len) {
    c.q_len = uniform(random, 1, c.kv_len);
    if (c.q_doc_ids) {
      c.q_doc_ids->resize(rows * static_cast<size_t>(c.q_len));
    }
    if (c.q_offsets) {
      for (int32_t& offset : *c.q_offsets) {
        offset = static_cast<int32_t>(
            uniform(random, 0, std::max<int64_t>(0, c.kv_len - c.q_len)));
      }
    }
  }
}

// Draws prefixes, trees and ids of same(a) and same(b), if a mask names them.
void draw_key_facts(Random& random, RandomCase& c) {
  const size_t rows = static_cast<size_t>(c.batch);
  if (any_mask(c, names_prefix) || chance(random, 5)) {
    c.prefix.emplace();
    for (size_t b = 0; b < rows; ++b) {
      c.prefix->push_back(
          static_cast<int32_t>(some_count(random, keys_left(c, b))));
    }
  }

  if (any_mask(c, names_tree)) {
    c.tree_enter.emplace();
    c.tree_leave.emplace();
    for (size_t b = 0; b < rows; ++b) {
      append_random_tree(random, c.kv_len, keys_left(c, b), *c.tree_enter,
                         *c.tree_leave);
    }
  }

  if (any_mask(c, names_same)) {
    for (auto* named : {&c.same_a, &c.same_b}) {
      named->emplace();
      for (size_t b = 0; b < rows; ++b) {
        const std::vector<int32_t> row = row_of_ids(random, c.kv_len);
        (*named)->insert((*named)->end(), row.begin(), row.end());
      }
    }
  }
}

void draw_picks(Random& random, int64_t groups, RandomCase& c) {
  // Pick heads are as many as the groups, a multiple or a divisor.
  c.pick_heads = groups;
  if (chance(random, 40)) c.pick_heads = groups * uniform(random, 1, 3);
  if (chance(random, 40)) c.pick_heads = 1;
  if (groups == 4 && chance(random, 50)) c.pick_heads = 2;
  const int64_t n = block_of_picks(c);
  const int64_t most = (c.kv_len + n - 1) / n;
  c.pick_k = uniform(random, 1, std::min<int64_t>(6, most + 1));
  c.picks.emplace();
  for (int64_t q = 0; q < c.batch * c.pick_heads * c.q_len; ++q) {
    std::vector<int32_t> slots;
    for (int64_t s = 0; s < c.pick_k; ++s) {
      int32_t pick = static_cast<int32_t>(uniform(random, 0, most - 1));
      if (chance(random, 25)) {
        pick = -1;
      }
      if (!slots.empty() && chance(random, 10)) pick = slots.front();
      slots.push_back(pick);
    }
    c.picks->insert(c.picks->end(), slots.begin(), slots.end());
  }
}

}  // namespace

RandomCase random_case(uint64_t seed) {
  Random random(seed * 0x9E3779B97F4A7C15u + 1);
  RandomCase c;
  c.seed = seed;
  c.batch = uniform(random, 1, 3);
  c.kv_len = length(random);
  const int64_t lengths = uniform(random, 0, 9);
  c.q_len = lengths < 4   ? c.kv_len
            : lengths < 5 ? 1
            : lengths < 7 ? uniform(random, 1, c.kv_len)
                          : length(random);
  c.tile.q = tile_side(random);
  c.tile.kv = chance(random, 40) ? c.tile.q : tile_side(random);

  int64_t pick_block = 0;
  if (chance(random, 25)) {
    static constexpr int64_t sizes[] = {1, 2, 7, 8, 9, 16, 64, 1000};
    pick_block = one_of(random, sizes);
  }
  const int64_t groups = chance(random, 70) ? 1 : uniform(random, 2, 4);
  for (int64_t g = 0; g < groups; ++g) {
    c.masks.push_back(random_mask(random, pick_block));
  }

  draw_counts(random, c);
  draw_ids(random, c);
  draw_offsets(random, c);
  draw_key_facts(random, c);
  if (any_mask(c, names_picks)) draw_picks(random, groups, c);
  return c;
}

bool well_formed(const RandomCase& c) {
  if (c.masks.empty() || c.batch < 1 || c.q_len < 1 || c.kv_len < 1) {
    return false;
  }
  const size_t rows = static_cast<size_t>(c.batch);
  const size_t queries = rows * static_cast<size_t>(c.q_len);
  const size_t keys = rows * static_cast<size_t>(c.kv_len);
  if (c.doc_ids && c.doc_ids->size() != keys) return false;
  if (c.q_doc_ids && c.q_doc_ids->size() != queries) return false;
  for (const auto* v :
       {&c.valid_tokens, &c.valid_slots, &c.prefix, &c.q_offsets}) {
    if (*v && (*v)->size() != rows) return false;
  }
  if (any_mask(c, names_prefix) && !c.prefix) return false;
  if (c.valid_slots && c.base_block_tokens < 1) return false;
  for (size_t b = 0; b < rows; ++b) {
    if (c.valid_tokens &&
        ((*c.valid_tokens)[b] < 0 || (*c.valid_tokens)[b] > c.kv_len)) {
      return false;
    }
    if (c.valid_slots &&
        ((*c.valid_slots)[b] < 0 ||
         (*c.valid_slots)[b] >
             (c.kv_len + c.base_block_tokens - 1) / c.base_block_tokens)) {
      return false;
    }
    if (c.prefix && ((*c.prefix)[b] < 0 || (*c.prefix)[b] > keys_left(c, b))) {
      return false;
    }
  }
  if (any_mask(c, names_ids)) {
    if (!c.doc_ids) return false;
    if (c.q_doc_ids && any_mask(c, names_segments)) return false;
  }
  if (!queries_have_keys(c)) return false;
  if (any_mask(c, names_tree)) {
    if (!c.tree_enter || !c.tree_leave || c.tree_enter->size() != keys ||
        c.tree_leave->size() != keys) {
      return false;
    }
    for (size_t b = 0; b < rows; ++b) {
      const size_t at = b * static_cast<size_t>(c.kv_len);
      if (!is_tree(c.tree_enter->data() + at, c.tree_leave->data() + at,
                   keys_left(c, b))) {
        return false;
      }
    }
  } else if (c.tree_enter || c.tree_leave) {
    return false;  // nothing reads them; leave them out
  }
  for (const auto* ids : {&c.same_a, &c.same_b}) {
    // Ids that no mask reads must be absent.
    if (any_mask(c, names_same) != ids->has_value()) return false;
    if (*ids && (*ids)->size() != keys) return false;
  }
  if (any_mask(c, names_picks)) {
    if (!c.picks || c.pick_heads < 1 || c.pick_k < 1) return false;
    const size_t slots = rows * static_cast<size_t>(c.pick_heads * c.pick_k) *
                         static_cast<size_t>(c.q_len);
    if (c.picks->size() != slots) return false;
    const int64_t groups = static_cast<int64_t>(c.masks.size());
    if (std::max(groups, c.pick_heads) % std::min(groups, c.pick_heads) != 0) {
      return false;
    }
    const int64_t n = block_of_picks(c);
    for (const int32_t pick : *c.picks) {
      if (pick < -1 || pick >= (c.kv_len + n - 1) / n) return false;
    }
  } else if (c.picks) {
    return false;  // nothing reads them; leave them out
  }
  return true;
}

std::string spell(const Expr& e) {
  const auto call = [](const char* name, std::initializer_list<int64_t> args) {
    std::string text = std::string(name) + "(";
    for (const int64_t arg : args) {
      if (text.back() != '(') text += ", ";
      text += std::to_string(arg);
    }
    return text + ")";
  };
  switch (e.atom) {
    case Atom::full:
      return "full";
    case Atom::causal:
      return "causal";
    case Atom::window:
      return call("window", {e.a, e.b});
    case Atom::chunk:
      return call("chunk", {e.a});
    case Atom::prefix:
      return "prefix";
    case Atom::documents:
      return "documents";
    case Atom::segments:
      return "segments";
    case Atom::sink:
      return call("sink", {e.a});
    case Atom::blocks:
      return call("blocks", {e.a});
    case Atom::routed:
      return call("routed", {e.a, e.b});
    case Atom::tree:
      return "tree";
    case Atom::same:
      return e.a == 0 ? "same(a)" : "same(b)";
    case Atom::op_not:
      return "!" + spell(e.children[0]);
    case Atom::op_and:
    case Atom::op_or: {
      std::string text = "(";
      for (const Expr& child : e.children) {
        if (text != "(") text += e.atom == Atom::op_and ? " & " : " | ";
        text += spell(child);
      }
      return text + ")";
    }
  }
  return "?";
}

std::string describe(const RandomCase& c) {
  std::string text = "seed " + std::to_string(c.seed) + ": tessera check";
  for (const Expr& mask : c.masks) text += " --mask '" + spell(mask) + "'";
  text += " --q-len " + std::to_string(c.q_len) + " --kv-len " +
          std::to_string(c.kv_len) + " --batch " + std::to_string(c.batch) +
          " --tile " + std::to_string(c.tile.q) + "x" +
          std::to_string(c.tile.kv);
  const auto list = [&text](const char* name,
                            const std::optional<std::vector<int32_t>>& v) {
    if (!v) return;
    text += std::string("\n  ") + name + ":";
    for (const int32_t x : *v) text += " " + std::to_string(x);
  };
  const auto runs = [&](const char* name,
                        const std::optional<std::vector<int32_t>>& v) {
    if (!v) return;
    const size_t n = v->size() / static_cast<size_t>(c.batch);
    for (size_t b = 0; b < static_cast<size_t>(c.batch); ++b) {
      text += std::string("\n  ") + name + "[" + std::to_string(b) + "]:";
      for (size_t at = b * n; at < (b + 1) * n;) {
        size_t end = at;
        while (end < (b + 1) * n && (*v)[end] == (*v)[at]) ++end;
        text += " " + std::to_string((*v)[at]);
        if (end - at > 1) text += "x" + std::to_string(end - at);
        at = end;
      }
    }
  };
  list("q_offsets", c.q_offsets);
  list("valid_token_counts", c.valid_tokens);
  list("valid_slot_counts", c.valid_slots);
  if (c.valid_slots) {
    text += "\n  base_block_tokens: " + std::to_string(c.base_block_tokens);
  }
  list("prefix_lengths", c.prefix);
  runs("doc_ids", c.doc_ids);
  list("tree_enter", c.tree_enter);
  list("tree_leave", c.tree_leave);
  runs("q_doc_ids", c.q_doc_ids);
  runs("same_a", c.same_a);
  runs("same_b", c.same_b);
  if (c.picks) {
    text += "\n  pick heads " + std::to_string(c.pick_heads) + ", k " +
            std::to_string(c.pick_k);
    list("picks", c.picks);
  }
  return text + "\n";
}

namespace {

using Array = std::optional<std::vector<int32_t>>;

// Keeps `keep` of every `period` elements: the first, or the last ones.
void cut(Array& v, int64_t period, int64_t keep, bool from_front) {
  if (!v) return;
  std::vector<int32_t> out;
  const int64_t n = static_cast<int64_t>(v->size());
  for (int64_t at = 0; at < n; ++at) {
    const int64_t in = at % period;
    if (from_front ? in >= period - keep : in < keep) {
      out.push_back((*v)[static_cast<size_t>(at)]);
    }
  }
  *v = std::move(out);
}

void keep_batch_row(RandomCase& c, int64_t b) {
  const auto keep = [&](Array& v) {
    if (!v) return;
    const auto n = static_cast<int64_t>(v->size()) / c.batch;
    *v = std::vector<int32_t>(v->begin() + b * n, v->begin() + (b + 1) * n);
  };
  for (Array* v : {&c.doc_ids, &c.q_doc_ids, &c.valid_tokens, &c.valid_slots,
                   &c.prefix, &c.q_offsets, &c.picks, &c.tree_enter,
                   &c.tree_leave, &c.same_a, &c.same_b}) {
    keep(*v);
  }
  c.batch = 1;
}

void cut_queries(RandomCase& c, int64_t keep, bool from_front) {
  // Makes the default offset explicit, as it depends on the length.
  if (!c.q_offsets) {
    c.q_offsets.emplace(static_cast<size_t>(c.batch),
                        static_cast<int32_t>(c.kv_len - c.q_len));
  }
  if (from_front) {
    for (int32_t& offset : *c.q_offsets) {
      const int64_t moved = int64_t{offset} + c.q_len - keep;
      offset = static_cast<int32_t>(std::min<int64_t>(moved, INT32_MAX));
    }
  }
  cut(c.q_doc_ids, c.q_len, keep, from_front);
  cut(c.picks, c.q_len * c.pick_k, keep * c.pick_k, from_front);
  c.q_len = keep;
}

void cut_keys(RandomCase& c, int64_t keep) {
  if (!c.q_offsets) {
    c.q_offsets.emplace(static_cast<size_t>(c.batch),
                        static_cast<int32_t>(c.kv_len - c.q_len));
  }
  for (Array* v :
       {&c.doc_ids, &c.tree_enter, &c.tree_leave, &c.same_a, &c.same_b}) {
    cut(*v, c.kv_len, keep, false);
  }
  c.kv_len = keep;
  for (size_t b = 0; b < static_cast<size_t>(c.batch); ++b) {
    const auto limit = [&](Array& v, int64_t most) {
      if (v) (*v)[b] = static_cast<int32_t>(std::min<int64_t>((*v)[b], most));
    };
    limit(c.valid_tokens, keep);
    if (c.valid_slots) {
      limit(c.valid_slots,
            (keep + c.base_block_tokens - 1) / c.base_block_tokens);
    }
    limit(c.prefix, keys_left(c, b));
  }
  if (c.picks) {
    const int64_t n = std::max<int64_t>(1, block_of_picks(c));
    for (int32_t& pick : *c.picks) {
      if (pick >= (keep + n - 1) / n) pick = -1;
    }
  }
}

// Removes the first `gone` keys and moves everything down.
void cut_first_keys(RandomCase& c, int64_t gone) {
  if (!c.q_offsets) {
    c.q_offsets.emplace(static_cast<size_t>(c.batch),
                        static_cast<int32_t>(c.kv_len - c.q_len));
  }
  for (Array* v :
       {&c.doc_ids, &c.tree_enter, &c.tree_leave, &c.same_a, &c.same_b}) {
    cut(*v, c.kv_len, c.kv_len - gone, true);
  }
  c.kv_len -= gone;
  const auto lower = [&](Array& v, int64_t by, int64_t least) {
    if (!v) return;
    for (int32_t& x : *v) {
      x = static_cast<int32_t>(std::max<int64_t>(x - by, least));
    }
  };
  lower(c.q_offsets, gone, INT32_MIN);
  lower(c.valid_tokens, gone, 0);
  lower(c.prefix, gone, 0);
  if (c.valid_slots) lower(c.valid_slots, gone / c.base_block_tokens, 0);
  lower(c.picks, gone / std::max<int64_t>(1, block_of_picks(c)), -1);
}

// Every expression that is one node smaller or has one smaller argument.
void smaller(const Expr& e, std::vector<Expr>& out) {
  for (size_t i = 0; i < e.children.size(); ++i) {
    out.push_back(e.children[i]);
    if (e.children.size() > 2) {
      Expr fewer = e;
      fewer.children.erase(fewer.children.begin() + static_cast<long>(i));
      out.push_back(std::move(fewer));
    }
  }
  for (size_t i = 0; i < e.children.size(); ++i) {
    std::vector<Expr> inner;
    smaller(e.children[i], inner);
    for (Expr& child : inner) {
      Expr changed = e;
      changed.children[i] = std::move(child);
      out.push_back(std::move(changed));
    }
  }
  if (e.atom == Atom::window || e.atom == Atom::chunk || e.atom == Atom::sink) {
    const int64_t least = e.atom == Atom::chunk ? 1 : 0;
    for (const int64_t a : {least, e.a / 2, e.a - 1}) {
      if (a < least || a >= e.a) continue;
      Expr changed = e;
      changed.a = a;
      out.push_back(std::move(changed));
    }
    for (const int64_t b : {int64_t{0}, e.b / 2, e.b - 1}) {
      if (e.atom != Atom::window || b < 0 || b >= e.b) continue;
      Expr changed = e;
      changed.b = b;
      out.push_back(std::move(changed));
    }
  }
  if (e.atom != Atom::full && e.children.empty()) {
    out.push_back(node(Atom::full));
  }
}

// The well-formed cases that are one step smaller than a case.
class SmallerCases {
 public:
  explicit SmallerCases(const RandomCase& c) : c_(c) {}

  std::vector<RandomCase> all() {
    keep_one_batch_row();
    keep_fewer_masks();
    cut_tokens();
    simplify_masks();
    leave_out_facts();
    shrink_tiles();
    change_one_value();
    return std::move(out_);
  }

 private:
  void with(auto change) {
    RandomCase next = c_;
    change(next);
    // Facts that no mask names any more are removed.
    if (next.picks && !any_mask(next, names_picks)) {
      next.picks.reset();
      next.pick_heads = 1;
      next.pick_k = 0;
    }
    if (!any_mask(next, names_tree)) {
      next.tree_enter.reset();
      next.tree_leave.reset();
    }
    if (!any_mask(next, names_same)) {
      next.same_a.reset();
      next.same_b.reset();
    }
    if (well_formed(next)) out_.push_back(std::move(next));
  }

  void keep_one_batch_row() {
    if (c_.batch < 2) return;
    for (int64_t b = 0; b < c_.batch; ++b) {
      with([b](RandomCase& n) { keep_batch_row(n, b); });
    }
  }

  void keep_fewer_masks() {
    if (c_.masks.size() < 2) return;
    for (size_t g = 0; g < c_.masks.size(); ++g) {
      with([g](RandomCase& n) { n.masks = {n.masks[g]}; });
      with([g](RandomCase& n) {
        n.masks.erase(n.masks.begin() + static_cast<long>(g));
      });
    }
  }

  void cut_tokens() {
    for (const int64_t keep :
         {c_.q_len / 2, c_.q_len - c_.q_len / 4, c_.q_len - 8, c_.q_len - 1}) {
      if (keep < 1 || keep >= c_.q_len) continue;
      with([keep](RandomCase& n) { cut_queries(n, keep, false); });
      with([keep](RandomCase& n) { cut_queries(n, keep, true); });
    }
    for (const int64_t keep : {c_.kv_len / 2, c_.kv_len - c_.kv_len / 4,
                               c_.kv_len - 8, c_.kv_len - 1}) {
      if (keep < 1 || keep >= c_.kv_len) continue;
      with([keep](RandomCase& n) { cut_keys(n, keep); });
      with([keep](RandomCase& n) { cut_first_keys(n, n.kv_len - keep); });
    }
  }

  void simplify_masks() {
    for (size_t g = 0; g < c_.masks.size(); ++g) {
      std::vector<Expr> masks;
      smaller(c_.masks[g], masks);
      for (Expr& mask : masks) {
        with([&](RandomCase& n) { n.masks[g] = std::move(mask); });
      }
    }
  }

  void leave_out_facts() {
    if (c_.doc_ids) with([](RandomCase& n) { n.doc_ids.reset(); });
    if (c_.q_doc_ids) with([](RandomCase& n) { n.q_doc_ids.reset(); });
    if (c_.valid_tokens) with([](RandomCase& n) { n.valid_tokens.reset(); });
    if (c_.valid_slots) with([](RandomCase& n) { n.valid_slots.reset(); });
    if (c_.prefix) with([](RandomCase& n) { n.prefix.reset(); });
    if (c_.q_offsets) with([](RandomCase& n) { n.q_offsets.reset(); });
    if (c_.pick_heads > 1) {
      with([](RandomCase& n) {
        const int64_t one = n.q_len * n.pick_k;
        cut(n.picks, one * n.pick_heads, one, false);
        n.pick_heads = 1;
      });
    }
  }

  void shrink_tiles() {
    if (c_.tile.q > 8) with([](RandomCase& n) { n.tile.q = 8; });
    if (c_.tile.kv > 8) with([](RandomCase& n) { n.tile.kv = 8; });
  }

  void change_one_value() {
    // Sets one id at a time to that of the token before it, which joins runs.
    if (c_.doc_ids && c_.doc_ids->size() <= 64) {
      for (size_t j = 1; j < c_.doc_ids->size(); ++j) {
        if ((*c_.doc_ids)[j] == (*c_.doc_ids)[j - 1]) continue;
        with([j](RandomCase& n) { (*n.doc_ids)[j] = (*n.doc_ids)[j - 1]; });
      }
    }
    if (c_.picks && c_.picks->size() <= 64) {
      for (size_t at = 0; at < c_.picks->size(); ++at) {
        if ((*c_.picks)[at] == -1) continue;
        with([at](RandomCase& n) { (*n.picks)[at] = -1; });
      }
    }
  }

  const RandomCase& c_;
  std::vector<RandomCase> out_;
};

}  // namespace

RandomCase shrink(RandomCase c, const Failing& fails, int budget) {
  bool found = true;
  while (found && budget > 0) {
    found = false;
    for (RandomCase& next : SmallerCases(c).all()) {
      if (--budget < 0) break;
      if (fails(next)) {
        c = std::move(next);
        found = true;
        break;
      }
    }
  }
  return c;
}

uint64_t first_seed(uint64_t otherwise) {
  const char* text = std::getenv("TESSERA_SEED");
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

int64_t case_count(int64_t otherwise) {
  const char* text = std::getenv("TESSERA_CASES");
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const int64_t n = std::strtoll(text, &end, 10);
  return std::max<int64_t>(1, *end == '%' ? otherwise * n / 100 : n);
}

size_t case_turn() {
  const char* text = std::getenv("TESSERA_CASES_TURN");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

size_t first_case(size_t of) {
  return case_turn() % std::clamp<size_t>(of, 1, case_stride());
}

bool takes_case(size_t number, size_t of) {
  return number % case_stride() == first_case(of);
}

size_t case_stride() {
  const char* text = std::getenv("TESSERA_CASES");
  if (text == nullptr || !std::string_view(text).ends_with('%')) return 1;
  return static_cast<size_t>(std::max<int64_t>(100 / case_count(100), 1)) | 1;
}

}  // namespace tessera::testing
