// shard/loads.h: who has and computes which row, and what follows of that:
// work, rows and tiles that travel, kept exact while rows move.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "shard/problem.h"

namespace tessera::shard {

class Loads {
 public:
  // `row_shards`: who computes each row. Of tasks the owners are the contiguous
  // ones, and so are those of columns that are not tied to rows.
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
  // How far a shard is over the limits, in means; 0 within them.
  double over(int64_t work, int64_t rows) const {
    double out = std::max(0.0, static_cast<double>(work) - p_.work_cap);
    out *= a_work_;
    if (rows > p_.row_cap && !p_.tasks) {
      out += static_cast<double>(rows - p_.row_cap) * a_row_;
    }
    return out;
  }
  double over(int32_t s) const { return over(work(s), rows(s)); }
  int64_t counted() const { return counted_; }  // needs of moved rows so far
  // What must travel and what the rounds send, beside an all-gather.
  double needed() const;
  double sent() const;
  // The same half rounded to buckets: what is still below one counts too.
  double sent_half_rounded() const;
  // What it grows by, in rows of tasks, where these of one owner go there.
  double more_tasks_sent(int64_t begin, int64_t end, int32_t to) const;

 private:
  // `size(n, owned)`: of a round that carries n of a shard's own.
  template <class Size>
  double sent_in(const Size& size) const;
  const Problem& p_;
  int64_t shards_;
  double a_work_, a_row_;  // one beside the mean
  RowShards row_shards_, row_owner_, column_owner_;
  std::vector<int64_t> work_, rows_;
  int64_t own_columns_ = 0, own_rows_ = 0;  // room for a shard's own
  std::vector<uint32_t> users_;  // [shard, column]: its rows that need it
  std::vector<int32_t> kv_, q_;  // [shift, sender]: tiles to sender + shift
  int64_t kv_tiles_ = 0, q_tiles_ = 0, counted_ = 0;

  void travel(std::vector<int32_t>& tiles, int64_t& total, int32_t from,
              int32_t to, int32_t n);
};

}  // namespace tessera::shard
