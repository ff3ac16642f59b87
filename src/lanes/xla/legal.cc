// lanes/xla/legal.cc: the mask language as elementwise integer ops.
#include "lanes/xla/legal.h"

#include <array>

#include "base/integers.h"
#include "mask/canonical.h"

namespace tessera::xla {
namespace {

// One of the facts of a batch row, as a scalar.
Value row_fact(Writer& w, const Value& batch, RowFact fact) {
  const Value column = w.integer(static_cast<int32_t>(fact));
  return w.reshape(
      w.slice(w.argument("rows"), std::array{batch, column}, {1, 1}), {});
}

// begin, begin + 1, ...
Value numbers_from(Writer& w, const Value& begin, int64_t n) {
  const Value offsets = w.iota({n}, 0);
  return w.add(offsets, w.broadcast(begin, {n}, {}));
}

// `n` tokens from `begin` of an array [batch, tokens].
Value tokens_of(Writer& w, const Value& array, const Value& batch,
                const Value& begin, int64_t n) {
  return w.reshape(w.slice(array, std::array{batch, begin}, {1, n}), {n});
}

Value compare_to(Writer& w, Compare how, const Value& a, const Value& scalar) {
  return w.compare(how, a, w.broadcast(scalar, a.dims(), {}));
}

Value compare_to(Writer& w, Compare how, const Value& a, int64_t number) {
  const Value constant = w.integer(static_cast<int32_t>(number), a.dims());
  return w.compare(how, a, constant);
}

// a / n rounded down, for n > 0 and `a` of any sign.
Value floor_divided(Writer& w, const Value& a, int64_t n) {
  const Value by = w.integer(static_cast<int32_t>(n), a.dims());
  const Value toward_zero = w.div(a, by);
  const Value rest = w.sub(a, w.mul(toward_zero, by));
  const Value below = compare_to(w, Compare::less, rest, 0);
  return w.sub(toward_zero, w.convert(below, Element::i32));
}

Value key_numbers(Writer& w, const Shape& s, const Value& batch,
                  const Value& k_begin, int64_t n) {
  if (!s.numbered) return numbers_from(w, k_begin, n);
  return tokens_of(w, w.argument("k_numbers"), batch, k_begin, n);
}

class Rule {
 public:
  Rule(Writer& w, const Shape& s, const Block& block)
      : w_(w),
        s_(s),
        block_(block),
        pairs_{s.block_q(), s.block_kv()},
        keys_(key_numbers(w, s, block.batch, block.k_begin, s.block_kv())),
        positions_(position(w, s, block)),
        distance_(distance()) {}

  // `first_bound`: index of the mask's first window bound.
  Value legal(const Mask& mask, int64_t first_bound) {
    names_ = mask.names;
    next_bound_ = first_bound;
    Value out = holds(mask.expr);
    const Value queries = valid_queries(w_, s_, block_.batch, block_.q_begin);
    const Value keys =
        valid_keys(w_, s_, block_.batch, block_.k_begin, s_.block_kv());
    out = w_.both(out, of_queries(queries));
    out = w_.both(out, of_keys(keys));
    if (!names_.documents && !names_.segments) return out;
    const std::string kind = names_.documents ? "documents" : "segments";
    const Value q_ids = q_tokens("q_" + kind);
    const Value k_ids = k_tokens("k_" + kind);
    const Value q_real = compare_to(w_, Compare::greater_or_equal, q_ids, 0);
    const Value k_real = compare_to(w_, Compare::greater_or_equal, k_ids, 0);
    out = w_.both(out, of_queries(q_real));
    return w_.both(out, of_keys(k_real));
  }

  Value first_keys(const Mask& mask) {
    names_ = mask.names;
    const Value zero = w_.integer(0);
    return sink(w_.element(w_.argument("first_keys"), zero));
  }

 private:
  static Value position(Writer& w, const Shape& s, const Block& block) {
    if (s.numbered) {
      return tokens_of(w, w.argument("q_positions"), block.batch, block.q_begin,
                       s.block_q());
    }
    const Value queries = numbers_from(w, block.q_begin, s.block_q());
    const Value offset = row_fact(w, block.batch, RowFact::q_offset);
    return w.add(queries, w.broadcast(offset, queries.dims(), {}));
  }

