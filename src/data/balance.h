// data/balance.h: measures how even the cost of steps is.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/data.h"

namespace tessera::data {

// Rows are added one by one, in their order.
class BalanceMeter {
 public:
  explicit BalanceMeter(int64_t rows_per_step, const BalanceSums& seen = {})
      : wanted_(rows_per_step), sums_(seen) {}

  void add(std::span<const DocumentPart> row, int64_t cost);
  PackBalance balance() const;  // over complete steps
  const BalanceSums& sums() const { return sums_; }

 private:
  void close_step();

  int64_t wanted_;
  BalanceSums sums_;
};

}  // namespace tessera::data
