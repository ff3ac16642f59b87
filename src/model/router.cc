// model/router.cc: pools, scores and picks the best, one tile row at a time.
//
// Documents are runs of tokens. So if a query comes after a block and the block
// has tokens of its document, these are the block's last tokens. It is enough
// to pool one key per block, of the document of the block's last token. The
// query's own block, which is not complete yet, is always picked.
#include "model/router.h"

#include <array>
#include <limits>

#include "base/integers.h"
#include "lanes/xla/shape.h"
#include "model/routes.h"

namespace tessera::model {
namespace {

using xla::Compare;

int32_t i32(int64_t n) { return static_cast<int32_t>(n); }

class Router {
 public:
  Router(Writer& w, const xla::Shape& s, const LayerRoute& route,
         const Value& q, const Value& k)
      : w_(w),
        s_(s),
        route_(route),
        blocks_(ceil_div(s.kv_len, route.block)),
        dims_{s.pick_heads, s.tile.q, blocks_},
        q_(q) {
    pool(k);
  }

  Picked write() {
    const int64_t rows = s_.q_len / s_.tile.q;
    const Dims flags = {s_.batch, rows, blocks_, s_.pick_heads};
    const Values start = {
        w_.integer(-1, {s_.batch, s_.pick_heads, s_.q_len, route_.top}),
        w_.integer(0, flags), w_.integer(0, flags)};
    const Value zero = w_.integer(0);
    const Value end = w_.integer(i32(s_.batch * rows));
    const auto body = [&](const Value& number, const Values& carried) {
      const Value by = w_.integer(i32(rows));
      const Value b = w_.div(number, by);
      const Value row = w_.sub(number, w_.mul(b, by));
      const Value q_begin = w_.mul(row, w_.integer(i32(s_.tile.q)));
      const Values made = tile(b, q_begin);
      return Values{
          w_.update(carried[0], made[0], std::array{b, zero, q_begin, zero}),
          w_.update(carried[1], made[1], std::array{b, row, zero, zero}),
          w_.update(carried[2], made[2], std::array{b, row, zero, zero})};
    };
    const Values out = w_.count(zero, end, start, body);
    return {out[0], out[1], out[2]};
  }

 private:
  // For each block, the mean of the keys in the document of its last token.
  void pool(const Value& k) {
    const int64_t n = route_.block, missing = blocks_ * n - s_.kv_len;
    Values ids = {w_.argument("k_documents")};
    Values keys = {w_.convert(k, w_.wide())};
    if (missing > 0) {
      ids.push_back(w_.integer(-1, {s_.batch, missing}));
      keys.push_back(w_.real(0, {s_.batch, s_.kv_heads, missing, s_.head_dim}));
    }
    const Dims flat = {s_.batch, blocks_, n};
    const Value of = w_.reshape(w_.join(ids, 1), flat);
    const Value last = w_.part(of, 2, n - 1, n);
    last_ = w_.reshape(last, {s_.batch, blocks_});
    const Value theirs =
        w_.compare(Compare::equal, of, w_.broadcast(last_, flat, {0, 1}));
    const Dims wide = {s_.batch, s_.kv_heads, blocks_, n, s_.head_dim};
    const Value kept =
        w_.select(w_.broadcast(theirs, wide, {0, 2, 3}),
                  w_.reshape(w_.join(keys, 2), wide), w_.real(0, wide));
    const Value sums = w_.reduce_sum(kept, {3});
    const Value tokens = w_.reduce_sum(w_.convert(theirs, w_.wide()), {2});
    pooled_ = w_.div(sums, w_.broadcast(tokens, sums.dims(), {0, 2}));
  }

  // [heads that pick, queries, blocks]. By the rule kv-head, scores of the
  // query heads of a KV head are added in their order.
  Value scores(const Value& b, const Value& q_begin) {
    const Value zero = w_.integer(0);
    const int64_t group = s_.heads / s_.kv_heads, d = s_.head_dim;
    const Value q = w_.slice(q_, std::array{b, zero, q_begin, zero},
                             {1, s_.heads, s_.tile.q, d});
    const Value queries = w_.reshape(w_.convert(q, w_.wide()),
                                     {s_.kv_heads, group, s_.tile.q, d});
    const Value keys =
        w_.reshape(w_.slice(pooled_, std::array{b, zero, zero, zero},
                            {1, s_.kv_heads, blocks_, d}),
                   {s_.kv_heads, blocks_, d});
    const Value each = w_.dot(queries, keys, {{0}, {0}, {3}, {2}});
    if (route_.rule == RouteRule::query_head) return w_.reshape(each, dims_);
    Value sum = w_.reshape(w_.part(each, 1, 0, 1), dims_);
    for (int64_t h = 1; h < group; ++h) {
      sum = w_.add(sum, w_.reshape(w_.part(each, 1, h, h + 1), dims_));
    }
    return sum;
  }

  Value of_queries(const Value& a) { return w_.broadcast(a, dims_, {1}); }
  Value over_blocks(const Value& a) { return w_.broadcast(a, dims_, {0, 1}); }

