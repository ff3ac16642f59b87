// shard/groups.h: from who has which row to what each shard holds: the stages
// of make_shards after the rows are spread.
#pragma once

#include <cstdint>
#include <vector>

#include "shard/problem.h"
#include "tessera/batch.h"
#include "tessera/shard.h"

namespace tessera::shard {

// Of one index of "data": who owns and computes each tile. Tiles of its batch
// rows stand behind each other.
struct Owners {
  int64_t first_batch_row = 0, batch_rows = 0;
  int64_t rows = 0, columns = 0;  // tiles of a batch row
  std::vector<int32_t> row, computes, column;
};
Owners make_owners(const Problem& p, const Plan& plan,
                   const RowShards& computes, int64_t first_batch_row);

// Tiles that travel along "seq" in one (data, head) group: [from * seq + to],
// each ascending.
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

// The rounds that carry the pairs of all groups. Without ceilings none has room
// for more than a shard owns, which an all-gather would send.
Result<std::vector<Round>> make_rounds(const std::vector<const Pairs*>& groups,
                                       int64_t seq, int64_t owned,
                                       std::string_view what,
                                       const std::vector<int64_t>& ceilings);

// How K and V travel, of shards that own so many columns: a gather has rounds
// that bring all of them. Between rounds and a gather the contract decides, not
// the batch: rounds that send no less are more ops for the same.
TileExchange choose_exchange(TileExchange asked, int64_t own_columns,
                             int64_t seq, std::vector<Round>& rounds);
// Tiles that a shard has room for, behind its own.
int64_t came_tiles(const std::vector<Round>& rounds, bool gathered,
                   int64_t seq);

// Sends of the shards of one group, by round. `local`: for each shard the
// number that it has for each of its tiles.
void add_sends(const Pairs& pairs, const std::vector<Round>& rounds,
               int64_t seq, const std::vector<std::vector<int32_t>>& local,
               Traffic& traffic);

// A shard's buffer of rows or columns: its own tiles, padding up to `own`, then
// what each round brings; or where all is gathered, room for what each shard
// owns.
struct Buffer {
  std::vector<TileAt> tiles;
  std::vector<int32_t> local;  // of each tile of the group; -1: not here
  int64_t own = 0;
};
// Rows or columns of a group, which each of its shards has a buffer of.
struct GroupSide {
  const std::vector<int32_t>& owner;  // of each tile
  const Pairs& pairs;
  const std::vector<Round>& rounds;
  bool gathered;
  int64_t own_capacity;
  int64_t tiles_a_batch_row, first_batch_row;
};
Buffer make_buffer(const GroupSide& of, int64_t seq, int64_t self);

// The worklists, in numbers of the buffers; steps and work.
struct Lists {
  const Plan& plan;
  const Group& group;
  const ShardOptions& options;
  int64_t lists;  // of every shard
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
