// shard/loads.cc: counts, per shard, the rows that need each column. A tile
// travels to a shard with a count above 0 that does not own it.
#include "shard/loads.h"

#include <algorithm>
#include <utility>

#include "tessera/batch.h"

namespace tessera::shard {
namespace {

int64_t most_of_one(const RowShards& row_shards, size_t shards) {
  std::vector<int64_t> count(shards, 0);
  for (const int32_t s : row_shards) ++count[static_cast<size_t>(s)];
  return *std::max_element(count.begin(), count.end());
}

double half_rounded(int64_t n, int64_t owned) {
  return static_cast<double>(std::min(bucket(n), owned) + n) / 2;
}

}  // namespace

Loads::Loads(const Problem& p, RowShards row_shards)
    : p_(p),
      shards_(p.shards),
      a_work_(1 / p.mean_work()),
      a_row_(1 / p.mean_rows()),
      row_shards_(std::move(row_shards)) {
  const auto n = static_cast<size_t>(shards_);
  const auto columns = static_cast<size_t>(p.columns());
  row_owner_ = p.tasks ? contiguous_rows(p) : row_shards_;
  column_owner_.resize(columns);
  for (size_t c = 0; c < columns; ++c) {
    const int64_t unit = static_cast<int64_t>(c) % p.column_units;
    column_owner_[c] =
        p.tied ? row_owner_[c]
               : static_cast<int32_t>(unit * shards_ / p.column_units);
  }
  own_rows_ = std::max(most_of_one(row_owner_, n), p.tasks ? 0 : p.row_cap);
  own_columns_ = p.tied ? own_rows_ : most_of_one(column_owner_, n);
  work_.assign(n, 0);
  rows_.assign(n, 0);
  users_.assign(n * columns, 0);
  kv_.assign(n * n, 0);
  q_.assign(n * n, 0);
  for (int64_t r = 0; r < p.rows(); ++r) {
    const int32_t s = shard_of(r);
    work_[static_cast<size_t>(s)] += p.work(r, r + 1);
    ++rows_[static_cast<size_t>(s)];
    uint32_t* const users = users_.data() + static_cast<size_t>(s) * columns;
    for (const uint32_t c : p.needs(r)) {
      if (users[c]++ == 0) travel(kv_, kv_tiles_, column_owner_[c], s, 1);
    }
    if (p.tasks) travel(q_, q_tiles_, row_owner_[static_cast<size_t>(r)], s, 1);
  }
}

void Loads::travel(std::vector<int32_t>& tiles, int64_t& total, int32_t from,
                   int32_t to, int32_t n) {
  if (from == to) return;
  const int64_t shift = to > from ? to - from : to - from + shards_;
  tiles[static_cast<size_t>(shift * shards_ + from)] += n;
  total += n;
}

void Loads::move(int64_t row, int32_t to) {
  const auto r = static_cast<size_t>(row);
  const int32_t from = row_shards_[r];
  if (from == to) return;
  const int64_t work = p_.work(row, row + 1);
  work_[static_cast<size_t>(from)] -= work;
  work_[static_cast<size_t>(to)] += work;
  --rows_[static_cast<size_t>(from)];
  ++rows_[static_cast<size_t>(to)];
  const auto columns = static_cast<size_t>(p_.columns());
  uint32_t* const at_from = users_.data() + static_cast<size_t>(from) * columns;
  uint32_t* const at_to = users_.data() + static_cast<size_t>(to) * columns;
  counted_ += static_cast<int64_t>(p_.needs(row).size());
  for (const uint32_t c : p_.needs(row)) {
    if (--at_from[c] == 0) travel(kv_, kv_tiles_, column_owner_[c], from, -1);
    if (at_to[c]++ == 0) travel(kv_, kv_tiles_, column_owner_[c], to, 1);
  }
  row_shards_[r] = to;
  if (p_.tasks) {
    travel(q_, q_tiles_, row_owner_[r], from, -1);
    travel(q_, q_tiles_, row_owner_[r], to, 1);
  } else if (p_.tied) {
    for (int32_t s = 0; s < shards_; ++s) {
      if (users_[static_cast<size_t>(s) * columns + r] == 0) continue;
      travel(kv_, kv_tiles_, from, s, -1);
      travel(kv_, kv_tiles_, to, s, 1);
    }
    column_owner_[r] = to;
  }
}

double Loads::needed() const {
  return static_cast<double>(kv_tiles_ * p_.kv_bytes +
                             q_tiles_ * p_.row_bytes) /
         p_.all_gather();
}

template <class Size>
double Loads::sent_in(const Size& size) const {
  if (p_.ragged) return needed();
  double bytes = 0;
  const auto add = [&](const std::vector<int32_t>& tiles, int64_t owned,
                       int64_t of_tile) {
    const int32_t* at = tiles.data() + shards_;
    for (int64_t shift = 1; shift < shards_; ++shift, at += shards_) {
      const int32_t most = *std::max_element(at, at + shards_);
      if (most > 0) bytes += size(most, owned) * static_cast<double>(of_tile);
    }
  };
  add(kv_, own_columns_, p_.kv_bytes);
  if (q_tiles_ > 0) add(q_, own_rows_, p_.row_bytes);
  return bytes * static_cast<double>(shards_) / p_.all_gather();
}

double Loads::sent() const {
  return sent_in([](int64_t n, int64_t owned) {
    return static_cast<double>(std::min(bucket(n), owned));
  });
}

double Loads::sent_half_rounded() const { return sent_in(half_rounded); }

double Loads::more_tasks_sent(int64_t begin, int64_t end, int32_t to) const {
  const int32_t from = row_owner_[static_cast<size_t>(begin)];
  if (p_.ragged || from == to) return 0;
  const int64_t shift = to > from ? to - from : to - from + shards_;
  const int32_t* const at = q_.data() + shift * shards_;
  const int64_t most = *std::max_element(at, at + shards_);
  const int64_t n = at[from] + end - begin;
  if (n <= most) return 0;
  return (half_rounded(n, own_rows_) - half_rounded(most, own_rows_)) *
         static_cast<double>(shards_);
}

}  // namespace tessera::shard
