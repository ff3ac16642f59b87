// lanes/xla/block.cc: slices, and matrix products that leave out illegal pairs.
#include "lanes/xla/block.h"

#include <array>
#include <limits>

namespace tessera::xla {
namespace {

using Values = Writer::Values;

constexpr int64_t kFull = 2;  // step class: full, within the lengths

}  // namespace

Value query_rows(Writer& w, const Shape& s, const std::string& array,
                 const Unit& unit, const Value& q_begin) {
  const Value& all = w.argument(array);
  const int64_t dim = all.dims().back();
  const Value zero = w.integer(0);
  const Value rows =
      w.slice(all, std::array{unit.batch, unit.head, q_begin, zero},
              {1, s.unit_heads(), s.block_q(), dim});
  return w.reshape(rows, {s.unit_kv_heads(), s.unit_group(), s.block_q(), dim});
}

Value clean(Writer& w, const Value& rows, const Value& valid, int64_t along) {
  const Value zero = w.real(0, rows.dims(), rows.type.element);
  return w.select(w.broadcast(valid, rows.dims(), {along}), rows, zero);
}

Value head_numbers(Writer& w, const Shape& s, const std::string& array,
                   const Unit& unit) {
  const Value numbers =
      w.slice(w.argument(array), std::array{unit.head}, {s.unit_heads()});
  return w.reshape(numbers, {s.unit_kv_heads(), s.unit_group()});
}

Value query_numbers(Writer& w, const Shape& s, const std::string& array,
                    const Unit& unit, const Value& q_begin) {
  const Value numbers =
      w.slice(w.argument(array), std::array{unit.batch, unit.head, q_begin},
              {1, s.unit_heads(), s.block_q()});
  return w.reshape(numbers, {s.unit_kv_heads(), s.unit_group(), s.block_q()});
}

Value write_rows(Writer& w, const Shape& s, const Value& array,
                 const Value& rows, const Unit& unit, const Value& q_begin) {
  Dims dims = {1, s.unit_heads(), s.block_q()};
  Values at = {unit.batch, unit.head, q_begin};
  if (array.dims().size() == 4) {
    dims.push_back(array.dims().back());
    at.push_back(w.integer(0));
  }
  const Value cast = w.convert(rows, array.type.element);
  return w.update(array, w.reshape(cast, dims), at);
}

Value key_rows(Writer& w, const Shape& s, const Value& array, const Unit& unit,
               const Value& k_begin) {
  const int64_t dim = array.dims().back();
  const Value zero = w.integer(0);
  const Value rows =
      w.slice(array, std::array{unit.batch, unit.kv_head, k_begin, zero},
              {1, s.unit_kv_heads(), s.block_kv(), dim});
  return w.reshape(rows, {s.unit_kv_heads(), s.block_kv(), dim});
}

Value add_to_key_rows(Writer& w, const Shape& s, const Value& array,
                      const Value& more, const Unit& unit,
                      const Value& k_begin) {
  const Value sum = w.add(key_rows(w, s, array, unit, k_begin), more);
  const Value rows =
      w.reshape(sum, {1, s.unit_kv_heads(), s.block_kv(), array.dims().back()});
  const Value zero = w.integer(0);
  return w.update(array, rows,
                  std::array{unit.batch, unit.kv_head, k_begin, zero});
}

Value unclean_columns(Writer& w, const Shape& s, const std::string& array) {
  const Value& all = w.argument(array);
  const Dims flags = {s.batch, s.columns()};
  const Value none = w.truth(false, flags);
  const Value zero = w.integer(0);
  const Value end = w.integer(static_cast<int32_t>(s.batch));
  const Values start = {none};
  return w
      .count(zero, end, start,
             [&](const Value& b, const Values& carried) {
               const Dims one = {1, s.kv_heads, s.kv_len, all.dims().back()};
               const Value rows =
                   w.slice(all, std::array{b, zero, zero, zero}, one);
               const Value bad = w.negate(w.is_finite(rows));
               const Value keys = valid_keys(w, s, b, zero, s.kv_len);
               const Value counted = w.both(bad, w.broadcast(keys, one, {2}));
               const Value tiles =
                   w.reshape(counted, {1, s.kv_heads, s.columns(), s.block_kv(),
                                       all.dims().back()});
               const Value found = w.reduce_any(tiles, {1, 3, 4});
               return Values{
                   w.update(carried.front(), found, std::array{b, zero})};
             })
      .front();
}

Value is_unclean(Writer& w, const Value& rows) {
  Dims all;
  for (size_t i = 0; i < rows.dims().size(); ++i) {
    all.push_back(static_cast<int64_t>(i));
  }
  return w.reduce_any(w.negate(w.is_finite(rows)), all);
}

Value base_of(Writer& w, const Value& maximum) {
  const Value low =
      w.real(-std::numeric_limits<float>::infinity(), maximum.dims());
  const Value zero = w.real(0, maximum.dims());
  return w.select(w.compare(Compare::equal, maximum, low), zero, maximum);
}

Value over_scores(Writer& w, const Value& a, const Dims& scores) {
  // [queries, keys] are the last two dimensions, [.., .., queries] the first 3.
  return a.dims().size() == 2 ? w.broadcast(a, scores, {2, 3})
                              : w.broadcast(a, scores, {0, 1, 2});
}

Scores scores_of(Writer& w, const Shape& s, const Unit& unit,
                 const Block& block, const std::optional<Value>& tile_class,
                 const Value& queries, bool with_slope) {
  Scores out;
  const Dims pairs = {s.block_q(), s.block_kv()};
  const Writer::Branch none = [&] { return Values{w.truth(false, pairs)}; };
  const Writer::Branch all = [&] { return Values{w.truth(true, pairs)}; };
  const Writer::Branch some = [&] { return Values{legal_pairs(w, s, block)}; };
  // A full tile that crosses the lengths (class 3) is checked pair by pair.
  out.legal =
      tile_class
          ? w.choose(*tile_class, std::array{none, some, all, some}).front()
          : some().front();
  out.all_legal = tile_class
                      ? w.compare(Compare::equal, *tile_class, w.integer(kFull))
                      : w.truth(false);
  const Value counted =
      valid_keys(w, s, block.batch, block.k_begin, s.block_kv());
  const Value keys = key_rows(w, s, w.argument("k"), unit, block.k_begin);
  out.keys = clean(w, keys, counted, 1);
  if (!s.sinks) {
    const Value values = key_rows(w, s, w.argument("v"), unit, block.k_begin);
    out.values = clean(w, values, counted, 1);
  }
  const Value products = w.dot(queries, out.keys, {{0}, {0}, {3}, {2}});
  const Dims& dims = products.dims();
  out.capped = w.mul(products, w.real(s.scale, dims));
  if (s.softcap == 0) return out;
  const Value cap = w.real(s.softcap, dims);
  const Value bent = w.tanh(w.div(out.capped, cap));
  out.capped = w.mul(bent, cap);
  if (with_slope) {
    const Value one = w.real(1, dims);
    out.slope = w.sub(one, w.mul(bent, bent));
  }
  return out;
}

namespace {

// The right factor of a product; weights are rounded to its type. Float16 is
// widened, since small weights would underflow in it.
Value factor(Writer& w, const Value& rows) {
  return rows.type.element == Element::f16 ? w.convert(rows, w.wide()) : rows;
}

// The finite elements of rows, and the rest; each is 0 elsewhere. Kept apart,
// so that a NaN changes no bit of a result for which its pair is illegal.
struct Parts {
  Value finite, rest;
};
Parts parts_of(Writer& w, const Value& rows) {
  const Value finite = w.is_finite(rows);
  const Value zeros = w.real(0, rows.dims(), rows.type.element);
  Parts out;
  out.finite = w.select(finite, rows, zeros);
  out.rest = w.convert(w.select(finite, zeros, rows), w.wide());
  return out;
}

// weight * rest where the pair is legal and `rest` is not 0; 0 elsewhere. A 0
// of `rest` replaces a finite number, and times an infinite weight would be
// NaN.
Value counted(Writer& w, const Value& legal, const Value& weight,
              const Value& rest) {
  const Value zeros = w.real(0, rest.dims());
  const Value there = w.compare(Compare::not_equal, rest, zeros);
  const Value product = w.mul(weight, rest);
  return w.select(w.both(legal, there), product, zeros);
}

// The plain product, or the careful one that checks every pair, if needed.
Value guarded(Writer& w, const Legal& legal, const Writer::Branch& plain,
              const Writer::Branch& careful) {
  const Value look = w.both(legal.unclean, w.negate(legal.all));
  return w.choose(look, careful, plain).front();
}

}  // namespace

Value weighted_keys(Writer& w, const Value& weights, const Value& key_rows,
                    const Legal& legal) {
  const Value rows = factor(w, key_rows);
  const Value cast = w.convert(weights, rows.type.element);
  const Dims& p = weights.dims();
  const Dims out = {p[0], p[1], p[2], rows.dims()[2]};
  const auto times = [&](const Value& by) {
    return w.dot(cast, by, {{0}, {0}, {3}, {1}});
  };
  const auto plain = [&] { return Values{times(rows)}; };
  const auto careful = [&] {
    const Parts parts = parts_of(w, rows);
    const Value start = times(parts.finite);
    const Value zero = w.integer(0);
    const Value end = w.integer(static_cast<int32_t>(p[3]));
    return w.count(
        zero, end, Values{start}, [&](const Value& j, const Values& sum) {
          const Value weight =
              w.reshape(w.slice(cast, std::array{zero, zero, zero, j},
                                {p[0], p[1], p[2], 1}),
                        {p[0], p[1], p[2]});
          const Value row = w.reshape(
              w.slice(parts.rest, std::array{zero, j, zero}, {p[0], 1, out[3]}),
              {p[0], out[3]});
          const Value may = w.reshape(
              w.slice(legal.pairs, std::array{zero, j}, {p[2], 1}), {p[2]});
          const Value left =
              w.broadcast(w.convert(weight, w.wide()), out, {0, 1, 2});
          const Value right = w.broadcast(row, out, {0, 3});
          const Value term =
              counted(w, w.broadcast(may, out, {2}), left, right);
          return Values{w.add(sum.front(), term)};
        });
  };
  return guarded(w, legal, plain, careful);
}

Value weighted_queries(Writer& w, const Value& weights, const Value& query_rows,
                       const Legal& legal) {
  const Value rows = factor(w, query_rows);
  const Value cast = w.convert(weights, rows.type.element);
  const Dims& p = weights.dims();
  const Dims out = {p[0], p[3], rows.dims()[3]};
  const auto times = [&](const Value& by) {
    return w.dot(cast, by, {{0}, {0}, {1, 2}, {1, 2}});
  };
  const auto plain = [&] { return Values{times(rows)}; };
  const auto careful = [&] {
    const Parts parts = parts_of(w, rows);
    const Value start = times(parts.finite);
    const Value zero = w.integer(0);
    const Value end = w.integer(static_cast<int32_t>(p[2]));
    const Dims terms = {p[0], p[1], p[3], out[2]};
    return w.count(
        zero, end, Values{start}, [&](const Value& i, const Values& sum) {
          const Value weight =
              w.reshape(w.slice(cast, std::array{zero, zero, i, zero},
                                {p[0], p[1], 1, p[3]}),
                        {p[0], p[1], p[3]});
          const Value row =
              w.reshape(w.slice(parts.rest, std::array{zero, zero, i, zero},
                                {p[0], p[1], 1, out[2]}),
                        {p[0], p[1], out[2]});
          const Value may = w.reshape(
              w.slice(legal.pairs, std::array{i, zero}, {1, p[3]}), {p[3]});
          const Value left =
              w.broadcast(w.convert(weight, w.wide()), terms, {0, 1, 2});
          const Value right = w.broadcast(row, terms, {0, 1, 3});
          const Value term =
              counted(w, w.broadcast(may, terms, {2}), left, right);
          return Values{w.add(sum.front(), w.reduce_sum(term, {1}))};
        });
  };
  return guarded(w, legal, plain, careful);
}

}  // namespace tessera::xla
