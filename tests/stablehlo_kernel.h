// tests/stablehlo_kernel.h: the computation of the TPU kernels as StableHLO,
// over the same arrays that the kernels read.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "lanes/mosaic/array_check.h"
#include "lanes/mosaic/kernel_steps.h"
#include "lanes/xla/writer.h"
#include "tessera/mosaic.h"

namespace tessera::testing {

// Writes the computation at the writer's position. Arguments of the program, or
// values bound to their names, are the kernel's arrays. A pair is legal if its
// tile is in the list, its ids are equal and its key is within the bounds, or
// with bitmaps if its bit is set.
class StablehloKernel {
 public:
  using Compare = xla::Compare;
  using Dims = xla::Dims;
  using Element = xla::Element;
  using Value = xla::Value;

  // Without bitmaps a mask always has an upper bound of key - position, and
  // with `has_low` a lower one. With `wide_sums` dK and dV are float32.
  StablehloKernel(xla::Writer& w, const MosaicKernel& kernel, bool has_low,
                  bool wide_sums = false)
      : w_(w),
        k_(kernel),
        s_(kernel.call.shape),
        has_low_(has_low),
        wide_sums_(wide_sums) {}

  // The arguments of a program with one kernel.
  static std::vector<xla::Argument> arguments(const MosaicKernel& k);

  std::vector<Value> results() {
    if (k_.call.sink_telemetry) return telemetry();
    return k_.call.backward ? gradients() : output();
  }

  // Forward, for a call in parts (lanes/mosaic/shape.h). Rows that have a step
  // in this call are written; other rows keep `before`, or are NaN. Between
  // calls a row's maximum, sum and weighted values are stored where the kernel
  // stores them.
  std::vector<Value> forward_parts(
      const std::vector<std::optional<Value>>& before) {
    const Value named = w_.reduce_any(this->named(), {1, 3});
    const Value told = queries_of(named);
    const Value begins = queries_of(row_flags(1));
    const Value ends = queries_of(row_flags(0));
    const Dims rows = {k_.batch, s_.heads, k_.q_len};
    const Dims state = {k_.batch, s_.heads, k_.q_len, 16 + s_.v_head_dim};
    const Value so_far =
        before[2] ? unspilled(*before[2], state) : nan_like(w_.real(0, state));
    const Value goes_on = w_.both(told, w_.negate(begins));
    const auto there = [&](int64_t first, int64_t end, double none) {
      const Value part = w_.part(so_far, 3, first, end);
      return w_.select(over(goes_on, part), part, w_.real(none, part.dims()));
    };
    const Sums here = sums_of_rows();
    const Value most_there = w_.reshape(there(0, 1, -1e30), rows);
    const Value most = w_.max(here.most, most_there);
    const Value own = w_.exp(w_.sub(here.most, most));
    const Value old = w_.exp(w_.sub(most_there, most));
    const auto joined = [&](const Value& x, const Value& before_it) {
      const Value mine = w_.mul(x, over(own, x));
      const Value theirs = w_.mul(before_it, over(old, x));
      return w_.add(mine, theirs);
    };
    const Value sum_there = w_.reshape(there(8, 9, 0), rows);
    const Value out_there = there(16, state[3], 0);
    const Sums sums = {most, joined(here.sum, sum_there),
                       joined(here.out, out_there)};
    std::vector<Value> made = output_of(sums);
    const Value done = w_.both(told, ends);
    for (size_t i = 0; i < made.size(); ++i) {
      const Value is_done = made[i].dims()[2] == 1
                                ? w_.reshape(done, made[i].dims())
                                : over(done, made[i]);
      const Value other = before[i] ? *before[i] : nan_like(made[i]);
      made[i] = w_.select(is_done, made[i], other);
    }
    Dims line = state;
    line[3] = 8;
    const Value all = w_.join(
        std::vector<Value>{w_.broadcast(sums.most, line, {0, 1, 2}),
                           w_.broadcast(sums.sum, line, {0, 1, 2}), sums.out},
        3);
    const Value stays = w_.both(told, w_.negate(ends));
    made.push_back(spilled(w_.select(over(stays, all), all, so_far)));
    return made;
  }

