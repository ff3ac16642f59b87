// route/legality.h: removes picks that no query may follow, before any kernel.
// What is not known to be legal goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "route/rows.h"

namespace tessera::routing {

// Picks as an array of their own: [batch, heads, q_len, k].
struct PickSizes {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t q_len = 0;
  int64_t k = 0;
  int64_t block = 256;
  int64_t kv_len = 0;

  int64_t blocks() const { return (kv_len + block - 1) / block; }
};

// Why a pick went. `invalid`: the query sees no key, or no key of the block is
// valid. `documents`: valid keys, none of the query's document. `future`: the
// first of its document there is after the query.
enum class Illegal : uint8_t { invalid, documents, future };

struct Removed {
  int64_t count[3] = {};  // by Illegal
  struct Pick {
    Illegal why = Illegal::invalid;
    int64_t batch_row = 0, head = 0, query = 0;
    int32_t block = 0;
  };
  std::optional<Pick> first;

  int64_t all() const { return count[0] + count[1] + count[2]; }
};

// A pick of another router must be a block number from -1 on below the blocks,
// and ascend for each query without coming twice; -1 may stand anywhere.
// `what` is how errors call them, `of` whose they are: "query".
Result<void> check_picks(const Picks& picks, const PickSizes& sizes,
                         std::string_view what, std::string_view of);

// Removes illegal picks in place; what is left moves up and -1 fills the end.
Removed remove_illegal(const std::vector<RouteRow>& rows,
                       const PickSizes& sizes, int threads,
                       std::vector<int32_t>& picks);

// The picks of whole query tiles that no query of their tile may follow; the
// fault is the last query's. `query` of one is the number of its tile.
Removed illegal_tile_picks(const std::vector<RouteRow>& rows,
                           const PickSizes& sizes, int64_t query_tile,
                           const Picks& picks);

// "[route] ..." of the first that was removed; `of` is whose picks they are.
Error illegal_pick(const Removed::Pick& pick, std::string_view of = "query");

// Given picks are of 1 head, the KV heads or the query heads.
Result<void> check_pick_heads(int64_t found, int64_t kv_heads, int64_t heads);

}  // namespace tessera::routing
