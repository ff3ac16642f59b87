// shard/groups.h: the stages of make_shards after rows are assigned, up to the
// contents of each shard.
#pragma once

#include <cstdint>
#include <vector>

#include "shard/problem.h"
#include "tessera/batch.h"
#include "tessera/shard.h"

namespace tessera::shard {

// The owner and the computing shard of each tile, for one index of "data".
// Tiles are numbered batch row after batch row.
struct Owners {
  int64_t first_batch_row = 0, batch_rows = 0;
  int64_t rows = 0, columns = 0;  // tiles of a batch row
  std::vector<int32_t> row, computes, column;
};
Owners make_owners(const Problem& p, const Plan& plan,
                   const RowShards& computes, int64_t first_batch_row);

// Tiles that travel along "seq" in one (data, head) group: [from * seq + to],
// each list ascending.
using Pairs = std::vector<std::vector<int32_t>>;

// One (data, head) group.
struct Group {
  const Owners* owners = nullptr;
  int64_t first_list = 0, lists = 0;  // plan heads
  Pairs kv, q;

  bool has_lists_of(const Group& other) const {
    return owners == other.owners && first_list == other.first_list &&
           lists == other.lists;
  }
};
void find_pairs(const Plan& plan, int64_t seq, Group& group);

// The rounds that carry the pairs of all groups. Without ceilings a round has
// room for at most what a shard owns, as in an all-gather.
Result<std::vector<Round>> make_rounds(const std::vector<const Pairs*>& groups,
                                       int64_t seq, int64_t owned,
                                       std::string_view what,
                                       const std::vector<int64_t>& ceilings);

// Chooses how K and V travel. A gather is stored as rounds that bring all
// columns. The automatic choice depends on round capacities, which are part of
// the contract, not on the batch: if the rounds send no less than a gather, the
// gather does the same in fewer operations.
TileExchange choose_exchange(TileExchange asked, int64_t own_columns,
                             int64_t seq, std::vector<Round>& rounds);
// The room, in tiles, of a shard's buffer after its own tiles.
int64_t came_tiles(const std::vector<Round>& rounds, bool gathered,
                   int64_t seq);

// Adds the sends of the shards of one group, by round. `local`: per shard, the
// local number of each of its tiles.
void add_sends(const Pairs& pairs, const std::vector<Round>& rounds,
               int64_t seq, const std::vector<std::vector<int32_t>>& local,
               Traffic& traffic);

// A shard's buffer of rows or columns: its own tiles, padding up to
// own_capacity, then the tiles that each round brings; for a gather, room for
// the tiles that each shard owns.
struct Buffer {
  std::vector<TileAt> tiles;
  std::vector<int32_t> local;  // per tile of the group; -1: absent
  int64_t own = 0;
};
// A group's rows or columns; each of its shards has a Buffer of them.
struct GroupSide {
  const std::vector<int32_t>& owner;  // owner of each tile
  const Pairs& pairs;
  const std::vector<Round>& rounds;
  bool gathered;
  int64_t own_capacity;
  int64_t tiles_a_batch_row, first_batch_row;
};
Buffer make_buffer(const GroupSide& of, int64_t seq, int64_t self);

// Fills the shard's worklists in local numbers, its steps and its work.
struct Lists {
  const Plan& plan;
  const Group& group;
  const ShardOptions& options;
  int64_t lists;  // lists of every shard
};
void fill_lists(const Lists& in, const Buffer& rows, const Buffer& columns,
                int64_t self, Shard& shard);

ShardReport make_report(const Plan& plan, const Shards& shards,
                        const ShardOptions& options,
                        const std::vector<Group>& groups);

std::vector<ArraySpec> specs_of(const Shards& shards,
                                const ShardOptions& options);
void set_contract(const PlanContract& plan, Shards& shards);

}  // namespace tessera::shard
