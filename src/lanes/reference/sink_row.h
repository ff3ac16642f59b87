// lanes/reference/sink_row.h: sink telemetry of one query in fp64, with the
// error that a lane may have in fp32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lanes/reference/bound.h"
#include "lanes/reference/rows.h"
#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/result.h"

namespace tessera::reference {

struct SinkRow {
  bool live = false;  // has a legal key
  Expected mass, entropy;
};

// `first`: for each of row.keys, whether the key is among the first keys.
SinkRow sink_row(const QueryRow& row, std::span<const uint8_t> first,
                 double softcap);

// The telemetry of every query of every head, [batch, heads, q_len]. Reads q, k
// and the sink logits of `tensors`.
Result<std::vector<SinkRow>> sink_rows(const Batch& batch,
                                       const AttentionShape& shape,
                                       const ForwardTensors& tensors,
                                       int64_t first_keys,
                                       const StopFlag* stop = nullptr);

}  // namespace tessera::reference
