// bench/pack/measure.cc: packs drawn lengths, first to measure the balance,
// then the time.
#include "bench/pack/measure.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/timed.h"
#include "base/turns.h"
#include "bench/pack/open_rows.h"
#include "data/balance.h"

namespace tessera::bench {
namespace {

// Packs and visits every window in turn. `window` reuses its memory.
template <class Visit>
Result<void> pack_windows(std::span<const int32_t> lengths,
                          const PackOptions& options, Packing& window,
                          Visit&& visit) {
  PackState state;
  for (size_t at = 0; at < lengths.size();) {
    auto n = next_window(lengths.subspan(at), options);
    if (!n) return n.error();
    window.tokens = options.tokens;
    window.parts.clear();
    window.row_start.assign(1, 0);
    window.account = {};
    auto packed = pack_window(lengths.subspan(at, static_cast<size_t>(*n)),
                              static_cast<int64_t>(at), options, state, window);
    if (!packed) return packed;
    if (Result<void> seen = visit(window); !seen) return seen;
    at += static_cast<size_t>(*n);
  }
  return {};
}

// Documents a second of the fastest round.
template <class Pack>
Result<double> fastest(const PackCase& c, const Pack& pack) {
  auto ms = repeat<double>(just(c.rounds), [&]() -> Result<double> {
    double took = 0;
    if (Result<void> packed = timed(took, pack); !packed) return packed.error();
    return took;
  });
  if (!ms) return ms.error();
  return 1e3 * static_cast<double>(c.documents) / std::ranges::min(*ms);
}

}  // namespace

std::vector<PackRow> pack_table() {
  return {{PackStrategy::in_order, 0},   {PackStrategy::first_fit, 0},
          {PackStrategy::best_fit, 0},   {PackStrategy::by_cost, 0},
          {PackStrategy::by_cost, 0.01}, {PackStrategy::by_cost, 0.1},
          {PackStrategy::by_cost, 0.3},  {PackStrategy::by_cost, 1}};
}

std::vector<int32_t> drawn_lengths(int64_t n, double mean, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> draw(std::log(mean) - 0.5, 1);
  std::vector<int32_t> lengths(static_cast<size_t>(n));
  for (int32_t& length : lengths) {
    length = static_cast<int32_t>(
        std::clamp(draw(random), 1.0, static_cast<double>(INT32_MAX)));
  }
  return lengths;
}

Result<PackCost> measure_pack(const PackCase& c, const PackRow& row) {
  const std::vector<int32_t> lengths = drawn_lengths(c.documents, c.mean, 1);
  PackOptions options;
  options.tokens = c.tokens;
  options.strategy = row.strategy;
  options.mixing = row.mixing;
  PackCost cost;
  Packing window;
  data::BalanceMeter meter(options.rows_per_step);
  auto measured = pack_windows(
      lengths, options, window, [&](const Packing& packed) -> Result<void> {
        auto costs = row_costs(packed, options);
        if (!costs) return costs.error();
        for (int64_t r = 0; r < packed.rows(); ++r) {
          meter.add(packed.row(r), (*costs)[static_cast<size_t>(r)]);
        }
        cost.account += packed.account;
        return {};
      });
  if (!measured) return measured.error();
  cost.balance = meter.balance();
  auto speed = fastest(c, [&] {
    return pack_windows(lengths, options, window,
                        [](const Packing&) -> Result<void> { return {}; });
  });
  if (!speed) return speed.error();
  cost.documents_per_second = *speed;
  return cost;
}

OpenRowsCost measure_open_rows(const PackCase& c, int32_t open) {
  const std::vector<int32_t> lengths = drawn_lengths(c.documents, c.mean, 1);
  std::vector<int64_t> row_of(lengths.size());
  OpenRowsCost out;
  out.documents_per_second = *fastest(c, [&]() -> Result<void> {
    out.rows =
        pack_open_rows(lengths, static_cast<int32_t>(c.tokens), open, row_of);
    return {};
  });
  const auto tokens = std::accumulate(lengths.begin(), lengths.end(), 0.0);
  out.fill =
      tokens / static_cast<double>(out.rows) / static_cast<double>(c.tokens);
  return out;
}

}  // namespace tessera::bench
