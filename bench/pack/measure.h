// bench/pack/measure.h: speed and quality of packing drawn document lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/data.h"

namespace tessera::bench {

struct PackCase {
  int64_t documents = 0;
  double mean = 0;
  int64_t tokens = 0;
  int64_t rounds = 0;
};

struct PackRow {
  PackStrategy strategy;
  double mixing;
};

// The strategies and mixing values that are measured.
std::vector<PackRow> pack_table();

struct PackCost {
  double documents_per_second = 0;  // of the fastest round
  PackAccount account;
  PackBalance balance;
};

Result<PackCost> measure_pack(const PackCase& c, const PackRow& row);

// Speed and fill of best fit among a few open rows.
struct OpenRowsCost {
  double documents_per_second = 0;  // of the fastest round
  int64_t rows = 0;
  double fill = 0;
};
OpenRowsCost measure_open_rows(const PackCase& c, int32_t open);

// Lognormal lengths with sigma 1, at least 1 each. They are the same on every
// machine with this C++ library.
std::vector<int32_t> drawn_lengths(int64_t n, double mean, uint64_t seed);

}  // namespace tessera::bench
