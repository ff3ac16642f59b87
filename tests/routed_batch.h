// tests/routed_batch.h: batches of a routed run. Documents, lengths and arrays
// differ between batches; ceilings and shapes do not.
#pragma once

#include <cstdint>

#include "tests/attention_case.h"
#include "tests/route_oracle.h"

namespace tessera::testing {

inline constexpr int64_t kRoutedTile = 16;
inline constexpr Ceilings kRoutedCeilings{144, 8, 8};

// Four heads on two KV heads, which pick two blocks of 16 keys for each query.
// `attention` has the oracle's picks, converted to the meaning in plain loops.
struct RoutedBatch {
  RouteCase route;
  AttentionCase attention;
};
RoutedBatch routed_batch(uint64_t seed, RouteMeaning meaning);

// Picks [batch, heads, q_len, kRoutedBlocks], ascending, -1 last. With `exact`
// they are the query's own, with `tile_union` those of all queries of its row.
inline constexpr int64_t kRoutedBlocks = 8;
std::vector<int32_t> meant_picks(const RouteCase& c,
                                 const std::vector<int32_t>& picks,
                                 RouteMeaning meaning);

}  // namespace tessera::testing
