// lanes/mosaic/strays.cc: numbers that are NaN or infinite, in kernels that may
// read any: how they are found, and what replaces them.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <vector>

#include "lanes/mosaic/parts.h"

namespace tessera::mosaic {

// A number is not finite if its exponent is all ones: then one more in the
// exponent's last place carries into the sign bit, which was cleared. A word
// has two numbers of bf16. Rows are read some at a time, so that registers hold
// what is found.
Value Parts::has_strays(std::initializer_list<const char*> rings,
                        const Value& slot, int64_t heads) {
  const bool is_wide = s_.dtype == Dtype::f32;
  const int32_t exponents = is_wide ? 0x7f800000 : 0x7f807f80;
  const int32_t last_places = is_wide ? 0x00800000 : 0x00800080;
  const auto signs = static_cast<int32_t>(is_wide ? 0x80000000 : 0x80008000);
  const auto all = [&](int32_t bits, const Value& like) {
    return w_.splat(w_.constant(bits), like.type.shape);
  };
  std::map<std::vector<int64_t>, Value> by_shape;
  const auto look_through = [&](const Value& ring, const Value& own) {
    const int64_t tile_rows = ring.type.shape[1], columns = ring.type.shape[2];
    const int64_t rows = rows_at_a_time(tile_rows, columns);
    for (int64_t first = 0; first < tile_rows; first += rows) {
      const std::array<Value, 3> at = {w_.to_index(own), w_.index(first),
                                       w_.index(0)};
      const Value part = w_.load(ring, at, {1, rows, columns});
      const Value words = w_.as_words(w_.reshape(part, {rows, columns}));
      const Value cleared = w_.bit_and(words, all(exponents, words));
      const Value carried = w_.add(cleared, all(last_places, words));
      const auto [of_shape, added] =
          by_shape.try_emplace(carried.type.shape, carried);
      if (!added) of_shape->second = w_.bit_or(of_shape->second, carried);
    }
  };
  for (int64_t h = 0; h < heads; ++h) {
    const Value own = of_head(slot, heads, h);
    for (const char* ring : rings) look_through(w_.argument(ring), own);
  }
  std::optional<Value> any;
  for (const auto& [shape, carried] : by_shape) {
    const Value hits = w_.bit_and(carried, all(signs, carried));
    const Value is_hit = w_.compare(Compare::not_equal, hits, all(0, carried));
    const Value found = any_true(is_hit);
    any = any ? w_.bit_or(*any, found) : found;
  }
  return *any;
}

// Rows of a tile to read at a time: about four registers, whole ones.
int64_t Parts::rows_at_a_time(int64_t rows, int64_t columns) const {
  const int64_t step = s_.dtype == Dtype::f32 ? kSublanes : 2 * kSublanes;
  int64_t out = std::max(step, 4 * step * kLanes / columns / step * step);
  while (rows % out != 0) out -= step;
  return out;
}

Value Parts::any_true(const Value& flags) {
  return w_.compare(Compare::greater, w_.total(as_ones(flags)), w_.real(0));
}

Value Parts::as_ones(const Value& flags) {
  const Value one = w_.splat(w_.real(1), flags.type.shape);
  const Value zero = w_.splat(w_.real(0), flags.type.shape);
  return w_.select(flags, one, zero);
}

Value Parts::is_finite(const Value& wide) {
  const Value exponents = w_.splat(w_.constant(0x7f800000), wide.type.shape);
  const Value own = w_.bit_and(w_.as_words(wide), exponents);
  return w_.compare(Compare::not_equal, own, exponents);
}

Value Parts::without_strays(const Value& a) {
  const Value numbers = wide(a);
  const Value zero = w_.splat(w_.real(0), numbers.type.shape);
  return narrow(w_.select(is_finite(numbers), numbers, zero));
}

Value Parts::with_nan(const Value& k, int64_t k_dim, const Value& v,
                      int64_t v_dim) {
  const Value values = wide(v);
  Value strays = as_ones(w_.invert(is_finite(values)));
  const bool k_last = tokens_last(k_dim);
  if (k_last != tokens_last(v_dim)) strays = w_.transpose(strays);
  std::vector<int64_t> line = k.type.shape;
  line[k_last ? 0 : 1] = 1;
  const Value counts = w_.reshape(w_.reduce_sum(strays, k_last ? 0 : 1), line);
  const Value any = whole(counts, k.type.shape);
  const Value none = w_.splat(w_.real(0), k.type.shape);
  const Value in_line = w_.compare(Compare::greater, any, none);
  const Value nan = w_.splat(w_.real(kNan), k.type.shape);
  return narrow(w_.select(in_line, nan, wide(k)));
}

void Parts::take_strays_of_keys(const Value& own) {
  const Value k = load_slot("k_ring", own);
  const Value v = load_slot("v_ring", own);
  store_slot(with_nan(k, s_.head_dim, v, s_.v_head_dim), "k_ring", own);
  store_slot(without_strays(v), "v_ring", own);
}

}  // namespace tessera::mosaic
