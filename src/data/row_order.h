// data/row_order.h: the order in which a window's rows leave it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/data.h"

namespace tessera::data {

// The k-th number of a seed: the same on every machine.
uint64_t drawn(uint64_t seed, uint64_t k);

// Rows 0 .. rows - 1 in an order that the seed and the window draw.
std::vector<int32_t> shuffled(int64_t rows, uint64_t seed, int64_t window);

// Rows in groups of options.rows_per_step whose costs are alike, the groups
// shuffled. The first rows complete the step that `state` left open, the last
// may open another.
std::vector<int32_t> steps_of_like_cost(std::span<const int64_t> costs,
                                        const PackOptions& options,
                                        PackState& state);

}  // namespace tessera::data