  // Fits 32 bits, since arrays.cc checks the positions.
  Value distance() {
    const Value keys = of_keys(keys_);
    return w_.sub(keys, of_queries(positions_));
  }

  Value of_queries(const Value& a) { return w_.broadcast(a, pairs_, {0}); }
  Value of_keys(const Value& a) { return w_.broadcast(a, pairs_, {1}); }
  Value q_tokens(const std::string& array) {
    return tokens_of(w_, w_.argument(array), block_.batch, block_.q_begin,
                     s_.block_q());
  }
  Value k_tokens(const std::string& array) {
    return tokens_of(w_, w_.argument(array), block_.batch, block_.k_begin,
                     s_.block_kv());
  }

  // Whether query and key have the same number: documents, segments or groups.
  Value same(const std::string& kind) {
    const Value q = of_queries(q_tokens("q_" + kind));
    const Value k = of_keys(k_tokens("k_" + kind));
    return w_.compare(Compare::equal, q, k);
  }

  // Bounds key - position. The bounds are an input of the program.
  Value window(const Expr& e) {
    const Value bounds = w_.argument("bounds");
    const Value left_at = w_.integer(static_cast<int32_t>(next_bound_++));
    const Value right_at = w_.integer(static_cast<int32_t>(next_bound_++));
    Value out = w_.truth(true, pairs_);
    if (e.a >= 0) {
      const Value left = w_.negate(w_.element(bounds, left_at));
      out = compare_to(w_, Compare::greater_or_equal, distance_, left);
    }
    if (e.b >= 0) {
      const Value right = w_.element(bounds, right_at);
      out = w_.both(out,
                    compare_to(w_, Compare::less_or_equal, distance_, right));
    }
    return out;
  }

  // `n`: a number, or a scalar.
  template <class N>
  Value sink(const N& n) {
    if (!names_.documents && !names_.segments) {
      return of_keys(compare_to(w_, Compare::less, keys_, n));
    }
    const bool segments = names_.segments;
    const Value ranks =
        k_tokens(segments ? "k_segment_ranks" : "k_document_ranks");
    const Value early = of_keys(compare_to(w_, Compare::less, ranks, n));
    return w_.both(same(segments ? "segments" : "documents"), early);
  }

  Value picked(int64_t block) {
    const int64_t group = s_.plan_heads / s_.pick_heads;
    const Value head =
        w_.div(block_.plan_head, w_.integer(static_cast<int32_t>(group)));
    const Value zero = w_.integer(0);
    const Value picks = w_.reshape(
        w_.slice(w_.argument("picks"),
                 std::array{block_.batch, head, block_.q_begin, zero},
                 {1, 1, s_.block_q(), s_.picks_k}),
        {s_.block_q(), s_.picks_k});
    const Value number = floor_divided(w_, keys_, block);
    const Dims all = {s_.block_q(), s_.picks_k, s_.block_kv()};
    const Value wanted = w_.broadcast(picks, all, {0, 1});
    const Value found = w_.broadcast(number, all, {2});
    return w_.reduce_any(w_.compare(Compare::equal, wanted, found), {1});
  }

  Value holds(const Expr& e) {
    switch (e.atom) {
      case Atom::full:
        return w_.truth(true, pairs_);
      case Atom::causal:
        return compare_to(w_, Compare::less_or_equal, distance_, 0);
      case Atom::window:
        return window(e);
      case Atom::chunk: {
        const Value q = floor_divided(w_, positions_, e.a);
        const Value k = floor_divided(w_, keys_, e.a);
        const Value of_q = of_queries(q);
        return w_.compare(Compare::equal, of_q, of_keys(k));
      }
      case Atom::prefix:
        if (s_.numbered) {
          return of_keys(
              compare_to(w_, Compare::not_equal, k_tokens("k_in_prefix"), 0));
        }
        return of_keys(compare_to(w_, Compare::less, keys_,
                                  row_fact(w_, block_.batch, RowFact::prefix)));
      case Atom::documents:
        return same("documents");
      case Atom::segments:
        return same("segments");
      case Atom::sink:
        return sink(e.a);
      case Atom::blocks:
        return picked(e.a);
      case Atom::routed:
        return picked(e.b);
      case Atom::same:
        return same(mask::same_fact(e.a));
      case Atom::tree: {
        // The subtree of a key is the tokens from the key up to its end.
        const Value ends = of_keys(k_tokens("k_tree_ends"));
        const Value before =
            w_.compare(Compare::less, of_queries(positions_), ends);
        return w_.both(compare_to(w_, Compare::less_or_equal, distance_, 0),
                       before);
      }
      case Atom::op_not:
        return w_.negate(holds(e.children[0]));
      case Atom::op_and:
      case Atom::op_or: {
        Value out = holds(e.children[0]);
        for (size_t i = 1; i < e.children.size(); ++i) {
          const Value next = holds(e.children[i]);
          out = e.atom == Atom::op_and ? w_.both(out, next)
                                       : w_.either(out, next);
        }
        return out;
      }
    }
    return w_.truth(false, pairs_);
  }

