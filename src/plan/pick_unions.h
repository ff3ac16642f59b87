// plan/pick_unions.h: which blocks the queries of a plan's tile rows pick
// together, and how a plan file holds picks: as bits over these unions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mask/bind.h"
#include "tessera/route.h"

namespace tessera::plan {

// Unions of the plan's own tile rows, whatever tile the router worked with.
// The picks must be named and bound.
PickUnions plan_unions(const mask::Bound& bound, int64_t block);

// Arrays of 32-bit words. Lists are those of the picks, tile rows the plan's.
struct PickWords {
  std::vector<uint32_t> counts;  // blocks in the union of each tile row
  std::vector<uint32_t> blocks;  // of the unions, ascending within a row
  // Of each query as many words as its row's union fills: bit s is set where it
  // picks the union's block s.
  std::vector<uint32_t> bits;
  // Of each tile of the forward lists: the slot of the first block of its row's
  // union that has keys in the tile; kNoSlot where none has.
  std::vector<uint32_t> slots;
};
inline constexpr uint32_t kNoSlot = UINT32_MAX;

PickWords pick_words(const mask::Bound& bound, int64_t block,
                     const Worklist& forward);

// Slots of the tiles alone.
std::vector<uint32_t> tile_slots(const mask::Bound& bound, int64_t block,
                                 const PickUnions& unions,
                                 const Worklist& forward);

// Sizes that tell where the words of PickWords belong.
struct PickLayout {
  int64_t batch = 1, heads = 1, q_len = 0, k = 0;
  int64_t tile_q = 256;
  int64_t blocks = 0;  // of a batch row
};

// The picks back from counts, blocks and bits: [batch, heads, q_len, k],
// ascending, -1 last. Never trusts the words; `layout` fits memory.
Result<std::vector<int32_t>> picks_of_words(const PickLayout& layout,
                                            std::string_view counts,
                                            std::string_view blocks,
                                            std::string_view bits,
                                            std::string_view where);

}  // namespace tessera::plan
