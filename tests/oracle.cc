// tests/oracle.cc: brute-force legality from the definitions.
#include "tests/oracle.h"

#include <algorithm>
#include <utility>

namespace tessera::testing {

bool names_atom(const Expr& e, Atom atom) {
  if (e.atom == atom) return true;
  for (const Expr& child : e.children) {
    if (names_atom(child, atom)) return true;
  }
  return false;
}

bool names_ids(const Expr& e) {
  return names_atom(e, Atom::documents) || names_atom(e, Atom::segments);
}

bool names_picks(const Expr& e) {
  return names_atom(e, Atom::blocks) || names_atom(e, Atom::routed);
}

int64_t floor_divide(int64_t a, int64_t n) {
  int64_t quotient = a / n;
  if (quotient * n > a) --quotient;
  return quotient;
}

Oracle::Oracle(std::vector<Expr> as_written, const Request& request,
               const Facts& facts)
    : masks_(std::move(as_written)),
      batch_(request.batch),
      q_len_(request.q_len),
      kv_len_(request.kv_len),
      tile_(request.tile),
      facts_(facts) {
  // Pick heads count only if a mask names picks.
  bool any_picks = false;
  for (const Expr& mask : masks_) any_picks = any_picks || names_picks(mask);
  if (any_picks && facts_.picks) pick_heads_ = facts_.picks->heads;
  heads_ = std::max<int64_t>(static_cast<int64_t>(masks_.size()), pick_heads_);

  for (int64_t b = 0; b < batch_; ++b) rows_.push_back(make_row(b));
}

Oracle::Row Oracle::make_row(int64_t b) const {
  Row row;
  add_counts(b, row);
  const auto at = static_cast<size_t>(b);
  if (facts_.prefix_lengths) row.prefix = (*facts_.prefix_lengths)[at];
  const int64_t offset =
      facts_.q_offsets ? (*facts_.q_offsets)[at] : kv_len_ - q_len_;
  for (int64_t i = 0; i < q_len_; ++i) row.position.push_back(i + offset);
  if (facts_.tree_enter && facts_.tree_leave) {
    row.enter = of_keys(facts_.tree_enter, b);
    row.leave = of_keys(facts_.tree_leave, b);
  }
  for (const std::optional<Ints>& ids : facts_.same_ids) {
    row.groups.push_back(of_keys(ids, b));
  }
  if (facts_.doc_ids) {
    add_key_ids(b, row);
    add_query_ids(b, row);
  }
  return row;
}

std::vector<int64_t> Oracle::of_keys(const std::optional<Ints>& values,
                                     int64_t b) const {
  std::vector<int64_t> out;
  for (int64_t j = b * kv_len_; values && j < (b + 1) * kv_len_; ++j) {
    out.push_back((*values)[static_cast<size_t>(j)]);
  }
  return out;
}

void Oracle::add_counts(int64_t b, Row& row) const {
  const auto at = static_cast<size_t>(b);
  // An absent count excludes nothing, so without one a query may be past the
  // last key. With both counts the smaller one is used.
  if (facts_.valid_token_counts) {
    row.has_count = true;
    row.count = (*facts_.valid_token_counts)[at];
  }
  if (facts_.valid_slot_counts) {
    int64_t tokens = (*facts_.valid_slot_counts)[at] * facts_.base_block_tokens;
    if (tokens > kv_len_) tokens = kv_len_;
    if (!row.has_count || tokens < row.count) row.count = tokens;
    row.has_count = true;
  }
}

void Oracle::add_key_ids(int64_t b, Row& row) const {
  row.k_doc = of_keys(facts_.doc_ids, b);
  int64_t run = 0;
  for (size_t j = 0; j < row.k_doc.size(); ++j) {
    if (j > 0 && row.k_doc[j] != row.k_doc[j - 1]) ++run;
    row.k_segment.push_back(run);
    int64_t in_doc = 0;
    int64_t in_run = 0;
    for (size_t before = 0; before < j; ++before) {
      if (row.k_doc[before] == row.k_doc[j]) ++in_doc;
      if (row.k_segment[before] == run) ++in_run;
    }
    row.rank_in_doc.push_back(in_doc);
    row.rank_in_run.push_back(in_run);
  }
}

void Oracle::add_query_ids(int64_t b, Row& row) const {
  for (int64_t i = 0; i < q_len_; ++i) {
    // A query outside the keys has no id. In well-formed facts its count
    // excludes it, or no mask reads ids.
    const int64_t at = row.position[static_cast<size_t>(i)];
    const bool inside = at >= 0 && at < kv_len_;
    row.q_segment.push_back(inside ? row.k_segment[static_cast<size_t>(at)]
                                   : -1);
    if (facts_.q_doc_ids) {
      row.q_doc.push_back(
          (*facts_.q_doc_ids)[static_cast<size_t>(b * q_len_ + i)]);
    } else {
      row.q_doc.push_back(inside ? row.k_doc[static_cast<size_t>(at)] : -1);
    }
  }
}

bool Oracle::holds(const Expr& e, const Expr& root, int64_t b,
                   int64_t pick_head, int64_t i, int64_t j) const {
  const Row& row = rows_[static_cast<size_t>(b)];
  const size_t iq = static_cast<size_t>(i);
  const size_t jk = static_cast<size_t>(j);
  const int64_t position = row.position[iq];
  switch (e.atom) {
    case Atom::full:
      return true;
    case Atom::causal:
      return j <= position;
    case Atom::window: {
      // Distances are inclusive: window(1, 0) is the key at the position and
      // the one before it. Comparing distances cannot overflow for huge bounds.
      const int64_t behind = position - j;
      const int64_t ahead = j - position;
      if (e.a != -1 && behind > e.a) return false;
      if (e.b != -1 && ahead > e.b) return false;
      return true;
    }
    case Atom::chunk:
      return floor_divide(position, e.a) == floor_divide(j, e.a);
    case Atom::prefix:
      return j < row.prefix;
    case Atom::documents:
      return row.q_doc[iq] == row.k_doc[jk];
    case Atom::segments:
      return row.q_segment[iq] == row.k_segment[jk];
    case Atom::sink:
      // "Named anywhere" means anywhere in this mask; the mask of another head
      // group does not change this sink. The first n keys include excluded ones
      // (which can only come later).
      if (names_atom(root, Atom::segments)) {
        return row.q_segment[iq] == row.k_segment[jk] &&
               row.rank_in_run[jk] < e.a;
      }
      if (names_atom(root, Atom::documents)) {
        return row.q_doc[iq] == row.k_doc[jk] && row.rank_in_doc[jk] < e.a;
      }
      return j < e.a;
    case Atom::blocks:
    case Atom::routed: {
      const int64_t n = e.atom == Atom::blocks ? e.a : e.b;
      const Picks& picks = *facts_.picks;
      const int64_t at = (b * picks.heads + pick_head) * q_len_ + i;
      for (int64_t s = 0; s < picks.k; ++s) {
        const int64_t block =
            picks.blocks[static_cast<size_t>(at * picks.k + s)];
        if (block != -1 && block == j / n) return true;
      }
      return false;
    }
    case Atom::tree: {
      // Query i is the token at its position.
      const int64_t at = row.enter[static_cast<size_t>(position)];
      return row.enter[jk] <= at && at < row.leave[jk];
    }
    case Atom::same: {
      // Query i has the id of the key at its position.
      const auto& group = row.groups[static_cast<size_t>(e.a)];
      const int64_t id = group[static_cast<size_t>(position)];
      return id >= 0 && group[jk] == id;
    }
    case Atom::op_not:
      return !holds(e.children[0], root, b, pick_head, i, j);
    case Atom::op_and:
      for (const Expr& child : e.children) {
        if (!holds(child, root, b, pick_head, i, j)) return false;
      }
      return true;
    case Atom::op_or:
      for (const Expr& child : e.children) {
        if (holds(child, root, b, pick_head, i, j)) return true;
      }
      return false;
  }
  return false;
}

bool Oracle::query_vetoed(int64_t b, int64_t head, int64_t i) const {
  const Row& row = rows_[static_cast<size_t>(b)];
  const int64_t groups = static_cast<int64_t>(masks_.size());
  const Expr& mask = masks_[static_cast<size_t>(head * groups / heads_)];
  const size_t iq = static_cast<size_t>(i);
  if (row.has_count && row.position[iq] >= row.count) return true;
  return names_ids(mask) && row.q_doc[iq] < 0;
}

bool Oracle::legal(int64_t b, int64_t head, int64_t i, int64_t j) const {
  const Row& row = rows_[static_cast<size_t>(b)];
  const int64_t groups = static_cast<int64_t>(masks_.size());
  const Expr& mask = masks_[static_cast<size_t>(head * groups / heads_)];
  if (row.has_count && j >= row.count) return false;
  if (query_vetoed(b, head, i)) return false;
  if (names_ids(mask) && row.k_doc[static_cast<size_t>(j)] < 0) return false;
  return holds(mask, mask, b, head * pick_heads_ / heads_, i, j);
}

DenseClasses Oracle::classes(int64_t b, int64_t head) const {
  DenseClasses dense;
  for (int64_t q0 = 0; q0 < q_len_; q0 += tile_.q) {
    ++dense.rows;
    dense.columns = 0;
    for (int64_t k0 = 0; k0 < kv_len_; k0 += tile_.kv) {
      ++dense.columns;
      bool any = false;
      bool all = true;
      for (int64_t i = q0; i < q0 + tile_.q && i < q_len_; ++i) {
        for (int64_t j = k0; j < k0 + tile_.kv && j < kv_len_; ++j) {
          const bool yes = legal(b, head, i, j);
          any = any || yes;
          all = all && yes;
          if (yes) ++dense.legal_pairs;
        }
      }
      dense.cells.push_back(all   ? TileClass::full
                            : any ? TileClass::partial
                                  : TileClass::empty);
    }
  }
  return dense;
}

}  // namespace tessera::testing
