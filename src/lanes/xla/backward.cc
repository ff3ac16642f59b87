// lanes/xla/backward.cc: the backward program, one pass over the same blocks.
//
// With p_j = exp(s_j - lse), g = dout and d = g . out - dlse, a query gives
//   dv_j += p_j g          e_j = p_j (g . v_j - d) slope_j scale
//   dk_j += e_j q          dq  += e_j k_j
// where slope is that of the softcap. A sink logit has p = exp(sink - lse) and
// no value, so its gradient is -p d. Without a legal key p is 1 and g is not
// used.
#include <array>

#include "lanes/xla/block.h"

namespace tessera::xla {
namespace {

using Values = Writer::Values;

// The inputs of the queries of a row of blocks.
struct Row {
  Value q, dout;     // [K/V heads, heads of each, queries, dim]
  Value lse, delta;  // the same without dim
  Value dlse;        // for sink logits
  Value unclean;     // scalars: q, or dout, has a NaN or an Inf
  Value unclean_dout;
};

class Backward {
 public:
  Backward(Writer& w, const Shape& s)
      : w_(w), s_(s), unclean_(unclean_columns(w, s, "k")) {}

  // `arrays` are dq, dk, dv and, with sink logits, dsink_logits.
  Values row(const Unit& unit, const Value& q_begin,
             const BlockLoops::Blocks& blocks, const Values& arrays) {
    const Row row = load(unit, q_begin);
    const Value dq = w_.real(0, row.q.dims());
    const Value live = w_.truth(false, {s_.block_q()});
    const Values ran =
        blocks({arrays[1], arrays[2], dq, live},
               [&](const Block& b, const std::optional<Value>& tile_class,
                   const Values& carried) {
                 return block(unit, b, tile_class, row, carried);
               });
    Values out = arrays;
    out[0] = write_rows(w_, s_, arrays[0], ran[2], unit, q_begin);
    out[1] = ran[0];
    out[2] = ran[1];
    if (s_.sink_logits) out[3] = add_sinks(unit, row, ran[3], arrays[3]);
    return out;
  }

 private:
  Row load(const Unit& unit, const Value& q_begin) {
    Row r;
    const Value valid = valid_queries(w_, s_, unit.batch, q_begin);
    const Value q = query_rows(w_, s_, "q", unit, q_begin);
    r.q = clean(w_, q, valid, 2);
    const Value dout = query_rows(w_, s_, "dout", unit, q_begin);
    r.dout = clean(w_, dout, valid, 2);
    const Value out = query_rows(w_, s_, "out", unit, q_begin);
    r.lse = query_numbers(w_, s_, "lse", unit, q_begin);
    const Value left = w_.convert(r.dout, w_.wide());
    const Value right = w_.convert(out, w_.wide());
    r.delta = w_.reduce_sum(w_.mul(left, right), {3});
    r.dlse = s_.dlse ? query_numbers(w_, s_, "dlse", unit, q_begin)
                     : w_.real(0, r.lse.dims());
    r.delta = w_.sub(r.delta, r.dlse);
    r.unclean = is_unclean(w_, r.q);
    r.unclean_dout = is_unclean(w_, r.dout);
    return r;
  }

  // exp(score - lse), at most 1: the log-sum-exp of large scores may round to
  // so much less than a score that exp() would be infinite.
  Value probability(const Value& score, const Value& lse) {
    const Value below = w_.sub(lse, score);
    return w_.exp(w_.negate(w_.max(below, w_.real(0, below.dims()))));
  }

  Values block(const Unit& unit, const Block& b,
               const std::optional<Value>& tile_class, const Row& row,
               const Values& carried) {
    const Scores scores = scores_of(w_, s_, unit, b, tile_class, row.q, true);
    const Dims& dims = scores.capped.dims();
    const Value legal = over_scores(w_, scores.legal, dims);
    const Value zero = w_.real(0, dims);
    const Value lse = over_scores(w_, row.lse, dims);
    const Value raw = probability(scores.capped, lse);
    const Value p = w_.select(legal, raw, zero);
    const Value dp = w_.dot(row.dout, scores.values, {{0}, {0}, {3}, {2}});
    const Value delta = over_scores(w_, row.delta, dims);
    Value ds = w_.mul(raw, w_.sub(dp, delta));
    if (scores.slope) ds = w_.mul(ds, *scores.slope);
    ds = w_.mul(ds, w_.real(s_.scale, dims));
    ds = w_.select(legal, ds, zero);

    const Value column =
        w_.div(b.k_begin, w_.integer(static_cast<int32_t>(s_.block_kv())));
    const Value unclean_key = w_.reshape(
        w_.slice(unclean_, std::array{unit.batch, column}, {1, 1}), {});
    const Value dk_more = weighted_queries(
        w_, ds, row.q, {scores.legal, scores.all_legal, row.unclean});
    const Value dv_more = weighted_queries(
        w_, p, row.dout, {scores.legal, scores.all_legal, row.unclean_dout});
    const Value dq_more = weighted_keys(
        w_, ds, scores.keys, {scores.legal, scores.all_legal, unclean_key});
    const Value dk =
        add_to_key_rows(w_, s_, carried[0], dk_more, unit, b.k_begin);
    const Value dv =
        add_to_key_rows(w_, s_, carried[1], dv_more, unit, b.k_begin);
    const Value dq = w_.add(carried[2], dq_more);
    const Value live = w_.either(carried[3], w_.reduce_any(scores.legal, {1}));
    return {dk, dv, dq, live};
  }

  Value add_sinks(const Unit& unit, const Row& row, const Value& has_key,
                  const Value& sums) {
    const Dims& dims = row.lse.dims();
    const Value live = w_.broadcast(has_key, dims, {2});
    const Value sink =
        w_.broadcast(head_numbers(w_, s_, "sink_logits", unit), dims, {0, 1});
    const Value p = probability(sink, row.lse);
    const Value taken = w_.negate(w_.mul(p, row.delta));
    const Value each = w_.select(live, taken, row.dlse);
    const Value more = w_.reshape(w_.reduce_sum(each, {2}), {s_.unit_heads()});
    const Value before =
        w_.slice(sums, std::array{unit.head}, {s_.unit_heads()});
    return w_.update(sums, w_.add(before, more), std::array{unit.head});
  }

  Writer& w_;
  const Shape& s_;
  Value unclean_;
};

}  // namespace

Values write_backward(Writer& w, const Shape& s) {
  Backward backward(w, s);
  Values start;
  start.push_back(
      w.real(0, {s.batch, s.heads, s.q_len, s.head_dim}, s.element));
  start.push_back(w.real(0, {s.batch, s.kv_heads, s.kv_len, s.head_dim}));
  start.push_back(w.real(0, {s.batch, s.kv_heads, s.kv_len, s.v_head_dim}));
  if (s.sink_logits) start.push_back(w.real(0, {s.heads}));
  BlockLoops loops(w, s);
  Values results = loops.rows(
      start, [&](const Unit& unit, const Value& q_begin,
                 const BlockLoops::Blocks& blocks, const Values& arrays) {
        return backward.row(unit, q_begin, blocks, arrays);
      });
  results.push_back(loops.tiles());
  return results;
}

std::string backward_program(const Shape& s) {
  Writer w(arguments_of(s));
  Values results = write_backward(w, s);
  results[1] = w.convert(results[1], s.element);
  results[2] = w.convert(results[2], s.element);
  return w.module("tessera_backward", results);
}

}  // namespace tessera::xla
