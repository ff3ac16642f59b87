// model/picked_steps.cc: finds which steps of a plan hold a pick, and packs
// them one after the other; prefix sums give each kept step its place.
#include <algorithm>

#include "base/integers.h"
#include "model/router.h"

namespace tessera::model {
namespace {

using xla::Compare;

constexpr int32_t kPartial = 1, kFull = 2;  // classes of packed steps

int32_t i32(int64_t n) { return static_cast<int32_t>(n); }

// Inclusive prefix sums along dimension 0.
Value running_sums(Writer& w, Value a) {
  const int64_t n = a.dims()[0];
  for (int64_t by = 1; by < n; by *= 2) {
    Dims head = a.dims();
    head[0] = by;
    const Values moved = {w.integer(0, head), w.part(a, 0, 0, n - by)};
    a = w.add(a, w.join(moved, 0));
  }
  return a;
}

// Exclusive prefix sums along dimension 0, followed by the total.
Value sums_before(Writer& w, const Value& a) {
  Dims head = a.dims();
  head[0] = 1;
  const Values parts = {w.integer(0, head), running_sums(w, a)};
  return w.join(parts, 0);
}

class Chooser {
 public:
  Chooser(Writer& w, const xla::Shape& s, const LayerRoute& route,
          const PickedSteps& plan)
      : w_(w),
        s_(s),
        block_(route.block),
        blocks_(ceil_div(s.kv_len, route.block)),
        heads_(s.pick_heads),
        steps_(plan.steps.dims()[0]),
        all_{steps_, heads_},
        words_(plan.steps),
        range_(plan.range) {
    // The batch row of a step: the number of lists that end before it.
    const Dims each = {steps_, s.batch};
    const Value ends = w.part(range_, 0, 1, s.batch + 1);
    const Value ended = w.compare(Compare::greater_or_equal, w.iota(each, 0),
                                  w.broadcast(ends, each, {1}));
    batch_ = w.reduce_sum(w.convert(ended, Element::i32), {1});
    listed_ =
        w.compare(Compare::less, batch_, w.integer(i32(s.batch), {steps_}));
    const Value last = w.integer(i32(s.batch - 1), {steps_});
    batch_ = w.select(listed_, batch_, last);
    row_ = w.bits(words_, 18, 14);
    column_ = w.bits(words_, 4, 14);
    class_ = w.bits(words_, 2, 2);
  }

  PickedSteps write(const Picked& picked) {
    const Value some = of_tiles(picked.some, false);
    const Value every = of_tiles(picked.every, true);
    const Value kind = w_.broadcast(class_, all_, {0});
    const Value zero = w_.integer(0, all_);
    // The step that marks an empty row is kept.
    const Value empty = w_.compare(Compare::equal, kind, zero);
    const Value wanted = w_.compare(Compare::not_equal, some, zero);
    const Value kept =
        w_.both(w_.broadcast(listed_, all_, {0}), w_.either(empty, wanted));
    const Value full =
        w_.compare(Compare::equal, kind, w_.integer(kFull, all_));
    const Value torn = w_.both(full, w_.compare(Compare::equal, every, zero));
    return compact(kept, w_.select(torn, w_.integer(kPartial, all_), kind));
  }

 private:
  // For each step, whether any, or all, of the blocks that its tile touches are
  // in the table.
  Value of_tiles(const Value& table, bool all) {
    const int64_t rows = table.dims()[1], tile = s_.tile.kv;
    const Value flat = w_.reshape(table, {s_.batch * rows * blocks_, heads_});
    const auto times = [&](const Value& a, int64_t n) {
      return w_.mul(a, w_.integer(i32(n), a.dims()));
    };
    const Value begin = times(column_, tile);
    const Value end = w_.add(begin, w_.integer(i32(tile - 1), {steps_}));
    const Value by = w_.integer(i32(block_), {steps_});
    const Value first = w_.div(begin, by), last = w_.div(end, by);
    const Value beyond = w_.integer(i32(blocks_ - 1), {steps_});
    const Value line = w_.add(times(batch_, rows), row_);
    const Value base = times(line, blocks_);
    int64_t most = 1;  // the most blocks that a tile touches
    for (int64_t c = 0; c < s_.kv_len / tile; ++c) {
      most = std::max(most,
                      (c * tile + tile - 1) / block_ - c * tile / block_ + 1);
    }
    Value out;
    for (int64_t i = 0; i < most; ++i) {
      Value at = w_.add(first, w_.integer(i32(i), {steps_}));
      at = least(least(at, last), beyond);
      const Value told = w_.rows(flat, w_.add(base, at));
      if (i == 0) {
        out = told;
      } else {
        out = all ? least(out, told) : w_.max(out, told);
      }
    }
    return out;
  }

