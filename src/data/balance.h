// data/balance.h: how even steps are, as rows come.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/data.h"

namespace tessera::data {

// Takes rows in their order, one after another.
class BalanceMeter {
 public:
  explicit BalanceMeter(int64_t rows_per_step, const BalanceSums& seen = {})
      : wanted_(rows_per_step), sums_(seen) {}

  void add(std::span<const DocumentPart> row, int64_t cost);
  PackBalance balance() const;  // of the steps that are full
  const BalanceSums& sums() const { return sums_; }

 private:
  void close_step();

  int64_t wanted_;
  BalanceSums sums_;
};

}  // namespace tessera::data