  // Backward, for a call of columns in parts (lanes/mosaic/shape.h). Rows that
  // the call is told are written; other rows keep `before`. Values without a
  // part of any row are NaN, and so are columns with a step of a row not told.
  struct Parts {
    Value dq, dk, dv, dsink_logits, dq_so_far;
  };
  struct PartsBefore {
    std::optional<Value> dq, dk, dv, dq_so_far;
  };
  Parts parts(const PartsBefore& before) {
    const Rows rows = told_rows();
    wide_dq_ = true;
    sink_rows_ = queries_of(w_.both(rows.told, rows.begins));
    std::vector<Value> made = gradients();
    Parts out = {made[0], made[1], made[2], {}, {}};
    if (k_.call.sink_logits) out.dsink_logits = made[3];
    const auto or_nan = [&](const std::optional<Value>& x, const Value& like) {
      return x ? *x : nan_like(like);
    };
    const Value told = over(queries_of(rows.told), out.dq);
    const Value begins = over(queries_of(rows.begins), out.dq);
    const Value ends = over(queries_of(rows.ends), out.dq);
    const Value so_far = or_nan(before.dq_so_far, spilled(out.dq));
    const Value total = w_.select(
        begins, out.dq, w_.add(unspilled(so_far, out.dq.dims()), out.dq));
    const Value narrow_total = w_.convert(total, narrow());
    out.dq = w_.select(w_.both(told, ends), narrow_total,
                       or_nan(before.dq, narrow_total));
    const Value stays = w_.both(told, w_.negate(ends));
    out.dq_so_far =
        spilled(w_.select(stays, total, unspilled(so_far, total.dims())));
    const auto [named, lost] = columns(rows.told);
    // A column that only some lists of a K/V head have is lost for that head.
    const Value some = keys_of(named);
    const Value lost_keys =
        w_.either(keys_of(lost), w_.both(some, keys_of(w_.negate(named))));
    for (auto [array, old] :
         {std::pair{&out.dk, &before.dk}, std::pair{&out.dv, &before.dv}}) {
      const Value none = nan_like(*array);
      *array = w_.select(over(lost_keys, *array), none, *array);
      *array = w_.select(over(some, *array), *array, or_nan(*old, none));
    }
    return out;
  }

