// lanes/mosaic/telemetry_rows.h: sink telemetry of a batch, joined from the
// kernel's results for two lists.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lanes/sink_rows.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {

// Whether a query of a list has a legal key, [lists, queries], by the bitmaps
// that the kernel reads.
std::vector<uint8_t> live_queries(const MosaicKernel& kernel,
                                  const MosaicArrays& arrays, int64_t lists,
                                  int64_t queries);

// Values for every query of every head, [batch, heads, queries].
struct TelemetryRows {
  std::span<const float> lse, entropy;  // over all legal keys
  std::span<const float> first_lse;     // over the first keys alone
};
lanes::SinkRows join_rows(const TelemetryRows& rows,
                          std::span<const uint8_t> live, int64_t lists,
                          int64_t heads, int64_t queries,
                          std::optional<std::span<const float>> sink_logits);

}  // namespace tessera::mosaic
