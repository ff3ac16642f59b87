// data/balance.cc: how even the steps of a packing are.
#include <algorithm>
#include <cmath>

#include "tessera/data.h"

namespace tessera {

void BalanceMeter::add(std::span<const DocumentPart> row, int64_t cost) {
  most_ = std::max(most_, cost);
  cost_ += cost;
  parts_ += static_cast<int64_t>(row.size());
  for (const DocumentPart& p : row) tokens_ += p.length;
  if (++rows_ == wanted_) close_step();
}

void BalanceMeter::close_step() {
  const double ratio = cost_ == 0 ? 1
                                  : static_cast<double>(most_ * rows_) /
                                        static_cast<double>(cost_);
  const double mean =
      parts_ == 0 ? 0
                  : static_cast<double>(tokens_) / static_cast<double>(parts_);
  ratios_ += ratio;
  worst_ = std::max(worst_, ratio);
  lengths_ += mean;
  squares_ += mean * mean;
  ++steps_;
  rows_ = most_ = cost_ = parts_ = tokens_ = 0;
}

PackBalance BalanceMeter::balance() const {
  PackBalance balance;
  if (steps_ == 0) return balance;
  balance.steps = steps_;
  const auto n = static_cast<double>(steps_);
  const double mean = lengths_ / n;
  balance.max_over_mean = ratios_ / n;
  balance.worst = worst_;
  if (mean > 0) {
    balance.length_spread =
        std::sqrt(std::max(0.0, squares_ / n - mean * mean)) / mean;
  }
  return balance;
}

PackBalance pack_balance(const Packing& packing, std::span<const int64_t> costs,
                         int64_t rows_per_step) {
  BalanceMeter meter(rows_per_step);
  for (int64_t r = 0; r < packing.rows(); ++r) {
    meter.add(packing.row(r), costs[static_cast<size_t>(r)]);
  }
  return meter.balance();
}

}  // namespace tessera
