// mask/legal.cc: decides one pair at a time, straight from the definitions.
#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "mask/bind.h"
#include "mask/key_arrays.h"
#include "tessera/plan.h"

namespace tessera {

struct Legality::State {
  Request request;  // owns the masks that `bound` points to
  mask::Bound bound;
  std::vector<mask::KeyArrays> keys;  // per batch row, where ids are named

  struct Pair {
    int64_t b, h, q, k, position;
  };

  int32_t q_id(const Pair& p) const {
    const mask::BoundRow& row = bound.rows[static_cast<size_t>(p.b)];
    return row.q_ids ? row.q_ids[p.q] : row.ids[p.position];
  }

  // A query that its count vetoes may be outside the keys, with no id.
  bool has_id(const Pair& p) const {
    const mask::BoundRow& row = bound.rows[static_cast<size_t>(p.b)];
    return row.ids &&
           (row.q_ids || (p.position >= 0 && p.position < bound.kv_len));
  }

  bool same_document(const Pair& p) const {
    const mask::BoundRow& row = bound.rows[static_cast<size_t>(p.b)];
    return has_id(p) && q_id(p) == row.ids[p.k];
  }

  bool same_segment(const Pair& p) const {
    const mask::KeyArrays& a = keys[static_cast<size_t>(p.b)];
    return has_id(p) && a.segment[static_cast<size_t>(p.position)] ==
                            a.segment[static_cast<size_t>(p.k)];
  }

  bool sink(int64_t n, const Names& names, const Pair& p) const {
    if (!names.documents && !names.segments) return p.k < n;
    const mask::KeyArrays& a = keys[static_cast<size_t>(p.b)];
    const auto k = static_cast<size_t>(p.k);
    return names.segments ? same_segment(p) && a.segment_rank[k] < n
                          : same_document(p) && a.document_rank[k] < n;
  }

  bool picked(int64_t block, const Pair& p) const {
    const int32_t* picks = bound.picks_of(p.b, p.h, p.q);
    return std::find(picks, picks + bound.picks_k, p.k / block) !=
           picks + bound.picks_k;
  }

  // A query that its count vetoes may have a position outside the tokens, and
  // entries from the count on are not tokens.
  bool in_subtree(const Pair& p) const {
    const mask::BoundRow& row = bound.rows[static_cast<size_t>(p.b)];
    if (p.position < 0 || p.position >= row.valid || p.k >= row.valid) {
      return false;
    }
    const int32_t at = row.enter[p.position];
    return row.enter[p.k] <= at && at < row.leave[p.k];
  }

  // A query that its count vetoes may have a position outside the keys.
  int32_t same_id(int64_t name, const Pair& p) const {
    const mask::BoundRow& row = bound.rows[static_cast<size_t>(p.b)];
    const bool inside = p.position >= 0 && p.position < bound.kv_len;
    return inside ? row.same[static_cast<size_t>(name)][p.position] : -1;
  }

  bool same_group(int64_t name, const Pair& p) const {
    const mask::BoundRow& row = bound.rows[static_cast<size_t>(p.b)];
    const int32_t id = same_id(name, p);
    return id >= 0 && id == row.same[static_cast<size_t>(name)][p.k];
  }

  bool holds(const Expr& e, const Names& names, const Pair& p) const {
    const int64_t distance = p.position - p.k;
    switch (e.atom) {
      case Atom::full:
        return true;
      case Atom::causal:
        return p.k <= p.position;
      case Atom::window:
        return (e.a < 0 || distance <= e.a) && (e.b < 0 || -distance <= e.b);
      case Atom::chunk:
        return floor_div(p.position, e.a) == p.k / e.a;
      case Atom::prefix:
        return p.k < bound.rows[static_cast<size_t>(p.b)].prefix;
      case Atom::documents:
        return same_document(p);
      case Atom::segments:
        return same_segment(p);
      case Atom::sink:
        return sink(e.a, names, p);
      case Atom::blocks:
        return picked(e.a, p);
      case Atom::routed:
        return picked(e.b, p);
      case Atom::tree:
        return in_subtree(p);
      case Atom::same:
        return same_group(e.a, p);
      case Atom::op_not:
        return !holds(e.children[0], names, p);
      case Atom::op_and:
        return std::all_of(e.children.begin(), e.children.end(),
                           [&](const Expr& c) { return holds(c, names, p); });
      case Atom::op_or:
        return std::any_of(e.children.begin(), e.children.end(),
                           [&](const Expr& c) { return holds(c, names, p); });
    }
    return false;
  }

  Pair pair(int64_t b, int64_t h, int64_t q, int64_t k) const {
    return {b, h, q, k, q + bound.rows[static_cast<size_t>(b)].q_offset};
  }

  bool vetoed_by_id(const Names& names, const Pair& p) const {
    if (!names.documents && !names.segments) return false;
    const mask::BoundRow& row = bound.rows[static_cast<size_t>(p.b)];
    return row.ids[p.k] < 0 || (has_id(p) && q_id(p) < 0);
  }

