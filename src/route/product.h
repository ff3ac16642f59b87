// route/product.h: inner products of queries and packed keys, the matrix
// product of scoring.
#pragma once

#include <cstdint>

#include "tessera/machine.h"

namespace tessera::routing {

// Keys of a panel: element d of key i is panel[d * kPanelKeys + i].
inline constexpr int64_t kPanelKeys = 16;

// Sets out[r * ldo + p * kPanelKeys + i] to the sum over d of a[r * lda + d] *
// panels[p][d][i], or adds the sum if `add`. d ascends, and each product and
// each sum is rounded once. So all instruction sets give the same bits, and
// every machine the same picks.
struct PanelProduct {
  const float* a = nullptr;
  int64_t rows = 0;
  int64_t lda = 0;
  int64_t dim = 0;
  const float* panels = nullptr;  // [count, dim, kPanelKeys]
  int64_t count = 0;
  float* out = nullptr;
  int64_t ldo = 0;
  bool add = false;
};
void multiply_panels(Isa isa, const PanelProduct& p);

}  // namespace tessera::routing
