// shard/problem.h: what is to be spread along "seq" for one index of "data":
// rows with their work, the columns that each needs, and the limits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/plan.h"
#include "tessera/shard.h"

namespace tessera::shard {

// Rows and columns are units: one tile each, or where tiles differ and tokens
// are moved as a whole, as many tiles as have a length in common. Units of all
// batch rows stand behind each other.
struct Problem {
  int64_t shards = 1;
  int64_t batch_rows = 0;
  int64_t units = 0;         // rows of a batch row
  int64_t column_units = 0;  // columns of a batch row
  int64_t tiles_q = 1;       // of a row unit
  int64_t tiles_kv = 1;      // of a column unit
  // Column c is a part of the tokens of row c, and lies where that lies.
  bool tied = false;
  // Rows keep their owner, and only who computes them is chosen.
  bool tasks = false;
  // What travels is what must.
  bool ragged = false;

  std::vector<uint32_t> start;   // of a row's columns; rows + 1
  std::vector<uint32_t> column;  // ascending in a row
  std::vector<int64_t> before;   // work of the rows before; rows + 1
  // Whether a row needs much of what lies before it, so that a cut before it
  // costs: the pieces between false ones are the natural documents.
  std::vector<uint8_t> joined;

  int64_t kv_bytes = 1;   // of a column unit
  int64_t row_bytes = 1;  // of a row's q, out and log-sum-exp
  double work_cap = 0;    // of a shard
  int64_t row_cap = 0;

  int64_t rows() const { return static_cast<int64_t>(start.size()) - 1; }
  int64_t columns() const { return batch_rows * column_units; }
  int64_t work(int64_t begin, int64_t end) const {
    return before[static_cast<size_t>(end)] -
           before[static_cast<size_t>(begin)];
  }
  double mean_work() const {
    return static_cast<double>(before.back()) / static_cast<double>(shards);
  }
  double mean_rows() const {
    return static_cast<double>(rows()) / static_cast<double>(shards);
  }
  std::span<const uint32_t> needs(int64_t row) const {
    const auto r = static_cast<size_t>(row);
    return {column.data() + start[r], start[r + 1] - start[r]};
  }
  // Bytes of an all-gather of K and V: every shard gets what the others have.
  double all_gather() const {
    return static_cast<double>(shards - 1) * static_cast<double>(columns()) *
           static_cast<double>(kv_bytes);
  }
};

// The shard that has each row.
using RowShards = std::vector<int32_t>;

// Of plans of the same sizes, one a mask; the request is of one of them. Their
// work adds up, and a row needs the columns that it needs in any.
using Plans = std::span<const Plan* const>;
Problem make_problem(const Request& request, Plans plans,
                     const ShardOptions& options, int64_t shards,
                     int64_t first_batch_row, int64_t batch_rows);

// Bytes of a tile of K and V, of q, and of out with its log-sum-exp, of these
// many heads.
struct TileBytes {
  int64_t kv = 0, q = 0, out = 0;
};
TileBytes tile_bytes(const ShardOptions& options, const Tile& tile,
                     int64_t heads, int64_t kv_heads);

// Rows [begin, end) between natural cuts.
struct Piece {
  int64_t begin = 0, end = 0;
};
std::vector<Piece> pieces_of(const Problem& p);

// The families. Each gives the shard that owns each row; `tasks` the one that
// computes it.
RowShards contiguous_rows(const Problem& p);
RowShards headtail_rows(const Problem& p);
RowShards even_rows(const Problem& p);
RowShards even_tasks(const Problem& p);

}  // namespace tessera::shard
