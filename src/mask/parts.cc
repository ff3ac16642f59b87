// mask/parts.cc: closed forms for the pairs that a shape puts into a column.
//
// The pairs with p0 <= p < p1, k0 <= k < k1 and from <= k - p < to number
//     S(to) - S(from),  S(d) = sum over p of clamp(p + d - k0, 0, k1 - k0).
// Columns that a shape covers equally are one part, so the cost depends on the
// edges of the shapes, not on their area.
#include "mask/parts.h"

#include <algorithm>

namespace tessera::mask {
namespace {

// Sum of clamp(x, 0, width) over all integers x <= n.
int64_t clamped_sum_to(int64_t n, int64_t width) {
  if (n <= 0) return 0;
  if (n <= width) return n * (n + 1) / 2;
  return width * (width + 1) / 2 + (n - width) * width;
}

// Pairs with p in [p0, p1), k in [k0, k1) and k < p + d.
int64_t pairs_below(int64_t p0, int64_t p1, int64_t k0, int64_t k1, int64_t d) {
  const int64_t width = k1 - k0;
  return clamped_sum_to(p1 - 1 + d - k0, width) -
         clamped_sum_to(p0 - 1 + d - k0, width);
}

}  // namespace

Parts::Parts(int64_t kv_len, int64_t block)
    : kv_len_(kv_len), block_(block), column_(block) {
  columns_ = column_.ceil(kv_len);
}

void Parts::clear() {
  parts_.clear();
  ascending_ = true;
}

void Parts::add_rectangle(Interval strip, int64_t queries) {
  const int64_t first = column_.floor(strip.begin);
  const int64_t last = column_.floor(strip.end - 1);
  if (first == last) {
    add(first, first + 1, queries * (strip.end - strip.begin));
    return;
  }
  const int64_t inner = column_.ceil(strip.begin);
  const int64_t inner_end = column_.floor(strip.end);
  if (first < inner) {
    add(first, inner, queries * (inner * block_ - strip.begin));
  }
  if (inner < inner_end) add(inner, inner_end, queries * block_);
  if (inner_end <= last) {
    add(inner_end, last + 1, queries * (strip.end - inner_end * block_));
  }
}

void Parts::add_trapezoid(Interval positions, Interval strip, int64_t from,
                          int64_t to) {
  const int64_t p0 = positions.begin;
  const int64_t p1 = positions.end;
  // Keys that at least one query of the piece sees, and keys that all see.
  const Interval some = {std::max(strip.begin, p0 + from),
                         std::min(strip.end, p1 - 1 + to)};
  if (some.begin >= some.end) return;
  const Interval all = {std::max(strip.begin, p1 - 1 + from),
                        std::min(strip.end, p0 + to)};
  const int64_t first = column_.floor(some.begin);
  const int64_t last = column_.floor(some.end - 1);
  int64_t inner = last + 1;
  int64_t inner_end = last + 1;
  if (all.begin < all.end) {
    const int64_t c0 = column_.ceil(all.begin);
    const int64_t c1 = column_.floor(all.end);
    if (c0 < c1) {
      inner = c0;
      inner_end = c1;
    }
  }
  auto add_exact = [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t k0 = std::max(strip.begin, c * block_);
      const int64_t k1 = std::min(strip.end, (c + 1) * block_);
      add(c, c + 1,
          pairs_below(p0, p1, k0, k1, to) - pairs_below(p0, p1, k0, k1, from));
    }
  };
  add_exact(first, inner);
  if (inner < inner_end) add(inner, inner_end, (p1 - p0) * block_);
  add_exact(inner_end, last + 1);
}

void Parts::add(int64_t begin, int64_t end, int64_t value) {
  if (value == 0) return;
  value *= times_;
  const Part part{static_cast<int32_t>(begin), static_cast<int32_t>(end),
                  value};
  if (!parts_.empty()) {
    Part& last = parts_.back();
    if (last.begin == part.begin && last.end == part.end) {
      last.value += value;
      return;
    }
    ascending_ &= part.begin >= last.end;
  }
  parts_.push_back(part);
}

// Adds the parts up and gives each column its class.
void Parts::finish(int64_t queries, std::vector<Span>& spans) {
  auto add_span = [&](int32_t begin, int32_t end, int64_t value) {
    if (value == 0) return;
    // A part that touches the last, ragged column is that column alone.
    const int64_t width = std::min(block_, kv_len_ - begin * block_);
    spans.push_back(
        {begin, end,
         value == queries * width ? TileClass::full : TileClass::partial,
         value});
  };
  if (ascending_) {
    for (const Part& p : parts_) add_span(p.begin, p.end, p.value);
    return;
  }
  if (static_cast<int64_t>(parts_.size()) >= columns_) {
    // With many parts, a sum per column is cheaper than a sort.
    sums_.assign(static_cast<size_t>(columns_) + 1, 0);
    for (const Part& p : parts_) {
      sums_[static_cast<size_t>(p.begin)] += p.value;
      sums_[static_cast<size_t>(p.end)] -= p.value;
    }
    int64_t value = 0;
    for (int32_t c = 0; c < columns_; ++c) {
      value += sums_[static_cast<size_t>(c)];
      add_span(c, c + 1, value);
    }
    return;
  }
  changes_.clear();
  for (const Part& p : parts_) {
    changes_.push_back({p.begin, p.value});
    changes_.push_back({p.end, -p.value});
  }
  std::sort(
      changes_.begin(), changes_.end(),
      [](const Change& l, const Change& r) { return l.column < r.column; });
  int64_t value = 0;
  for (size_t i = 0; i < changes_.size(); ++i) {
    value += changes_[i].delta;
    if (i + 1 == changes_.size()) break;
    const int32_t begin = changes_[i].column;
    const int32_t end = changes_[i + 1].column;
    if (begin < end) add_span(begin, end, value);
  }
}

}  // namespace tessera::mask
