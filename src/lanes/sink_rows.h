// lanes/sink_rows.h: what sink telemetry is to a lane (docs/attention.md).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/batch.h"
#include "tessera/result.h"

namespace tessera::lanes {

// Of every query of every head, [batch, heads, q_len]. Where `live` is 0 the
// query has no legal key and the numbers are 0; NaN where the log-sum-exp is
// not finite.
struct SinkRows {
  std::vector<float> mass, entropy;
  std::vector<uint8_t> live;
};

// The batch with `& sink(first_keys)` behind each of its masks: its legal pairs
// are those whose mass is asked for.
Result<OwnedBatch> first_keys_batch(const Batch& batch, int64_t first_keys,
                                    std::string_view where);

}  // namespace tessera::lanes
