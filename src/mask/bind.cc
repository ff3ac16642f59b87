// mask/bind.cc: validates a request and its facts.
#include "mask/bind.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/fail.h"
#include "base/integers.h"
#include "mask/canonical.h"

namespace tessera::mask {
namespace {

Result<void> check_range(std::string_view where, std::string_view what,
                         int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  return invalid(where, "{} must be from {} to {}, found {}", what, least, most,
                 value);
}

Result<void> check_size(std::string_view what, const std::optional<Ints>& fact,
                        int64_t batch, int64_t per_row,
                        std::string_view shape) {
  if (!fact) return {};
  const int64_t want = batch * per_row;
  if (static_cast<int64_t>(fact->size()) == want) return {};
  return invalid("facts", "{} must hold {} = {} values, found {}", what, shape,
                 want, fact->size());
}

// Checks that there is one value per batch row, each within [least, most].
Result<void> check_rows(std::string_view what, const std::optional<Ints>& fact,
                        int64_t batch, int64_t least, int64_t most) {
  if (auto e = check_size(what, fact, batch, 1, "[batch]"); !e) return e;
  if (!fact) return {};
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t v = (*fact)[static_cast<size_t>(b)];
    if (v < least || v > most) {
      return invalid("facts", "{} must be from {} to {}, found {} for row {}",
                     what, least, most, v, b);
    }
  }
  return {};
}

Result<void> check_absent(bool named, bool present, std::string_view atom,
                          std::string_view fact) {
  if (!named || present) return {};
  return invalid("facts", "{} needs {}, found none for the mask", atom, fact);
}

// Picks of the meaning union must be equal for all queries of a tile row.
Result<void> check_union(const Request& r, const Picks& p) {
  if (auto e = check_range("facts", "query_tile of picks", p.query_tile, 0,
                           kMaxTokens);
      !e) {
    return e;
  }
  if (p.meaning == RouteMeaning::exact) return {};
  const int64_t tile = p.query_tile > 0 ? p.query_tile : r.tile.q;
  const auto bytes = static_cast<size_t>(p.k) * sizeof(int32_t);
  for (int64_t list = 0; list < r.batch * p.heads; ++list) {
    const int32_t* const row = p.blocks.data() + list * r.q_len * p.k;
    for (int64_t q = 0; q < r.q_len; ++q) {
      const int32_t* const of = row + q * p.k;
      if (std::memcmp(of, row + q / tile * tile * p.k, bytes) == 0) continue;
      return invalid("facts",
                     "picks of the meaning union must be equal for all queries "
                     "of a tile row, found others for query {} of batch row "
                     "{}, head {}",
                     q, list / p.heads, list % p.heads);
    }
  }
  return {};
}

Result<void> check_picks(const Request& r, const Facts& f, const Names& names,
                         Bound& bound) {
  if (!f.picks) return {};
  const Picks& p = *f.picks;
  if (p.heads < 1 || p.heads > kMaxBatch || p.k < 1 || p.k > kMaxTokens) {
    return invalid("facts",
                   "picks must be [batch, heads, q_len, k] with heads and k "
                   "of 1 or more, found heads {} and k {}",
                   p.heads, p.k);
  }
  int64_t want = 0;
  if (__builtin_mul_overflow(r.batch * p.heads, r.q_len, &want) ||
      __builtin_mul_overflow(want, p.k, &want) ||
      want != static_cast<int64_t>(p.blocks.size())) {
    return invalid("facts", "picks must hold [{}, {}, {}, {}] values, found {}",
                   r.batch, p.heads, r.q_len, p.k, p.blocks.size());
  }
  if (!names.picks) return {};
  const int64_t n = ceil_div(r.kv_len, names.picks_block);
  for (size_t i = 0; i < p.blocks.size(); ++i) {
    if (p.blocks[i] < -1 || p.blocks[i] >= n) {
      const int64_t q = static_cast<int64_t>(i) / p.k;
      return invalid("facts",
                     "picks must be from -1 to {}, found {} for batch row {}, "
                     "head {}, query {}",
                     n - 1, p.blocks[i], q / r.q_len / p.heads,
                     q / r.q_len % p.heads, q % r.q_len);
    }
  }
  if (auto e = check_union(r, p); !e) return e;
  bound.meaning = p.meaning;
  bound.picks = p.blocks.data();
  bound.pick_heads = p.heads;
  bound.picks_k = p.k;
  return {};
}

int64_t valid_of(const Request& r, const Facts& f, int64_t b) {
  int64_t valid = r.kv_len;
  if (f.valid_slot_counts) {
    const int64_t slots = (*f.valid_slot_counts)[static_cast<size_t>(b)];
    valid = std::min(valid, slots * f.base_block_tokens);
  }
  if (f.valid_token_counts) {
    valid = std::min<int64_t>(valid,
                              (*f.valid_token_counts)[static_cast<size_t>(b)]);
  }
  return valid;
}

// Each query that its count does not veto must have a position within the keys.
Result<void> check_positions(const Request& r, const BoundRow& row, int64_t b,
                             std::string_view rule, std::string_view remedy) {
  if (row.q_end == 0) return {};
  const int64_t first = row.q_offset;
  const int64_t last = row.q_end - 1 + row.q_offset;
  if (first >= 0 && last < r.kv_len) return {};
  const bool early = first < 0;
  return invalid("facts",
                 "{}, so positions must be from 0 to {}, found {} for query {} "
                 "of batch row {} (give {})",
                 rule, r.kv_len - 1, early ? first : last,
                 early ? 0 : row.q_end - 1, b, remedy);
}

bool has_live_query(const BoundRow& row, bool ids_veto) {
  // If the count vetoes all queries, the offset may lie far outside the ids.
  if (!ids_veto || row.q_end == 0) return row.q_end > 0;
  const int32_t* ids = row.q_ids ? row.q_ids : row.ids + row.q_offset;
  return std::any_of(ids, ids + row.q_end, [](int32_t id) { return id >= 0; });
}

Expr same_of(int64_t name) { return same(static_cast<char>('a' + name)); }

// Checks that every fact that a mask names is given, and its size and range.
Result<void> check_facts(const Request& r, const Facts& f, const Names& names) {
  for (const auto& e : {
           check_absent(names.documents, f.doc_ids.has_value(), "documents",
                        "doc_ids"),
           check_absent(names.segments, f.doc_ids.has_value(), "segments",
                        "doc_ids"),
           check_absent(names.prefix, f.prefix_lengths.has_value(), "prefix",
                        "prefix_lengths"),
           check_absent(names.picks, f.picks.has_value(), "blocks or routed",
                        "picks"),
           check_absent(names.tree, f.tree_enter.has_value(), "tree",
                        "tree_enter"),
           check_absent(names.tree, f.tree_leave.has_value(), "tree",
                        "tree_leave"),
           check_size("doc_ids", f.doc_ids, r.batch, r.kv_len,
                      "[batch, kv_len]"),
           check_size("q_doc_ids", f.q_doc_ids, r.batch, r.q_len,
                      "[batch, q_len]"),
           check_size("tree_enter", f.tree_enter, r.batch, r.kv_len,
                      "[batch, kv_len]"),
           check_size("tree_leave", f.tree_leave, r.batch, r.kv_len,
                      "[batch, kv_len]"),
           check_rows("valid_token_counts", f.valid_token_counts, r.batch, 0,
                      r.kv_len),
           check_rows("q_offset", f.q_offsets, r.batch, -kMaxTokens,
                      kMaxTokens),
       }) {
    if (!e) return e;
  }
  for (int64_t i = 0; i < kSameNames; ++i) {
    const auto& ids = f.same_ids[static_cast<size_t>(i)];
    const std::string fact = same_fact(i);
    const bool named = (names.same >> i & 1) != 0;
    if (auto e =
            check_absent(named, ids.has_value(), to_string(same_of(i)), fact);
        !e) {
      return e;
    }
    if (auto e = check_size(fact, ids, r.batch, r.kv_len, "[batch, kv_len]");
        !e) {
      return e;
    }
  }
  if (names.segments && f.q_doc_ids) {
    return invalid("facts",
                   "segments are runs of the keys' ids, so q_doc_ids must be "
                   "absent, found both");
  }
  if (f.valid_slot_counts) {
    if (auto e = check_range("facts", "base_block_tokens", f.base_block_tokens,
                             1, kMaxTokens);
        !e) {
      return e;
    }
    const int64_t slots = ceil_div(r.kv_len, f.base_block_tokens);
    if (auto e = check_rows("valid_slot_counts", f.valid_slot_counts, r.batch,
                            0, slots);
        !e) {
      return e;
    }
  }
  return check_rows("prefix_lengths", f.prefix_lengths, r.batch, 0,
                    std::numeric_limits<int32_t>::max());
}

// Resets `bound` and keeps only its memory.
void begin_bound(const Request& r, Bound& bound) {
  bound.batch = r.batch;
  bound.q_len = r.q_len;
  bound.kv_len = r.kv_len;
  bound.tile = r.tile;
  bound.masks.clear();
  bound.rows.clear();
  bound.picks = nullptr;
  bound.pick_heads = 1;
  bound.picks_k = 0;
  bound.meaning.reset();
  bound.warnings.clear();
}

// Plan heads: the larger of the number of masks and of heads that pick.
Result<void> bind_heads(const Request& r, Bound& bound) {
  const auto groups = static_cast<int64_t>(r.masks.size());
  bound.heads = std::max(groups, bound.pick_heads);
  if (bound.heads % groups != 0 || bound.heads % bound.pick_heads != 0) {
    return invalid("request",
                   "masks and pick heads must divide one another, found {} "
                   "masks for {} pick heads",
                   groups, bound.pick_heads);
  }
  for (int64_t h = 0; h < bound.heads; ++h) {
    bound.masks.push_back(
        &r.masks[static_cast<size_t>(h * groups / bound.heads)]);
  }
  return {};
}

Result<BoundRow> bind_row(const Request& r, const Facts& f, const Names& names,
                          int64_t b) {
  const auto at = static_cast<size_t>(b);
  const bool counted = f.valid_token_counts || f.valid_slot_counts;
  BoundRow row;
  row.q_offset = q_offset_of(r, f, b);
  row.valid = valid_of(r, f, b);
  row.q_end = counted
                  ? std::clamp<int64_t>(row.valid - row.q_offset, 0, r.q_len)
                  : r.q_len;
  if (f.prefix_lengths) {
    row.prefix = (*f.prefix_lengths)[at];
    if (row.prefix > row.valid) {
      return invalid("facts",
                     "prefix_lengths must be at most the valid count {}, "
                     "found {} for row {}",
                     row.valid, row.prefix, b);
    }
  }
  for (size_t i = 0; i < row.same.size(); ++i) {
    if (names.same >> i & 1) row.same[i] = f.same_ids[i]->data() + b * r.kv_len;
  }
  if (names.same != 0) {
    auto e = check_positions(r, row, b, "a query takes the id at its position",
                             "another q_offset");
    if (!e) return e.error();
  }
  if (names.documents || names.segments) {
    row.ids = f.doc_ids->data() + b * r.kv_len;
    if (f.q_doc_ids) row.q_ids = f.q_doc_ids->data() + b * r.q_len;
    if (!row.q_ids) {
      auto e =
          check_positions(r, row, b, "a query takes the id at its position",
                          "q_doc_ids, or another q_offset");
      if (!e) return e.error();
    }
  }
  return row;
}

// Tokens from the valid count on are padding; their tree entries are not read.
Result<void> bind_tree(const Request& r, const Facts& f, int64_t b,
                       BoundRow& row, Tree& tree) {
  if (auto e =
          check_positions(r, row, b, "a query is the token at its position",
                          "another q_offset");
      !e) {
    return e;
  }
  row.enter = f.tree_enter->data() + b * r.kv_len;
  row.leave = f.tree_leave->data() + b * r.kv_len;
  return read_tree(row.enter, row.leave, row.valid, b, tree);
}

}  // namespace

