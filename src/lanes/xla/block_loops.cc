// lanes/xla/block_loops.cc: loops over a worklist's steps, or over all blocks.
#include "lanes/xla/block_loops.h"

namespace tessera::xla {
namespace {

using Values = Writer::Values;

Value times(Writer& w, const Value& a, int64_t n) {
  return w.mul(a, w.integer(static_cast<int32_t>(n)));
}

Value over(Writer& w, const Value& a, int64_t n) {
  return w.div(a, w.integer(static_cast<int32_t>(n)));
}

Values with_front(const Value& first, const Values& rest) {
  Values out = {first};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

Values without_front(const Values& values, size_t n) {
  return {values.begin() + static_cast<std::ptrdiff_t>(n), values.end()};
}

// The fields of a packed step (tessera/layouts.h).
Value row_of(Writer& w, const Value& step) { return w.bits(step, 18, 14); }
Value column_of(Writer& w, const Value& step) { return w.bits(step, 4, 14); }
Value class_of(Writer& w, const Value& step) { return w.bits(step, 2, 2); }
Value last_of(Writer& w, const Value& step) { return w.bits(step, 0, 1); }

}  // namespace

Unit BlockLoops::unit_of(const Value& number) {
  const int64_t units = s_.units();
  Unit unit;
  unit.batch = over(w_, number, units);
  const Value in_row = w_.sub(number, times(w_, unit.batch, units));
  unit.plan_head = over(w_, in_row, units / s_.plan_heads);
  unit.head = times(w_, in_row, s_.unit_heads());
  unit.kv_head = over(w_, unit.head, s_.heads / s_.kv_heads);
  return unit;
}

Values BlockLoops::rows(const Values& start, const RowBody& body) {
  const Value zero = w_.integer(0);
  const Value end = w_.integer(static_cast<int32_t>(s_.batch * s_.units()));
  const Values out = w_.count(zero, end, with_front(zero, start),
                              [&](const Value& number, const Values& carried) {
                                const Unit unit = unit_of(number);
                                tiles_ = carried.front();
                                const Values rest = without_front(carried, 1);
                                const Values next =
                                    s_.method == XlaMethod::worklist
                                        ? listed_rows(unit, rest, body)
                                        : single_row(unit, rest, body);
                                return with_front(tiles_, next);
                              });
  tiles_ = out.front();
  return without_front(out, 1);
}

// Every loop carries the index of the next step and the count of tiles.
Values BlockLoops::listed_rows(const Unit& unit, const Values& start,
                               const RowBody& body) {
  const Value range = w_.argument("range");
  const Value list =
      w_.add(times(w_, unit.batch, s_.plan_heads), unit.plan_head);
  const Value begin = w_.element(range, list);
  const Value end = w_.element(range, w_.add(list, w_.integer(1)));
  const Value steps = w_.argument("steps");
  const Values out = w_.loop(
      with_front(begin, with_front(tiles_, start)),
      [&](const Values& c) { return w_.compare(Compare::less, c[0], end); },
      [&](const Values& c) {
        Value at = c[0], tiles = c[1];
        const Value row = row_of(w_, w_.element(steps, at));
        const Value q_begin = times(w_, row, s_.block_q());
        const Blocks blocks = [&](const Values& first, const BlockBody& block) {
          const Value more = w_.truth(true);
          const Values ran = w_.loop(
              with_front(more, with_front(at, with_front(tiles, first))),
              [&](const Values& b) { return b[0]; },
              [&](const Values& b) {
                const Value step = w_.element(steps, b[1]);
                const Value zero = w_.integer(0);
                const Value one = w_.integer(1);
                const Value tile_class = class_of(w_, step);
                const Value active =
                    w_.compare(Compare::not_equal, tile_class, zero);
                const Value k_begin =
                    times(w_, column_of(w_, step), s_.block_kv());
                const Values next =
                    block({unit.batch, unit.plan_head, q_begin, k_begin},
                          tile_class, without_front(b, 3));
                const Value go_on =
                    w_.compare(Compare::equal, last_of(w_, step), zero);
                const Value after = w_.add(b[1], one);
                const Value ran_tiles =
                    w_.add(b[2], w_.convert(active, Element::i32));
                return with_front(
                    go_on, with_front(after, with_front(ran_tiles, next)));
              });
          at = ran[1];
          tiles = ran[2];
          return without_front(ran, 3);
        };
        const Values next = body(unit, q_begin, blocks, without_front(c, 2));
        return with_front(at, with_front(tiles, next));
      });
  tiles_ = out[1];
  return without_front(out, 2);
}

Values BlockLoops::single_row(const Unit& unit, const Values& start,
                              const RowBody& body) {
  const Value q_begin = w_.integer(0);
  const Blocks blocks = [&](const Values& first, const BlockBody& block) {
    const Value zero = w_.integer(0);
    if (s_.columns() == 1) {
      return block({unit.batch, unit.plan_head, q_begin, zero}, {}, first);
    }
    const Value end = w_.integer(static_cast<int32_t>(s_.columns()));
    return w_.count(zero, end, first, [&](const Value& c, const Values& rest) {
      const Value k_begin = times(w_, c, s_.block_kv());
      return block({unit.batch, unit.plan_head, q_begin, k_begin}, {}, rest);
    });
  };
  return body(unit, q_begin, blocks, start);
}

}  // namespace tessera::xla
