// bench/routed/measure.h: measures batches of one length in turn, and routing
// alone at growing lengths.
#pragma once

#include <cstdint>

#include "bench/routed/rows.h"
#include "bench/routed/settings.h"

namespace tessera::bench {

Result<RoutedTable> measure(int64_t tokens, Dtype dtype,
                            const RoutedSettings& settings);

Result<RoutedGrowth> measure_growth(const RoutedSettings& settings,
                                    int64_t top);

}  // namespace tessera::bench