  // Picks of a tile row, and for each block whether any or all queries pick it.
  Values tile(const Value& b, const Value& q_begin) {
    const int64_t n = s_.tile.q;
    const Value zero = w_.integer(0);
    const Value ids = w_.reshape(
        w_.slice(w_.argument("q_documents"), std::array{b, q_begin}, {1, n}),
        {n});
    const Value live =
        w_.compare(Compare::greater_or_equal, ids, w_.integer(0, {n}));
    const Value offset =
        w_.reshape(w_.slice(w_.argument("rows"),
                            std::array{b, w_.integer(i32(static_cast<int64_t>(
                                              xla::RowFact::q_offset)))},
                            {1, 1}),
                   {});
    const Value first = w_.broadcast(w_.add(q_begin, offset), {n}, {});
    const Value positions = w_.add(w_.iota({n}, 0), first);
    const Value own = w_.div(positions, w_.integer(i32(route_.block), {n}));
    const Value number = w_.iota(dims_, 2);
    const Value alive = of_queries(live);
    const Value last = w_.reshape(
        w_.slice(last_, std::array{b, zero}, {1, blocks_}), {blocks_});
    const Value before = w_.compare(Compare::less, number, of_queries(own));
    const Value same = w_.compare(Compare::equal, of_queries(ids),
                                  w_.broadcast(last, dims_, {2}));
    const Value open = w_.both(w_.both(before, same), alive);
    const Value taken =
        w_.both(w_.compare(Compare::equal, number, of_queries(own)), alive);
    const Dims one = {s_.pick_heads, n};
    const Value none = w_.integer(-1, {n});
    Values picks = {
        w_.reshape(w_.broadcast(w_.select(live, own, none), one, {1}),
                   {1, s_.pick_heads, n, 1})};
    if (route_.top > 1) {
      picks.push_back(w_.integer(-1, {1, s_.pick_heads, n, route_.top - 1}));
    }
    const Values best =
        take_best(scores(b, q_begin), number, {w_.join(picks, 3), open, taken});
    return {best[0], as_flags(w_.reduce_any(best[2], {1})),
            as_flags(w_.negate(w_.reduce_any(w_.negate(best[2]), {1})))};
  }

  // From [heads, blocks] to a row of `some` or `every`.
  Value as_flags(const Value& a) {
    const Value flags = w_.convert(w_.transpose(a, {1, 0}), Element::i32);
    return w_.reshape(flags, {1, 1, blocks_, s_.pick_heads});
  }

  // Takes the best open block until `top` are picked; of equal scores the
  // lowest block wins. Carried are the picks, what is open and what is taken. A
  // NaN compares equal to nothing, so a query with NaN scores picks no more.
  Values take_best(const Value& scores, const Value& number,
                   const Values& start) {
    const Value low = w_.real(-std::numeric_limits<double>::infinity(), dims_);
    const Value behind = w_.sub(w_.integer(i32(blocks_), dims_), number);
    const Value none = w_.integer(0, dims_);
    const Value zero = w_.integer(0);
    const Dims one = {s_.pick_heads, s_.tile.q};
    const auto body = [&](const Value& i, const Values& c) {
      const Value left = w_.select(c[1], scores, low);
      const Value best = over_blocks(w_.reduce_max(left, {2}));
      const Value hit = w_.both(c[1], w_.compare(Compare::equal, left, best));
      // The lowest block has the most blocks behind it.
      const Value most = w_.reduce_max(w_.select(hit, behind, none), {2});
      const Value found =
          w_.compare(Compare::greater, most, w_.integer(0, one));
      const Value pick =
          w_.select(found, w_.sub(w_.integer(i32(blocks_), one), most),
                    w_.integer(-1, one));
      const Value it = w_.compare(Compare::equal, number, over_blocks(pick));
      return Values{
          w_.update(c[0], w_.reshape(pick, {1, s_.pick_heads, s_.tile.q, 1}),
                    std::array{zero, zero, zero, i}),
          w_.both(c[1], w_.negate(it)), w_.either(c[2], it)};
    };
    return w_.count(w_.integer(1), w_.integer(i32(route_.top)), start, body);
  }

  Writer& w_;
  const xla::Shape& s_;
  const LayerRoute& route_;
  const int64_t blocks_;
  const Dims dims_;
  const Value& q_;
  Value pooled_;  // [batch, K/V heads, blocks, dim]
  Value last_;    // [batch, blocks]: the document of the last token
};

}  // namespace

Result<xla::Shape> picking_shape(const AttentionPlace& place,
                                 XlaMethod method) {
  xla::Shape out = place.shape;
  auto mask = routed_mask(out.masks.front(), place.route);
  if (!mask) return mask.error();
  out.method = method;
  out.masks = {std::move(*mask)};
  out.pick_heads = picking_heads(place.route, out.heads, out.kv_heads);
  out.plan_heads = out.pick_heads;
  out.picks_k = place.route.top;
  out.steps *= out.pick_heads;
  return out;
}

Picked write_router(Writer& w, const xla::Shape& s, const LayerRoute& route,
                    const Value& q, const Value& k) {
  return Router(w, s, route, q, k).write();
}

}  // namespace tessera::model