 private:
  Value nan_like(const Value& x) {
    return w_.real(__builtin_nanf(""), x.dims(), x.type.element);
  }
  // Forward: a flag of each row, [lists, rows], in the order of rows.
  Value row_flags(int32_t bit) {
    const int64_t rows = k_.q_len / k_.tile.q;
    const Value words = w_.reshape(w_.argument("rows"), {lists(), 2 + rows});
    const Value flags = w_.bits(w_.part(words, 1, 2, 2 + rows), bit, 1);
    return w_.compare(Compare::equal, flags, w_.integer(1, flags.dims()));
  }
  // Flags, each [lists, rows].
  struct Rows {
    Value told, begins, ends;
  };
  Rows told_rows() {
    const int64_t rows = k_.q_len / k_.tile.q;
    const int64_t chunks = mosaic::chunks_of(k_);
    const int64_t all = lists() * chunks;
    const int64_t most = rows_of_chunk();
    const Value words = w_.reshape(w_.argument("rows"), {all, 2 + most});
    const Dims each = {all, most, rows};
    const Value count = w_.reshape(w_.part(words, 1, 0, 1), {all});
    const Value word = w_.part(words, 1, 2, 2 + most);
    const auto field = [&](int32_t at, int32_t width) {
      return w_.broadcast(w_.bits(word, at, width), each, {0, 1});
    };
    const Value is_there = w_.compare(Compare::less, w_.iota(each, 1),
                                      w_.broadcast(count, each, {0}));
    const Value here = w_.both(
        is_there, w_.compare(Compare::equal, field(2, 16), w_.iota(each, 2)));
    // Whether any chunk of the list is told the row.
    const auto of_lists = [&](const Value& told) {
      return w_.reduce_any(w_.reshape(told, {lists(), chunks * most, rows}),
                           {1});
    };
    const auto has = [&](int32_t bit) {
      const Value set =
          w_.compare(Compare::equal, field(bit, 1), w_.integer(1, each));
      return of_lists(w_.both(here, set));
    };
    return {of_lists(here), has(1), has(0)};
  }
  // Expands values of (list, tile) to values of each head's tokens.
  Value tokens_of(const Value& tiles, int64_t heads, int64_t tokens) {
    const int64_t n = tiles.dims()[1];
    const int64_t lists = tiles.dims()[0] / k_.batch;
    const Dims split = {k_.batch, lists, heads / lists, n, tokens};
    return w_.reshape(
        w_.broadcast(w_.reshape(tiles, {k_.batch, lists, n}), split, {0, 1, 3}),
        {k_.batch, heads, n * tokens});
  }
  Value queries_of(const Value& rows) {
    return tokens_of(rows, s_.heads, k_.tile.q);
  }
  // Expands flags of columns to tokens of K/V heads. A head that several lists
  // share has a flag if any of the lists has it.
  Value keys_of(const Value& columns) {
    const int64_t share = std::max<int64_t>(1, k_.plan_heads / s_.kv_heads);
    const Value any = w_.reduce_any(
        w_.reshape(columns, {lists() / share, share, columns.dims()[1]}), {1});
    return tokens_of(any, s_.kv_heads, k_.tile.kv);
  }
  Value over(const Value& tokens, const Value& array) {
    return w_.broadcast(tokens, array.dims(), {0, 1, 2});
  }
  // Flags [lists, columns]: columns with a step, and columns with a step whose
  // row is not told.
  std::pair<Value, Value> columns(const Value& told) {
    const Value named = w_.reduce_any(this->named(), {1});
    const Value lost =
        w_.both(named, w_.negate(w_.broadcast(told, named.dims(), {0, 1})));
    return {w_.reduce_any(named, {1}), w_.reduce_any(lost, {1})};
  }
  // Dims of the sums of queries between calls, [rows * heads, dim, block_q].
  // The batch has one row.
  Dims dims_of_spill(const Dims& tokens) const {
    const int64_t rows = k_.q_len / k_.tile.q;
    return {rows * s_.heads, tokens[3], k_.tile.q};
  }
  Value spilled(const Value& dq) {
    const int64_t rows = k_.q_len / k_.tile.q;
    const int64_t dim = dq.dims()[3];
    const Value split = w_.reshape(dq, {s_.heads, rows, k_.tile.q, dim});
    return w_.reshape(w_.transpose(split, {1, 0, 3, 2}),
                      dims_of_spill(dq.dims()));
  }
  Value unspilled(const Value& spill, const Dims& dq) {
    const int64_t rows = k_.q_len / k_.tile.q;
    const Value split = w_.reshape(spill, {rows, s_.heads, dq[3], k_.tile.q});
    return w_.reshape(w_.transpose(split, {1, 0, 3, 2}), dq);
  }

  int64_t lists() const { return k_.batch * k_.plan_heads; }
  int64_t rows_of_chunk() const {
    const int64_t queries = k_.query_chunk == 0 ? k_.q_len : k_.query_chunk;
    return queries / k_.tile.q;
  }

