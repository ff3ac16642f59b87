// bench/recompile/ragged_batches.h: batches of packed documents as in training
// and serving: all different, under common ceilings.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::bench {

struct RaggedSizes {
  int64_t rows = 2;      // of a batch
  int64_t tokens = 512;  // of a row at most
  int64_t tile = 64;
};

// One batch. Its mask is causal, within documents and within a window; each
// batch has its own window.
struct RaggedBatch {
  Request request;
  int64_t window = 0;
  std::vector<int32_t> ids;     // [rows, length]; padding is -1
  std::vector<int32_t> counts;  // [rows], valid tokens
  Facts facts() const;
  int64_t length() const { return request.q_len; }
};

// Lengths are from 7/16 of `tokens` to `tokens`, which is three buckets.
// Document lengths are lognormal, a quarter of `tokens` on average. Batch
// `index` of `seed` is the same on every machine.
RaggedBatch ragged_batch(const RaggedSizes& sizes, uint64_t seed,
                         int64_t index);

}  // namespace tessera::bench