  Writer& w_;
  const Shape& s_;
  const Block& block_;
  Dims pairs_;
  Value keys_, positions_, distance_;
  Names names_;
  int64_t next_bound_ = 0;
};

int64_t bounds_of(const Expr& e) {
  int64_t n = e.atom == Atom::window ? 2 : 0;
  for (const Expr& child : e.children) n += bounds_of(child);
  return n;
}

Value mask_number(Writer& w, const Shape& s, const Block& block) {
  if (s.numbered_masks) {
    return w.element(w.argument("mask_numbers"), block.plan_head);
  }
  const auto group = s.plan_heads / static_cast<int64_t>(s.masks.size());
  return w.div(block.plan_head, w.integer(static_cast<int32_t>(group)));
}

// Calls pairs(rule, mask, index of the mask's first window bound) for the mask
// of the plan head, which is chosen at run time.
template <class Pairs>
Value of_mask(Writer& w, const Shape& s, const Block& block,
              const Pairs& pairs) {
  const auto of = [&](const Mask& mask, int64_t first_bound) {
    Rule rule(w, s, block);
    return pairs(rule, mask, first_bound);
  };
  if (s.masks.size() == 1) return of(s.masks.front(), 0);
  const Value number = mask_number(w, s, block);
  std::vector<Writer::Branch> branches;
  int64_t first_bound = 0;
  for (const Mask& mask : s.masks) {
    branches.emplace_back([&of, &mask, first_bound] {
      return Writer::Values{of(mask, first_bound)};
    });
    first_bound += bounds_of(mask.expr);
  }
  return w.choose(number, branches).front();
}

}  // namespace

Value valid_queries(Writer& w, const Shape& s, const Value& batch,
                    const Value& q_begin) {
  if (s.numbered) {
    const Value positions =
        tokens_of(w, w.argument("q_positions"), batch, q_begin, s.block_q());
    return compare_to(w, Compare::not_equal, positions, kNoPosition);
  }
  const Value queries = numbers_from(w, q_begin, s.block_q());
  const Value end = row_fact(w, batch, RowFact::q_end);
  return compare_to(w, Compare::less, queries, end);
}

Value valid_keys(Writer& w, const Shape& s, const Value& batch,
                 const Value& k_begin, int64_t keys) {
  const Value numbers = key_numbers(w, s, batch, k_begin, keys);
  Value counted = s.numbered
                      ? compare_to(w, Compare::greater_or_equal, numbers, 0)
                      : compare_to(w, Compare::less, numbers,
                                   row_fact(w, batch, RowFact::valid));
  if (!s.all_name_ids()) return counted;
  const Value ids = tokens_of(
      w, w.argument(s.names_documents() ? "k_documents" : "k_segments"), batch,
      k_begin, keys);
  const Value real = compare_to(w, Compare::greater_or_equal, ids, 0);
  return w.both(counted, real);
}

Value legal_pairs(Writer& w, const Shape& s, const Block& block) {
  return of_mask(w, s, block, [](Rule& rule, const Mask& mask, int64_t bound) {
    return rule.legal(mask, bound);
  });
}

Value first_keys(Writer& w, const Shape& s, const Block& block) {
  return of_mask(w, s, block, [](Rule& rule, const Mask& mask, int64_t) {
    return rule.first_keys(mask);
  });
}

}  // namespace tessera::xla
