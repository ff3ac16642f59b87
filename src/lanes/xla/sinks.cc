// lanes/xla/sinks.cc: the program of sink telemetry, which is the forward pass
// without values.
//
// For a query with scores s_j over its legal keys, block after block, with m
// and l as forward.cc has them and d_j = s_j - m':
//   f' = a f + sum_first p_j        t' = a t + a l (m - m') + sum_j p_j d_j
// and at the end mass = f / l, entropy = log l - t / l. Terms of t are never
// positive, so none cancel; a weight of 0 adds 0 to t. A sink logit is added at
// the end as one more score that is not among the first.
#include <array>
#include <limits>

#include "lanes/xla/block.h"

namespace tessera::xla {
namespace {

using Values = Writer::Values;

constexpr float kInf = std::numeric_limits<float>::infinity();

// [K/V heads, heads of each, queries]; `live` is [queries].
struct State {
  Value maximum, sum, first, spread, live;

  static State of(const Values& v) { return {v[0], v[1], v[2], v[3], v[4]}; }
  Values values() const { return {maximum, sum, first, spread, live}; }
};

class Sinks {
 public:
  Sinks(Writer& w, const Shape& s) : w_(w), s_(s) {}

  Values row(const Unit& unit, const Value& q_begin,
             const BlockLoops::Blocks& blocks, const Values& arrays) {
    const Value queries = query_rows(w_, s_, "q", unit, q_begin);
    const Dims one = {queries.dims()[0], queries.dims()[1], s_.block_q()};
    const Value zero = w_.real(0, one);
    const State start = {w_.real(-kInf, one), zero, zero, zero,
                         w_.truth(false, {s_.block_q()})};
    const Values ran = blocks(
        start.values(), [&](const Block& b, const std::optional<Value>& c,
                            const Values& carried) {
          return block(unit, b, c, queries, State::of(carried)).values();
        });
    return finish(unit, q_begin, State::of(ran), arrays);
  }

 private:
  // weight * distance, and 0 where the weight is 0 (the distance may be -inf).
  Value term(const Value& weight, const Value& distance) {
    const Value zero = w_.real(0, weight.dims());
    const Value product = w_.mul(weight, distance);
    return w_.select(w_.compare(Compare::equal, weight, zero), zero, product);
  }

  // The state so far, relative to another maximum.
  State relative_to(const State& before, const Value& maximum,
                    const Value& base) {
    const Value shift = w_.sub(before.maximum, base);
    const Value kept = w_.exp(shift);
    // Uses the rescaled sum, which is 0 if the shift is -inf.
    const Value sum = w_.mul(before.sum, kept);
    const Value spread = w_.add(w_.mul(before.spread, kept), term(sum, shift));
    return {maximum, sum, w_.mul(before.first, kept), spread, before.live};
  }

  State block(const Unit& unit, const Block& b,
              const std::optional<Value>& tile_class, const Value& queries,
              const State& before) {
    const Scores scores =
        scores_of(w_, s_, unit, b, tile_class, queries, false);
    const Dims& dims = scores.capped.dims();
    const Value illegal = w_.real(-kInf, dims);
    const Value legal =
        w_.select(over_scores(w_, scores.legal, dims), scores.capped, illegal);
    const Value maximum = w_.max(before.maximum, w_.reduce_max(legal, {3}));
    const Value base = base_of(w_, maximum);
    const Value distance = w_.sub(legal, over_scores(w_, base, dims));
    const Value p = w_.exp(distance);
    const Value among = over_scores(w_, first_keys(w_, s_, b), dims);
    const Value of_first = w_.select(among, p, w_.real(0, dims));
    State out = relative_to(before, maximum, base);
    out.sum = w_.add(out.sum, w_.reduce_sum(p, {3}));
    out.first = w_.add(out.first, w_.reduce_sum(of_first, {3}));
    out.spread = w_.add(out.spread, w_.reduce_sum(term(p, distance), {3}));
    out.live = w_.either(out.live, w_.reduce_any(scores.legal, {1}));
    return out;
  }

  Values finish(const Unit& unit, const Value& q_begin, State end,
                const Values& arrays) {
    const Dims& one = end.sum.dims();
    if (s_.sink_logits) {
      const Value sink =
          w_.broadcast(head_numbers(w_, s_, "sink_logits", unit), one, {0, 1});
      const Value maximum = w_.max(end.maximum, sink);
      const Value base = base_of(w_, maximum);
      const Value distance = w_.sub(sink, base);
      const Value p = w_.exp(distance);
      end = relative_to(end, maximum, base);
      end.sum = w_.add(end.sum, p);
      end.spread = w_.add(end.spread, term(p, distance));
    }
    const Value zero = w_.real(0, one);
    const Value all = w_.real(1, one);
    const Value live = w_.broadcast(end.live, one, {2});
    const Value share = w_.div(end.first, end.sum);
    const Value mass =
        w_.select(w_.compare(Compare::greater, share, all), all, share);
    const Value of_spread = w_.div(end.spread, end.sum);
    const Value entropy = w_.sub(w_.log(end.sum), of_spread);
    const Value at_least_0 = w_.max(entropy, zero);
    const auto write = [&](const Value& array, const Value& rows) {
      return write_rows(w_, s_, array, rows, unit, q_begin);
    };
    return {write(arrays[0], w_.select(live, mass, zero)),
            write(arrays[1], w_.select(live, at_least_0, zero)),
            write(arrays[2], w_.convert(live, w_.wide()))};
  }

  Writer& w_;
  const Shape& s_;
};

}  // namespace

std::string sinks_program(const Shape& s) {
  Writer w(arguments_of(s));
  Sinks sinks(w, s);
  const Dims rows = {s.batch, s.heads, s.q_len};
  const Value none = w.real(0, rows);
  BlockLoops loops(w, s);
  Values results =
      loops.rows({none, none, none},
                 [&](const Unit& unit, const Value& q_begin,
                     const BlockLoops::Blocks& blocks, const Values& arrays) {
                   return sinks.row(unit, q_begin, blocks, arrays);
                 });
  results.push_back(loops.tiles());
  return w.module("tessera_sinks", results);
}

}  // namespace tessera::xla
