// lanes/xla/forward.cc: the forward program.
//
// For a query with scores s_j over its legal keys, block after block:
//   m' = max(m, max_j s_j)      a = exp(m - m')    p_j = exp(s_j - m')
//   l' = a l + sum_j p_j        o' = a o + sum_j p_j v_j
// and at the end out = o / l, lse = m + log l. Until a query meets its first
// finite score m is -inf; 0 is then used in place of m, so that exp gives 0 and
// not NaN. A sink logit is added at the end as one more score without a value.
#include <array>
#include <limits>

#include "lanes/xla/block.h"

namespace tessera::xla {
namespace {

using Values = Writer::Values;

constexpr float kInf = std::numeric_limits<float>::infinity();

Value exp_from(Writer& w, const Value& a, const Value& base) {
  return w.exp(w.sub(a, base));
}

// The online softmax state of a row of blocks.
struct State {
  Value maximum, sum;  // [K/V heads, heads of each, queries]
  Value weighted;      // the same, with the value dim
  Value live;          // [queries]: has a legal key

  static State of(const Values& v) { return {v[0], v[1], v[2], v[3]}; }
  Values values() const { return {maximum, sum, weighted, live}; }
};

class Forward {
 public:
  Forward(Writer& w, const Shape& s)
      : w_(w), s_(s), unclean_(unclean_columns(w, s, "v")) {}

  Values row(const Unit& unit, const Value& q_begin,
             const BlockLoops::Blocks& blocks, const Values& arrays) {
    const Value queries = query_rows(w_, s_, "q", unit, q_begin);
    const Dims one = {queries.dims()[0], queries.dims()[1], s_.block_q()};
    Dims wide = one;
    wide.push_back(s_.v_head_dim);
    State start;
    start.maximum = w_.real(-kInf, one);
    start.sum = w_.real(0, one);
    start.weighted = w_.real(0, wide);
    start.live = w_.truth(false, {s_.block_q()});
    const Values ran = blocks(
        start.values(), [&](const Block& b, const std::optional<Value>& c,
                            const Values& carried) {
          return block(unit, b, c, queries, State::of(carried)).values();
        });
    return finish(unit, q_begin, State::of(ran), arrays);
  }

 private:
  State block(const Unit& unit, const Block& b,
              const std::optional<Value>& tile_class, const Value& queries,
              const State& before) {
    const Scores scores =
        scores_of(w_, s_, unit, b, tile_class, queries, false);
    const Dims& dims = scores.capped.dims();
    const Value illegal = w_.real(-kInf, dims);
    const Value legal =
        w_.select(over_scores(w_, scores.legal, dims), scores.capped, illegal);
    State out;
    out.maximum = w_.max(before.maximum, w_.reduce_max(legal, {3}));
    const Value base = base_of(w_, out.maximum);
    const Value p = exp_from(w_, legal, over_scores(w_, base, dims));
    const Value kept = exp_from(w_, before.maximum, base);
    const Value old_sum = w_.mul(before.sum, kept);
    out.sum = w_.add(old_sum, w_.reduce_sum(p, {3}));
    const Dims& wide = before.weighted.dims();
    const Value old =
        w_.mul(before.weighted, w_.broadcast(kept, wide, {0, 1, 2}));
    const Value column =
        w_.div(b.k_begin, w_.integer(static_cast<int32_t>(s_.block_kv())));
    const Value unclean = w_.reshape(
        w_.slice(unclean_, std::array{unit.batch, column}, {1, 1}), {});
    const Legal pairs = {scores.legal, scores.all_legal, unclean};
    out.weighted = w_.add(old, weighted_keys(w_, p, scores.values, pairs));
    out.live = w_.either(before.live, w_.reduce_any(scores.legal, {1}));
    return out;
  }

  Values finish(const Unit& unit, const Value& q_begin, State end,
                const Values& arrays) {
    const Dims& one = end.sum.dims();
    const Dims& wide = end.weighted.dims();
    const Value live = w_.broadcast(end.live, one, {2});
    Value no_key = w_.real(-kInf, one);  // lse without a legal key
    if (s_.sink_logits) {
      const Value sink =
          w_.broadcast(head_numbers(w_, s_, "sink_logits", unit), one, {0, 1});
      no_key = sink;
      const Value maximum = w_.max(end.maximum, sink);
      const Value base = base_of(w_, maximum);
      const Value kept = exp_from(w_, end.maximum, base);
      const Value old = w_.mul(end.sum, kept);
      end.sum = w_.add(old, exp_from(w_, sink, base));
      end.weighted = w_.mul(end.weighted, w_.broadcast(kept, wide, {0, 1, 2}));
      end.maximum = maximum;
    }
    const Value sums = w_.broadcast(end.sum, wide, {0, 1, 2});
    const Value quotient = w_.div(end.weighted, sums);
    const Value nothing = w_.real(0, wide);
    const Value out =
        w_.select(w_.broadcast(live, wide, {0, 1, 2}), quotient, nothing);
    // The softmax of a row whose legal scores are all -inf is undefined: NaN.
    const Value zero = w_.real(0, one);
    const Value nan = w_.real(std::numeric_limits<float>::quiet_NaN(), one);
    const Value base = base_of(w_, end.maximum);
    const Value sum_of_exp = w_.add(base, w_.log(end.sum));
    const Value defined =
        w_.select(w_.compare(Compare::equal, end.sum, zero), nan, sum_of_exp);
    const Value lse = w_.select(live, defined, no_key);
    const Value new_out = write_rows(w_, s_, arrays[0], out, unit, q_begin);
    return {new_out, write_rows(w_, s_, arrays[1], lse, unit, q_begin)};
  }

  Writer& w_;
  const Shape& s_;
  Value unclean_;
};

}  // namespace

Values write_forward(Writer& w, const Shape& s) {
  Forward forward(w, s);
  const Dims rows = {s.batch, s.heads, s.q_len};
  const Value out =
      w.real(0, {s.batch, s.heads, s.q_len, s.v_head_dim}, s.element);
  const Value lse = w.real(0, rows);
  BlockLoops loops(w, s);
  Values results = loops.rows(
      {out, lse}, [&](const Unit& unit, const Value& q_begin,
                      const BlockLoops::Blocks& blocks, const Values& arrays) {
        return forward.row(unit, q_begin, blocks, arrays);
      });
  results.push_back(loops.tiles());
  return results;
}

std::string forward_program(const Shape& s) {
  Writer w(arguments_of(s));
  const Values results = write_forward(w, s);
  return w.module("tessera_forward", results);
}

}  // namespace tessera::xla
