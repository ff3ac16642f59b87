// data/row_order.cc: orders the rows of a window.
#include "data/row_order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera {

namespace data {
namespace {

// The first of `n` neighbours in `sorted`, which is ascending by cost, whose
// costs are nearest to `cost`.
size_t nearest_run(std::span<const int64_t> costs,
                   const std::vector<int32_t>& sorted, size_t n, double cost) {
  const auto cost_at = [&](size_t i) {
    return static_cast<double>(costs[static_cast<size_t>(sorted[i])]);
  };
  size_t first = 0;
  double least = -1;
  for (size_t i = 0; i + n <= sorted.size(); ++i) {
    const double off = std::max(std::abs(cost_at(i) - cost),
                                std::abs(cost_at(i + n - 1) - cost));
    if (least < 0 || off < least) {
      least = off;
      first = i;
    }
  }
  return first;
}

// Moves `n` entries of `from`, from index `first` on, to the end of `into`.
void move_run(std::vector<int32_t>& from, size_t first, size_t n,
              std::vector<int32_t>& into) {
  const auto begin = from.begin() + static_cast<int64_t>(first);
  into.insert(into.end(), begin, begin + static_cast<int64_t>(n));
  from.erase(begin, begin + static_cast<int64_t>(n));
}

// Rows ascending by cost; `mixing` is 0 for that order, 1 for a random one.
std::vector<int32_t> sorted_rows(std::span<const int64_t> costs, double mixing,
                                 uint64_t seed) {
  std::vector<int32_t> rows(costs.size());
  std::iota(rows.begin(), rows.end(), 0);
  // Rows of equal cost are in random order, not by their documents' lengths.
  std::vector<uint64_t> draw(costs.size());
  for (size_t r = 0; r < draw.size(); ++r) draw[r] = drawn(seed, r);
  std::sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
    const auto x = static_cast<size_t>(a);
    const auto y = static_cast<size_t>(b);
    return costs[x] != costs[y] ? costs[x] < costs[y] : draw[x] < draw[y];
  });
  if (mixing == 0) return rows;
  std::vector<double> key(costs.size());
  const double n = static_cast<double>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto r = static_cast<size_t>(rows[i]);
    const double any = std::ldexp(static_cast<double>(draw[r] >> 11), -53);
    key[r] = (1 - mixing) * static_cast<double>(i) + mixing * n * any;
  }
  std::sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
    return key[static_cast<size_t>(a)] < key[static_cast<size_t>(b)];
  });
  return rows;
}

}  // namespace

uint64_t drawn(uint64_t seed, uint64_t k) {
  // SplitMix64 (Steele, Lea, Flood 2014) of a counter.
  uint64_t z = seed + (k + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::vector<int32_t> shuffled(int64_t rows, uint64_t seed, int64_t window) {
  std::vector<int32_t> order(static_cast<size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  const uint64_t own = drawn(seed, static_cast<uint64_t>(window));
  for (size_t n = order.size(); n > 1; --n) {
    std::swap(order[n - 1], order[drawn(own, n) % n]);
  }
  return order;
}

std::vector<int32_t> steps_of_like_cost(std::span<const int64_t> costs,
                                        const PackOptions& options,
                                        PackState& state) {
  const auto step = static_cast<size_t>(options.rows_per_step);
  std::vector<int32_t> rows =
      sorted_rows(costs, options.mixing,
                  drawn(~options.seed, static_cast<uint64_t>(state.window)));
  std::vector<int32_t> order;
  order.reserve(rows.size());
  if (state.open_rows > 0 && !rows.empty()) {
    const size_t wanted = step - static_cast<size_t>(state.open_rows);
    const size_t n = std::min(wanted, rows.size());
    move_run(rows, nearest_run(costs, rows, n, state.open_cost), n, order);
    state.open_rows =
        n == wanted ? 0 : state.open_rows + static_cast<int64_t>(n);
  }
  // Rows left over are of middle cost: the next window has rows like them.
  std::vector<int32_t> open;
  const size_t left = rows.size() % step;
  move_run(rows, (rows.size() - left) / 2, left, open);
  for (const int32_t group : shuffled(static_cast<int64_t>(rows.size() / step),
                                      options.seed, state.window)) {
    const auto begin = rows.begin() + static_cast<int64_t>(step) * group;
    order.insert(order.end(), begin, begin + static_cast<int64_t>(step));
  }
  if (left > 0) {
    order.insert(order.end(), open.begin(), open.end());
    state.open_rows = static_cast<int64_t>(left);
    double sum = 0;
    for (const int32_t r : open) {
      sum += static_cast<double>(costs[static_cast<size_t>(r)]);
    }
    state.open_cost = sum / static_cast<double>(left);
  }
  return order;
}

}  // namespace data

}  // namespace tessera
