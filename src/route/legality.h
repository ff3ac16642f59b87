// route/legality.h: removes illegal picks before any kernel runs. A pick that
// is not known to be legal is removed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "route/rows.h"

namespace tessera::routing {

// The shape of an array of picks: [batch, heads, q_len, k].
struct PickSizes {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t q_len = 0;
  int64_t k = 0;
  int64_t block = 256;
  int64_t kv_len = 0;

  int64_t blocks() const { return (kv_len + block - 1) / block; }
};

// Why a pick was removed. `invalid`: the query sees no key, or no key of the
// block is valid. `documents`: the block has valid keys, but none of the
// query's document. `future`: the first key of the document in the block is
// after the query.
enum class Illegal : uint8_t { invalid, documents, future };

struct Removed {
  int64_t count[3] = {};  // indexed by Illegal
  struct Pick {
    Illegal why = Illegal::invalid;
    int64_t batch_row = 0, head = 0, query = 0;
    int32_t block = 0;
  };
  std::optional<Pick> first;

  int64_t all() const { return count[0] + count[1] + count[2]; }
};

// A pick of another router must be -1 or a block number below the number of
// blocks. The picks of a query must ascend without repeats; -1 may be anywhere.
// In errors, `what` names the picks and `of` their owner: "query".
Result<void> check_picks(const Picks& picks, const PickSizes& sizes,
                         std::string_view what, std::string_view of);

// Removes illegal picks in place; the rest move up, and -1 fills the end.
Removed remove_illegal(const std::vector<RouteRow>& rows,
                       const PickSizes& sizes, int threads,
                       std::vector<int32_t>& picks);

// The picks of whole query tiles that no query of the tile may follow. The
// fault is that of the last query with a fault other than `invalid`.
// Pick::query is the number of the tile.
Removed illegal_tile_picks(const std::vector<RouteRow>& rows,
                           const PickSizes& sizes, int64_t query_tile,
                           const Picks& picks);

// The error "[route] ..." for a removed pick; `of` names the picks' owner.
Error illegal_pick(const Removed::Pick& pick, std::string_view of = "query");

// Given picks must have 1 head, the KV heads or the query heads.
Result<void> check_pick_heads(int64_t found, int64_t kv_heads, int64_t heads);

}  // namespace tessera::routing