  // [lists, steps, rows, columns]: whether step s is of list l and of that
  // tile, and not padding. In a transposed list a row is a tile of keys.
  Value listed() {
    const Value out = named();
    const Dims& tiles = out.dims();
    const Value step_class =
        w_.broadcast(w_.bits(w_.argument("steps"), 2, 2), tiles, {1});
    return w_.both(
        out, w_.compare(Compare::greater, step_class, w_.integer(0, tiles)));
  }
  // The same for steps of any class.
  Value named() {
    const Dims tiles = {lists(), k_.steps, k_.q_len / k_.tile.q,
                        k_.kv_len / k_.tile.kv};
    const auto field = [&](int32_t at, int32_t width) {
      return w_.broadcast(w_.bits(w_.argument("steps"), at, width), tiles, {1});
    };
    Value out = k_.page > 0 ? in_pages(tiles) : in_range(tiles);
    out = w_.both(out, w_.compare(Compare::equal, field(18, 14),
                                  w_.iota(tiles, k_.call.backward ? 3 : 2)));
    return w_.both(out, w_.compare(Compare::equal, field(4, 14),
                                   w_.iota(tiles, k_.call.backward ? 2 : 3)));
  }
  // Whether step s is of list l, and of the chunk that has query row r.
  Value in_range(const Dims& tiles) {
    const int64_t chunks = mosaic::chunks_of(k_);
    const int64_t rows = rows_of_chunk();
    const auto ends = [&](int32_t from) {
      const std::vector<Value> first = {w_.integer(from)};
      const Value all =
          w_.slice(w_.argument("range"), first, {lists() * chunks});
      const Value of_rows =
          w_.reshape(w_.broadcast(all, {lists() * chunks, rows}, {0}),
                     {lists(), chunks * rows});
      return w_.broadcast(w_.part(of_rows, 1, 0, tiles[2]), tiles, {0, 2});
    };
    const Value number = w_.iota(tiles, 1);
    return w_.both(w_.compare(Compare::greater_or_equal, number, ends(0)),
                   w_.compare(Compare::less, number, ends(1)));
  }
  // The same with pages. All lists have the same number of pages, and `range`
  // has the number of steps of each page.
  Value in_pages(const Dims& tiles) {
    const int64_t pages = k_.steps / k_.page;
    const Dims each = {lists(), pages, k_.page};
    const std::vector<Value> first = {w_.integer(0)};
    const Value held =
        w_.broadcast(w_.slice(w_.argument("range"), first, {pages}), each, {1});
    const auto of_list = static_cast<int32_t>(pages / lists());
    const Value begin = w_.mul(w_.iota(each, 0), w_.integer(of_list, each));
    const Value page = w_.iota(each, 1);
    Value out = w_.compare(Compare::less, w_.iota(each, 2), held);
    out = w_.both(out, w_.compare(Compare::greater_or_equal, page, begin));
    out = w_.both(out, w_.compare(Compare::less, page,
                                  w_.add(begin, w_.integer(of_list, each))));
    return w_.broadcast(w_.reshape(out, {lists(), k_.steps}), tiles, {0, 1});
  }
  // Expands values of tiles, [lists, rows, columns], to values of pairs.
  Value as_pairs(const Value& tiles) {
    const Dims& d = tiles.dims();
    return w_.reshape(
        w_.broadcast(tiles, {d[0], d[1], k_.tile.q, d[2], k_.tile.kv},
                     {0, 1, 3}),
        pairs_of_lists());
  }
  Dims pairs_of_lists() const {
    return {k_.batch, k_.plan_heads, k_.q_len, k_.kv_len};
  }
  // All pairs of a full tile are legal; in other tiles the bits decide.
  Value by_bitmaps(const Value& listed) {
    const Dims& tiles = listed.dims();
    const auto of_steps = [&](const Value& word) {
      return w_.broadcast(word, tiles, {1});
    };
    const Value is_full = w_.compare(
        Compare::equal, of_steps(w_.bits(w_.argument("steps"), 2, 2)),
        w_.integer(2, tiles));
    const Value full = w_.reduce_any(w_.both(listed, is_full), {1});
    // A tile has at most one step, so the sum is its bitmap's number.
    const Value number =
        w_.reduce_sum(w_.select(listed, of_steps(w_.argument("bits_of")),
                                w_.integer(0, tiles)),
                      {1});
    const Dims& each = number.dims();
    const int64_t n = each[0] * each[1] * each[2];
    const Value& bits = w_.argument("bits");
    const int64_t rows = bits.dims()[1];
    const Value words =
        w_.rows(w_.reshape(bits, {bits.dims()[0], rows * k_.tile.q}),
                w_.reshape(number, {n}));
    std::vector<Value> parts;
    for (int32_t j = 0; j < k_.tile.kv / rows; ++j) {
      parts.push_back(
          w_.reshape(w_.bits(words, j, 1), {n, 1, rows, k_.tile.q}));
    }
    const Value keys = w_.reshape(
        w_.join(parts, 1), {each[0], each[1], each[2], k_.tile.kv, k_.tile.q});
    const Value ok =
        w_.reshape(w_.transpose(keys, {0, 1, 4, 2, 3}), pairs_of_lists());
    return w_.either(
        as_pairs(full),
        w_.compare(Compare::equal, ok, w_.integer(1, pairs_of_lists())));
  }