Result<void> check_request(const Request& r) {
  struct Rule {
    std::string_view what;
    int64_t value, least, most;
  };
  const Rule rules[] = {
      {"batch", r.batch, 1, kMaxBatch},
      {"q_len", r.q_len, 1, kMaxTokens},
      {"kv_len", r.kv_len, 1, kMaxTokens},
      {"tile q", r.tile.q, kMinBlock, kMaxBlock},
      {"tile kv", r.tile.kv, kMinBlock, kMaxBlock},
      {"max_steps", r.ceilings.max_steps, 0, kMaxCeiling},
      {"max_width", r.ceilings.max_width, 0, kMaxCeiling},
      {"max_union", r.ceilings.max_union, 0, kMaxCeiling},
  };
  for (const Rule& rule : rules) {
    if (auto e = check_range("request", rule.what, rule.value, rule.least,
                             rule.most);
        !e) {
      return e;
    }
  }
  if (r.masks.empty()) {
    return invalid("request", "masks must be one or more, found 0");
  }
  for (const Mask& mask : r.masks) {
    if (auto e = check_mask(mask); !e) return e;
  }
  return {};
}

Names names_of(const Request& request) {
  Names all;
  for (const Mask& mask : request.masks) {
    const Names& n = mask.names;
    all.prefix |= n.prefix;
    all.documents |= n.documents;
    all.segments |= n.segments;
    all.tree |= n.tree;
    all.same |= n.same;
    if (n.picks) {
      all.picks = true;
      all.picks_block = n.picks_block;
    }
  }
  return all;
}

