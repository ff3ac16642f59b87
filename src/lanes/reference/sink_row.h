// lanes/reference/sink_row.h: sink telemetry of one query in fp64, with the
// error that a lane computing in fp32 may have.
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
  bool live = false;  // it has a legal key
  Expected mass, entropy;
};

// `first`: of each of the row's keys, whether its mass counts.
SinkRow sink_row(const QueryRow& row, std::span<const uint8_t> first,
                 double softcap);

// Of every query of every head, [batch, heads, q_len]. Of `tensors` q, k and
// the sink logits are read.
Result<std::vector<SinkRow>> sink_rows(const Batch& batch,
                                       const AttentionShape& shape,
                                       const ForwardTensors& tensors,
                                       int64_t first_keys,
                                       const StopFlag* stop = nullptr);

}  // namespace tessera::reference
