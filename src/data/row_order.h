// data/row_order.h: the order in which the rows of a window are emitted.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/data.h"

namespace tessera::data {

// The k-th random number of a seed; the same on every machine.
uint64_t drawn(uint64_t seed, uint64_t k);

// Rows 0 .. rows - 1 in a random order, drawn from the seed and the window.
std::vector<int32_t> shuffled(int64_t rows, uint64_t seed, int64_t window);

// Groups options.rows_per_step rows of like cost, and shuffles the groups. The
// first rows complete the step that `state` left open; the last may open one.
std::vector<int32_t> steps_of_like_cost(std::span<const int64_t> costs,
                                        const PackOptions& options,
                                        PackState& state);

}  // namespace tessera::data
