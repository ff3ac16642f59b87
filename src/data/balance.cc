// data/balance.cc: measures how even the steps of a packing are.
#include "data/balance.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace data {

void BalanceMeter::add(std::span<const DocumentPart> row, int64_t cost) {
  sums_.most = std::max(sums_.most, cost);
  sums_.cost += cost;
  sums_.parts += static_cast<int64_t>(row.size());
  for (const DocumentPart& p : row) sums_.tokens += p.length;
  if (++sums_.rows == wanted_) close_step();
}

void BalanceMeter::close_step() {
  BalanceSums& s = sums_;
  // As doubles: sums from an untrusted position may overflow 64 bits here.
  const double ratio = s.cost == 0 ? 1
                                   : static_cast<double>(s.most) *
                                         static_cast<double>(s.rows) /
                                         static_cast<double>(s.cost);
  const double mean = s.parts == 0 ? 0
                                   : static_cast<double>(s.tokens) /
                                         static_cast<double>(s.parts);
  s.ratios += ratio;
  s.worst = std::max(s.worst, ratio);
  s.lengths += mean;
  s.squares += mean * mean;
  ++s.steps;
  s.rows = s.most = s.cost = s.parts = s.tokens = 0;
}

PackBalance BalanceMeter::balance() const {
  PackBalance balance;
  if (sums_.steps == 0) return balance;
  balance.steps = sums_.steps;
  const auto n = static_cast<double>(sums_.steps);
  const double mean = sums_.lengths / n;
  balance.max_over_mean = sums_.ratios / n;
  balance.worst = sums_.worst;
  if (mean > 0) {
    balance.length_spread =
        std::sqrt(std::max(0.0, sums_.squares / n - mean * mean)) / mean;
  }
  return balance;
}

}  // namespace data

PackBalance pack_balance(const Packing& packing, std::span<const int64_t> costs,
                         int64_t rows_per_step) {
  data::BalanceMeter meter(rows_per_step);
  for (int64_t r = 0; r < packing.rows(); ++r) {
    meter.add(packing.row(r), costs[static_cast<size_t>(r)]);
  }
  return meter.balance();
}

}  // namespace tessera
