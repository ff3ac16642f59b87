// shard/loads.h: the shard of each row, and the resulting work, rows and
// travelling tiles, kept exact while rows move.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shard/problem.h"

namespace tessera::shard {

class Loads {
 public:
  // `row_shards`: the shard that computes each row. With tasks the owners are
  // those of contiguous_rows; columns that are not tied to rows have contiguous
  // owners too.
  Loads(const Problem& p, RowShards row_shards);

  void move(int64_t row, int32_t to);
  void move(int64_t begin, int64_t end, int32_t to) {
    for (int64_t r = begin; r < end; ++r) move(r, to);
  }

  const Problem& problem() const { return p_; }
  const RowShards& row_shards() const { return row_shards_; }
  int32_t shard_of(int64_t row) const {
    return row_shards_[static_cast<size_t>(row)];
  }
  int64_t work(int32_t s) const { return work_[static_cast<size_t>(s)]; }
  int64_t rows(int32_t s) const { return rows_[static_cast<size_t>(s)]; }
  // A shard's excess over its limits, in means; 0 within the limits.
  double over(int64_t work, int64_t rows) const {
    double out = std::max(0.0, static_cast<double>(work) - p_.work_cap);
    out *= a_work_;
    if (rows > p_.row_cap && !p_.tasks) {
      out += static_cast<double>(rows - p_.row_cap) * a_row_;
    }
    return out;
  }
  double over(int32_t s) const { return over(work(s), rows(s)); }
  int64_t counted() const { return counted_; }  // columns counted in moves
  // Bytes needed and bytes sent by rounds, as fractions of an all-gather.
  double needed() const;
  double sent() const;
  // sent() with the mean of a round's tiles and their bucket, so that a change
  // within a bucket counts too.
  double sent_half_rounded() const;
  // The growth of sent_half_rounded(), in rows of tasks, if rows [begin, end)
  // of one owner go to `to`.
  double more_tasks_sent(int64_t begin, int64_t end, int32_t to) const;

 private:
  // `size(n, owned)`: a round's size for n tiles of a shard that owns `owned`.
  template <class Size>
  double sent_in(const Size& size) const;
  const Problem& p_;
  int64_t shards_;
  double a_work_, a_row_;  // 1 / mean
  RowShards row_shards_, row_owner_, column_owner_;
  std::vector<int64_t> work_, rows_;
  int64_t own_columns_ = 0, own_rows_ = 0;  // capacity for a shard's own tiles
  std::vector<uint32_t> users_;  // [shard, column]: its rows that need it
  std::vector<int32_t> kv_, q_;  // [shift, sender]: tiles to sender + shift
  int64_t kv_tiles_ = 0, q_tiles_ = 0, counted_ = 0;

  void travel(std::vector<int32_t>& tiles, int64_t& total, int32_t from,
              int32_t to, int32_t n);
};

}  // namespace tessera::shard
