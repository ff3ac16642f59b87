// route/pool.h: pools keys: one mean of the real keys for each compression
// block and document.
#pragma once

#include <cstdint>
#include <vector>

#include "route/rows.h"
#include "tessera/attention.h"

namespace tessera::routing {

// Compression block c is keys [c * stride, c * stride + compression) of the row
// grid.
struct Compression {
  int64_t compression = 128;
  int64_t stride = 64;
};

struct PooledKey {
  int32_t index = 0;   // index of the compression block
  int32_t first = 0;   // first key of the document in the block
  int32_t last = 0;    // last key of the document in the block
  int32_t tokens = 0;  // keys of the document in the block
};

// A batch row's keys. A document without keys in a block has none there.
struct PooledRow {
  std::vector<int32_t> start;   // per document, into keys; documents + 1
  std::vector<PooledKey> keys;  // by document, then index
  std::vector<float> values;    // [kv_heads, keys, dim]
};

// The number of pooled keys, computed without making them.
int64_t count_pooled_keys(const RouteRow& row, const Compression& c);

// Finds the pooled keys, at most kMaxPooledKeys; `values` stays empty.
PooledRow find_pooled_keys(const RouteRow& row, const Compression& c);
inline constexpr int64_t kMaxPooledKeys = INT32_MAX;

// Fills the values: tokens are added in ascending order in fp32, then divided
// by their number. `k` is [batch, kv_heads, kv_len, dim].
void pool_keys(const std::vector<RouteRow>& rows, const TensorView& k,
               int threads, std::vector<PooledRow>& pooled);

}  // namespace tessera::routing