  // [batch, plan heads, queries, keys].
  Value legal() {
    const Dims pairs = pairs_of_lists();
    const Value tiles = listed();
    Value legal = k_.bitmaps > 0 ? by_bitmaps(tiles)
                                 : as_pairs(w_.reduce_any(tiles, {1}));
    if (k_.call.sink_telemetry) return legal;
    const Value q_ids = w_.reshape(w_.argument("q_ids"), {k_.batch, k_.q_len});
    const Value kv_ids =
        w_.reshape(w_.argument("kv_ids"), {k_.batch, k_.kv_len});
    legal = w_.both(
        legal, w_.compare(Compare::equal, w_.broadcast(q_ids, pairs, {0, 2}),
                          w_.broadcast(kv_ids, pairs, {0, 3})));
    if (k_.bitmaps > 0) return legal;
    const std::vector<Value> second = {w_.integer(2)};
    const Value offsets = w_.slice(w_.argument("bounds"), second, {k_.batch});
    const Value position =
        w_.add(w_.iota(pairs, 2), w_.broadcast(offsets, pairs, {0}));
    const Value distance = w_.sub(w_.iota(pairs, 3), position);
    const auto bound = [&](int32_t at) {
      return w_.broadcast(w_.element(w_.argument("bounds"), w_.integer(at)),
                          pairs, {});
    };
    if (has_low_) {
      legal = w_.both(
          legal, w_.compare(Compare::greater_or_equal, distance, bound(0)));
    }
    return w_.both(legal,
                   w_.compare(Compare::less_or_equal, distance, bound(1)));
  }
  // [batch, heads, queries, keys].
  Value mask() {
    const int64_t group = s_.heads / k_.plan_heads;
    return w_.reshape(
        w_.broadcast(legal(),
                     {k_.batch, k_.plan_heads, group, k_.q_len, k_.kv_len},
                     {0, 1, 3, 4}),
        pairs());
  }

  // Numbers that no legal pair reads may be NaN or Inf; they are replaced by 0.
  Value finite(std::string_view name) {
    const Value x = w_.convert(w_.argument(name), w_.wide());
    return w_.select(w_.is_finite(x), x, w_.real(0, x.dims()));
  }
  // Repeats a K/V head for each of its query heads; gathered() sums back.
  Value spread(const Value& x) {
    const int64_t group = s_.heads / s_.kv_heads;
    return w_.reshape(
        w_.broadcast(x, {k_.batch, s_.kv_heads, group, k_.kv_len, x.dims()[3]},
                     {0, 1, 3, 4}),
        {k_.batch, s_.heads, k_.kv_len, x.dims()[3]});
  }
  Value gathered(const Value& x) {
    const int64_t group = s_.heads / s_.kv_heads;
    return w_.reduce_sum(
        w_.reshape(x, {k_.batch, s_.kv_heads, group, k_.kv_len, x.dims()[3]}),
        {2});
  }
  Dims pairs() const { return {k_.batch, s_.heads, k_.q_len, k_.kv_len}; }
  Value scores() {
    const Value s = w_.mul(
        w_.dot(finite("q"), spread(finite("k")), {{0, 1}, {0, 1}, {3}, {3}}),
        w_.real(scale(), pairs()));
    if (s_.softcap == 0) return s;
    const Value cap = w_.real(s_.softcap, pairs());
    return w_.mul(w_.tanh(w_.div(s, cap)), cap);
  }
  // The derivative of the softcap at these capped scores.
  Value slope(const Value& scores) {
    const Value bent = w_.div(scores, w_.real(s_.softcap, pairs()));
    return w_.sub(w_.real(1, pairs()), w_.mul(bent, bent));
  }
  double scale() const { return s_.scale_or_default(); }
  Element narrow() const { return w_.argument("q").type.element; }
  Value over_keys(const Value& x) {
    return w_.broadcast(x, pairs(), {0, 1, 2});
  }

