// lanes/sink_rows.h: sink telemetry as lanes compute it (docs/attention.md).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/batch.h"
#include "tessera/result.h"

namespace tessera::lanes {

// Telemetry of every query of every head, [batch, heads, q_len]. `live` is 0
// for a query without a legal key; its mass and entropy are 0. Both are NaN
// where the log-sum-exp is not finite.
struct SinkRows {
  std::vector<float> mass, entropy;
  std::vector<uint8_t> live;
};

// The batch with `& sink(first_keys)` added to each mask. Its legal pairs are
// those whose mass is reported.
Result<OwnedBatch> first_keys_batch(const Batch& batch, int64_t first_keys,
                                    std::string_view where);

}  // namespace tessera::lanes
