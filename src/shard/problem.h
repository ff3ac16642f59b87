// shard/problem.h: the input of assigning rows along "seq" for one index of
// "data": rows with their work and needed columns, and the limits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/plan.h"
#include "tessera/shard.h"

namespace tessera::shard {

// Rows and columns are units: one tile each or, if row and column tiles differ
// and tokens move as a whole, the tiles of their least common length. Units are
// numbered batch row after batch row.
struct Problem {
  int64_t shards = 1;
  int64_t batch_rows = 0;
  int64_t units = 0;         // row units of a batch row
  int64_t column_units = 0;  // column units of a batch row
  int64_t tiles_q = 1;       // query tiles of a row unit
  int64_t tiles_kv = 1;      // key tiles of a column unit
  // Column c holds the tokens of row c and has the same owner.
  bool tied = false;
  // Rows keep their owner; only the computing shard is chosen.
  bool tasks = false;
  // Exactly the needed tiles are sent, without padding.
  bool ragged = false;

  std::vector<uint32_t> start;   // per row: its start in `column`; rows + 1
  std::vector<uint32_t> column;  // ascending in a row
  std::vector<int64_t> before;   // work of all earlier rows; rows + 1
  // Whether a row needs many columns before it, so that a cut before the row is
  // costly. The pieces that begin at false entries are the natural documents.
  std::vector<uint8_t> joined;

  int64_t kv_bytes = 1;   // bytes of a column unit
  int64_t row_bytes = 1;  // bytes of a row's q, out and log-sum-exp
  double work_cap = 0;    // maximum of a shard
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
  // Bytes of an all-gather of K and V: each shard gets all other columns.
  double all_gather() const {
    return static_cast<double>(shards - 1) * static_cast<double>(columns()) *
           static_cast<double>(kv_bytes);
  }
};

// The shard of each row.
using RowShards = std::vector<int32_t>;

// Makes the problem of plans of the same sizes, one per mask; `request` is that
// of one of them. A row's work is the sum over the plans, its columns are their
// union.
using Plans = std::span<const Plan* const>;
Problem make_problem(const Request& request, Plans plans,
                     const ShardOptions& options, int64_t shards,
                     int64_t first_batch_row, int64_t batch_rows);

// Bytes of a tile of K and V, of q, and of out with its log-sum-exp.
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

// The families. Each returns the shard that owns each row; even_tasks returns
// the shard that computes each row.
RowShards contiguous_rows(const Problem& p);
RowShards headtail_rows(const Problem& p);
RowShards even_rows(const Problem& p);
RowShards even_tasks(const Problem& p);

}  // namespace tessera::shard