  std::string why(const Expr& e, const Names& names, const Pair& p) const;
  void explain(const Expr& e, const Names& names, const Pair& p, int64_t depth,
               std::vector<ExplainStep>& out) const;
};

std::string Legality::State::why(const Expr& e, const Names& names,
                                 const Pair& p) const {
  const mask::BoundRow& row = bound.rows[static_cast<size_t>(p.b)];
  auto ids = [&] {
    return fmt::format("query id {}, key id {}",
                       has_id(p) ? fmt::to_string(q_id(p)) : "none",
                       row.ids[p.k]);
  };
  switch (e.atom) {
    case Atom::causal:
      return fmt::format("key {} {} position {}", p.k,
                         p.k <= p.position ? "<=" : ">", p.position);
    case Atom::window:
      return p.k <= p.position
                 ? fmt::format("key is {} to the left", p.position - p.k)
                 : fmt::format("key is {} to the right", p.k - p.position);
    case Atom::chunk:
      return fmt::format("query in chunk {}, key in chunk {}",
                         floor_div(p.position, e.a), p.k / e.a);
    case Atom::prefix:
      return fmt::format("key {} {} prefix length {}", p.k,
                         p.k < row.prefix ? "<" : ">=", row.prefix);
    case Atom::documents:
      return ids();
    case Atom::segments: {
      const mask::KeyArrays& a = keys[static_cast<size_t>(p.b)];
      return fmt::format(
          "query in segment {}, key in segment {}",
          has_id(p) ? fmt::to_string(a.segment[static_cast<size_t>(p.position)])
                    : "none",
          a.segment[static_cast<size_t>(p.k)]);
    }
    case Atom::sink: {
      if (!names.documents && !names.segments) {
        return fmt::format("key {} {} {}", p.k, p.k < e.a ? "<" : ">=", e.a);
      }
      const mask::KeyArrays& a = keys[static_cast<size_t>(p.b)];
      const auto k = static_cast<size_t>(p.k);
      return fmt::format(
          "key is number {} of its {}, which the query {}",
          names.segments ? a.segment_rank[k] : a.document_rank[k],
          names.segments ? "segment" : "document",
          (names.segments ? same_segment(p) : same_document(p)) ? "shares"
                                                                : "is not in");
    }
    case Atom::blocks:
    case Atom::routed: {
      const int64_t block = e.atom == Atom::blocks ? e.a : e.b;
      const int32_t* picks = bound.picks_of(p.b, p.h, p.q);
      std::vector<int32_t> used;  // picks without empty slots
      std::copy_if(picks, picks + bound.picks_k, std::back_inserter(used),
                   [](int32_t pick) { return pick >= 0; });
      const bool shared = bound.meaning == RouteMeaning::tile_union;
      return fmt::format(
          "key in block {}, {} picked {}", p.k / block,
          shared ? "its tile row" : "query",
          used.empty() ? "none" : fmt::to_string(fmt::join(used, " ")));
    }
    case Atom::tree:
      if (p.position < 0 || p.position >= row.valid || p.k >= row.valid) {
        return "no token of the tree";
      }
      return fmt::format("query enters at {}, key's subtree is [{}, {})",
                         row.enter[p.position], row.enter[p.k], row.leave[p.k]);
    case Atom::same:
      return fmt::format("query id {}, key id {}", same_id(e.a, p),
                         row.same[static_cast<size_t>(e.a)][p.k]);
    default:
      return {};
  }
}

void Legality::State::explain(const Expr& e, const Names& names, const Pair& p,
                              int64_t depth,
                              std::vector<ExplainStep>& out) const {
  ExplainStep step{depth, to_string(e), holds(e, names, p), why(e, names, p)};
  out.push_back(std::move(step));
  for (const Expr& child : e.children) {
    explain(child, names, p, depth + 1, out);
  }
}

Legality::Legality(std::unique_ptr<State> state) : state_(std::move(state)) {}
Legality::Legality(Legality&&) noexcept = default;
Legality& Legality::operator=(Legality&&) noexcept = default;
Legality::~Legality() = default;

Result<Legality> Legality::bind(const Request& request, const Facts& facts) {
  auto state = std::make_unique<State>();
  state->request = request;
  auto bound = tessera::mask::bind(state->request, facts);
  if (!bound) return bound.error();
  state->bound = std::move(*bound);
  for (const mask::BoundRow& row : state->bound.rows) {
    if (row.ids) {
      state->keys.push_back(mask::key_arrays(row.ids, state->bound.kv_len));
    }
  }
  return Legality(std::move(state));
}

int64_t Legality::heads() const { return state_->bound.heads; }

bool Legality::legal(int64_t batch_row, int64_t head, int64_t q,
                     int64_t k) const {
  const State& s = *state_;
  const mask::BoundRow& row = s.bound.rows[static_cast<size_t>(batch_row)];
  if (k >= row.valid || q >= row.q_end) return false;
  const State::Pair p = s.pair(batch_row, head, q, k);
  const Mask& mask = *s.bound.masks[static_cast<size_t>(head)];
  return !s.vetoed_by_id(mask.names, p) && s.holds(mask.expr, mask.names, p);
}

Explanation Legality::explain(int64_t batch_row, int64_t head, int64_t q,
                              int64_t k) const {
  const State& s = *state_;
  const mask::BoundRow& row = s.bound.rows[static_cast<size_t>(batch_row)];
  const State::Pair p = s.pair(batch_row, head, q, k);
  const Mask& mask = *s.bound.masks[static_cast<size_t>(head)];
  Explanation e;
  e.legal = legal(batch_row, head, q, k);
  e.position = p.position;
  e.tile_row = q / s.bound.tile.q;
  e.tile_column = k / s.bound.tile.kv;
  s.explain(mask.expr, mask.names, p, 0, e.expression);
  e.vetoes.push_back({0, "key beyond the valid count", k >= row.valid,
                      fmt::format("key {}, {} valid", k, row.valid)});
  e.vetoes.push_back(
      {0, "query beyond the valid count", q >= row.q_end,
       fmt::format("position {}, {} valid", p.position, row.valid)});
  if (mask.names.documents || mask.names.segments) {
    e.vetoes.push_back(
        {0, "negative id", s.vetoed_by_id(mask.names, p),
         fmt::format("query id {}, key id {}",
                     s.has_id(p) ? fmt::to_string(s.q_id(p)) : "none",
                     row.ids[k])});
  }
  return e;
}

}  // namespace tessera