Result<void> bind(const Request& r, const Facts& facts, Bound& bound) {
  if (auto e = check_request(r); !e) return e;
  const Names names = names_of(r);
  for (const Mask& mask : r.masks) {
    if (mask.names.picks && mask.names.picks_block != names.picks_block) {
      return invalid("mask",
                     "blocks and routed share the picks, so one block size, "
                     "found {} and {}",
                     mask.names.picks_block, names.picks_block);
    }
  }
  if (auto e = check_facts(r, facts, names); !e) return e;
  begin_bound(r, bound);
  if (auto e = check_picks(r, facts, names, bound); !e) return e;
  if (auto e = bind_heads(r, bound); !e) return e;
  const bool all_name_ids = std::all_of(
      r.masks.begin(), r.masks.end(),
      [](const Mask& m) { return m.names.documents || m.names.segments; });
  bound.trees.resize(names.tree ? static_cast<size_t>(r.batch) : 0);
  for (int64_t b = 0; b < r.batch; ++b) {
    auto row = bind_row(r, facts, names, b);
    if (!row) return row.error();
    if (names.tree) {
      Tree& tree = bound.trees[static_cast<size_t>(b)];
      if (auto e = bind_tree(r, facts, b, *row, tree); !e) return e;
    }
    if (!has_live_query(*row, all_name_ids)) {
      bound.warnings.push_back(fmt::format(
          "[plan] a batch row should have a query that no veto forbids, found "
          "none for row {}",
          b));
    }
    bound.rows.push_back(*row);
  }
  return {};
}

Result<Bound> bind(const Request& request, const Facts& facts) {
  Bound bound;
  if (auto e = bind(request, facts, bound); !e) return e.error();
  return bound;
}

}  // namespace tessera::mask