  // For each query: the highest score, the sum of weights, the weighted values.
  struct Sums {
    Value most, sum, out;
  };
  Sums sums_of_rows() {
    const Value mask = this->mask();
    const Value s = w_.select(mask, scores(), w_.real(-1e30F, pairs()));
    const Value most = w_.reduce_max(s, {3});
    const Value p = w_.select(mask, w_.exp(w_.sub(s, over_keys(most))),
                              w_.real(0, pairs()));
    const Value sum = w_.reduce_sum(p, {3});
    return {most, sum,
            w_.dot(p, spread(finite("v")), {{0, 1}, {0, 1}, {3}, {2}})};
  }
  std::vector<Value> output() { return output_of(sums_of_rows()); }
  std::vector<Value> output_of(const Sums& sums) {
    const Dims rows = {k_.batch, s_.heads, k_.q_len};
    const auto& [most, sum, out] = sums;
    const Value live = w_.compare(Compare::greater, sum, w_.real(0, rows));
    Value divisor = w_.select(live, sum, w_.real(1, rows));
    Value lse = w_.select(live, w_.add(most, w_.log(divisor)),
                          w_.real(-__builtin_inff(), rows));
    if (k_.call.sink_logits) {
      const Value sink = sinks();
      const Value top = w_.max(lse, sink);
      const Value joined = w_.add(
          top,
          w_.log(w_.add(w_.exp(w_.sub(lse, top)), w_.exp(w_.sub(sink, top)))));
      divisor = w_.mul(divisor, w_.select(live, w_.exp(w_.sub(joined, lse)),
                                          w_.real(1, rows)));
      lse = joined;
    }
    return {
        w_.convert(w_.div(out, w_.broadcast(divisor, out.dims(), {0, 1, 2})),
                   narrow()),
        w_.reshape(lse, {k_.batch, s_.heads, 1, k_.q_len})};
  }

  // The log-sum-exp and the entropy.
  std::vector<Value> telemetry() {
    const Dims rows = {k_.batch, s_.heads, k_.q_len};
    const Value mask = this->mask();
    const Value none = w_.real(0, pairs());
    const Value s = w_.select(mask, scores(), w_.real(-1e30F, pairs()));
    const Value most = w_.reduce_max(s, {3});
    const Value distance = w_.select(mask, w_.sub(s, over_keys(most)), none);
    const Value p = w_.select(mask, w_.exp(distance), none);
    const Value sum = w_.reduce_sum(p, {3});
    const Value live = w_.compare(Compare::greater, sum, w_.real(0, rows));
    const Value divisor = w_.select(live, sum, w_.real(1, rows));
    const Value spread = w_.reduce_sum(w_.mul(p, distance), {3});
    const Value log_sum = w_.log(divisor);
    const Value lse = w_.select(live, w_.add(most, log_sum),
                                w_.real(-__builtin_inff(), rows));
    const Value entropy = w_.sub(log_sum, w_.div(spread, divisor));
    const Dims lines = {k_.batch, s_.heads, 1, k_.q_len};
    return {w_.reshape(lse, lines), w_.reshape(entropy, lines)};
  }

  std::vector<Value> gradients() {
    const Dims rows = {k_.batch, s_.heads, k_.q_len};
    const Value mask = this->mask();
    const Value lse = w_.reshape(finite("lse"), rows);
    const Value s = scores();
    const Value p =
        w_.select(mask, w_.exp(w_.sub(s, over_keys(lse))), w_.real(0, pairs()));
    const Value dout = finite("dout");
    Value delta = w_.reduce_sum(w_.mul(finite("out"), dout), {3});
    if (k_.call.dlse) {
      delta = w_.sub(delta, w_.reshape(finite("dlse"), rows));
    }
    const Value dp =
        w_.dot(dout, spread(finite("v")), {{0, 1}, {0, 1}, {3}, {3}});
    Value ds = w_.mul(w_.mul(p, w_.sub(dp, over_keys(delta))),
                      w_.real(scale(), pairs()));
    if (s_.softcap != 0) ds = w_.mul(ds, slope(s));
    const Value dq =
        w_.dot(ds, spread(finite("k")), {{0, 1}, {0, 1}, {3}, {2}});
    const Value dk = w_.dot(ds, finite("q"), {{0, 1}, {0, 1}, {2}, {2}});
    const Value dv = w_.dot(p, dout, {{0, 1}, {0, 1}, {2}, {2}});
    const Element of_sums = wide_sums_ ? w_.wide() : narrow();
    std::vector<Value> out = {wide_dq_ ? dq : w_.convert(dq, narrow()),
                              w_.convert(gathered(dk), of_sums),
                              w_.convert(gathered(dv), of_sums)};
    if (k_.call.sink_logits) out.push_back(of_sinks(delta));
    return out;
  }