  Value least(const Value& a, const Value& b) {
    return w_.select(w_.compare(Compare::less, a, b), a, b);
  }

  PickedSteps compact(const Value& kept, const Value& kind) {
    const Value counts = w_.convert(kept, Element::i32);
    const Value before = sums_before(w_, counts);
    // For each batch row and head, how many kept steps come before its list.
    const Value at_lists = w_.rows(before, range_);
    const Value of_lists = w_.sub(w_.part(at_lists, 0, 1, s_.batch + 1),
                                  w_.part(at_lists, 0, 0, s_.batch));
    const int64_t lists = s_.batch * heads_;
    const Value range = sums_before(w_, w_.reshape(of_lists, {lists}));
    const Value starts =
        w_.reshape(w_.part(range, 0, 0, lists), {s_.batch, heads_});
    const Value shift = w_.sub(starts, w_.part(at_lists, 0, 0, s_.batch));
    const Value place =
        w_.add(w_.part(before, 0, 0, steps_), w_.rows(shift, batch_));
    // Dropped steps go to n + 1; place n stays empty and so ends the last row.
    const int64_t n = steps_ * heads_;
    const Value to = w_.select(kept, place, w_.integer(i32(n + 1), all_));
    return {mark(place_words(to, kind, n), n), range};
  }

  // [n + 2, 2]: the packed step without marks, and an id of its row, never 0.
  Value place_words(const Value& to, const Value& kind, int64_t n) {
    const auto shifted = [&](const Value& a, int32_t by) {
      return w_.mul(a, w_.integer(by, a.dims()));
    };
    const Value place =
        w_.add(shifted(row_, 1 << 18), shifted(column_, 1 << 4));
    const Value words =
        w_.add(w_.broadcast(place, all_, {0}), shifted(kind, 1 << 2));
    const Value list =
        w_.add(w_.broadcast(shifted(batch_, i32(heads_)), all_, {0}),
               w_.iota(all_, 1));
    const Value row =
        w_.add(w_.broadcast(row_, all_, {0}), w_.integer(1, all_));
    const Value rows = w_.add(shifted(list, 1 << 15), row);
    const Values both = {w_.reshape(words, {n, 1}), w_.reshape(rows, {n, 1})};
    return w_.add_rows(w_.integer(0, {n + 2, 2}), w_.reshape(to, {n}),
                       w_.join(both, 1));
  }

  // A step is the last of its row if the next step belongs to another row.
  Value mark(const Value& placed, int64_t n) {
    const auto column = [&](int64_t at, int64_t begin) {
      const Value of = w_.part(placed, 1, at, at + 1);
      return w_.reshape(w_.part(of, 0, begin, begin + n), {n});
    };
    const Value last =
        w_.compare(Compare::not_equal, column(1, 0), column(1, 1));
    return w_.add(column(0, 0), w_.convert(last, Element::i32));
  }

  Writer& w_;
  const xla::Shape& s_;
  const int64_t block_, blocks_, heads_, steps_;
  const Dims all_;  // [steps, heads]
  const Value words_, range_;
  Value batch_, row_, column_, class_, listed_;  // of each step
};

}  // namespace

PickedSteps write_picked_steps(Writer& w, const xla::Shape& s,
                               const LayerRoute& route, const Picked& picked,
                               const PickedSteps& plan) {
  return Chooser(w, s, route, plan).write(picked);
}

}  // namespace tessera::model