  Value sinks() {
    return w_.broadcast(w_.argument("sink_logits"),
                        {k_.batch, s_.heads, k_.q_len}, {1});
  }
  // -sum(p * delta) over real queries; p is 1 for a query without a key.
  Value of_sinks(const Value& delta) {
    const Dims rows = delta.dims();
    const Value ids = w_.broadcast(
        w_.reshape(w_.argument("q_ids"), {k_.batch, k_.q_len}), rows, {0, 2});
    const auto above = [&](int32_t id) {
      return w_.compare(Compare::greater, ids, w_.integer(id, rows));
    };
    const Value lse = w_.reshape(finite("lse"), rows);
    const Value p =
        w_.select(above(-1), w_.exp(w_.sub(sinks(), lse)), w_.real(1, rows));
    const Value counts =
        sink_rows_ ? w_.both(above(-3), *sink_rows_) : above(-3);
    const Value part = w_.select(counts, w_.mul(p, delta), w_.real(0, rows));
    const Value sum = w_.reduce_sum(part, {0, 2});
    return w_.broadcast(w_.sub(w_.real(0, sum.dims()), sum), {s_.heads, 1, 128},
                        {0});
  }

  xla::Writer& w_;
  const MosaicKernel& k_;
  const AttentionShape& s_;
  bool has_low_;
  bool wide_sums_;
  bool wide_dq_ = false;
  std::optional<Value> sink_rows_;  // queries that count for sinks; none: all
};

inline std::vector<xla::Argument> StablehloKernel::arguments(
    const MosaicKernel& k) {
  const AttentionShape& s = k.call.shape;
  const auto ints = [](Dims dims) {
    return xla::Type{Element::i32, std::move(dims)};
  };
  const Element own = k.call.dtype == Dtype::f32 ? Element::f32 : Element::bf16;
  const auto queries = [&](int64_t dim) {
    return xla::Type{own, {k.batch, s.heads, k.q_len, dim}};
  };
  const auto keys = [&](int64_t dim) {
    return xla::Type{own, {k.batch, s.kv_heads, k.kv_len, dim}};
  };
  const xla::Type lines = {Element::f32, {k.batch, s.heads, 1, k.q_len}};
  std::vector<xla::Argument> out = {
      {"steps", ints({k.steps})},
      {"range", ints(mosaic::array_shapes(k)[1].shape)},
      {"bounds", ints({k.batch + 2})}};
  if (k.bitmaps > 0) out.push_back({"bits_of", ints({k.steps})});
  if (k.call.sink_logits) {
    out.push_back({"sink_logits", {Element::f32, {s.heads}}});
  }
  out.insert(out.end(), {{"q", queries(s.head_dim)}, {"k", keys(s.head_dim)}});
  const xla::Argument bits = {
      // of tiles of 128 keys
      "bits", ints({k.bitmaps, k.tile.kv / 16, k.tile.q})};
  if (k.call.sink_telemetry) {
    out.push_back(bits);
    return out;
  }
  out.push_back({"v", keys(s.v_head_dim)});
  if (k.call.backward) {
    out.insert(out.end(), {{"out", queries(s.v_head_dim)},
                           {"dout", queries(s.v_head_dim)},
                           {"lse", lines}});
    if (k.call.dlse) out.push_back({"dlse", lines});
  }
  out.push_back({"q_ids", ints({k.batch, k.q_len / 128, 128})});
  out.push_back({"kv_ids", ints({k.batch, k.kv_len / 128, 128})});
  if (k.bitmaps > 0) out.push_back(bits);
  return out;
}

}  // namespace tessera::testing
