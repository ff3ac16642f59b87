// plan/topk.cc: converts picks to and from [queries, groups, k], and counts the
// keys that tile rows read.
#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "mask/bind.h"
#include "plan/batch_state.h"
#include "plan/key_reads.h"
#include "tessera/layouts.h"

namespace tessera {
namespace {

// A set of numbers below n; clear() costs only as much as the numbers added.
class Seen {
 public:
  explicit Seen(int64_t n) : words_(static_cast<size_t>(ceil_div(n, 64))) {}

  bool add(int32_t number) {
    uint64_t& word = words_[static_cast<size_t>(number / 64)];
    const uint64_t bit = uint64_t{1} << (number % 64);
    const bool is_new = (word & bit) == 0;
    word |= bit;
    return is_new;
  }
  void clear(Ints numbers) {
    for (const int32_t n : numbers) {
      if (n >= 0) words_[static_cast<size_t>(n / 64)] = 0;
    }
  }

 private:
  std::vector<uint64_t> words_;
};

struct Sizes {
  int64_t groups = 1;
  int64_t k = 0;
};

Result<Sizes> sizes_of(std::span<const int64_t> shape, int64_t values,
                       const Request& r) {
  const size_t n = shape.size();
  const bool by_row = n == 4 && shape[0] == r.batch && shape[1] == r.q_len;
  const bool flat = (n == 2 || n == 3) && shape[0] == r.batch * r.q_len;
  Sizes out;
  if (by_row || flat) {
    out.groups = n == 2 ? 1 : shape[n - 2];
    out.k = shape[n - 1];
  }
  if (out.groups < 1 || out.groups > kMaxBatch || out.k < 1 ||
      out.k > kMaxTokens) {
    return invalid("topk",
                   "topk_idxs must have shape [{0}, k], [{0}, groups, k] or "
                   "[{1}, {2}, groups, k], found [{3}]",
                   r.batch * r.q_len, r.batch, r.q_len, fmt::join(shape, ", "));
  }
  int64_t want = 0;
  if (__builtin_mul_overflow(r.batch * r.q_len, out.groups, &want) ||
      __builtin_mul_overflow(want, out.k, &want) || want != values) {
    return invalid("topk", "topk_idxs must hold [{}, {}, {}] values, found {}",
                   r.batch * r.q_len, out.groups, out.k, values);
  }
  return out;
}

Error no_picks() {
  return invalid("topk",
                 "topk_idxs are the picks of a mask, so one must name "
                 "blocks(n), found none");
}

}  // namespace

Result<TopkPicks> picks_from_topk(Ints topk_idxs,
                                  std::span<const int64_t> shape,
                                  const Request& r) {
  if (auto e = mask::check_request(r); !e) return e.error();
  const Names names = mask::names_of(r);
  if (!names.picks) return no_picks();
  auto sizes = sizes_of(shape, static_cast<int64_t>(topk_idxs.size()), r);
  if (!sizes) return sizes.error();
  const auto k = static_cast<size_t>(sizes->k);
  const int64_t blocks = ceil_div(r.kv_len, names.picks_block);
  TopkPicks out{std::vector<int32_t>(topk_idxs.size()), sizes->groups,
                sizes->k};
  Seen seen(blocks);
  for (size_t at = 0; at < topk_idxs.size(); at += k) {
    const Ints row = topk_idxs.subspan(at, k);
    const auto number = static_cast<int64_t>(at / k);
    const int64_t group = number % out.heads;
    const int64_t q = number / out.heads % r.q_len;
    const int64_t b = number / out.heads / r.q_len;
    for (const int32_t block : row) {
      const bool in_range = block >= -1 && block < blocks;
      if (in_range && (block < 0 || seen.add(block))) continue;
      const auto where =
          fmt::format("query {} of batch row {}, group {}", q, b, group);
      if (in_range) {
        return invalid("topk",
                       "topk_idxs of a query must differ, found {} twice for "
                       "{}",
                       block, where);
      }
      return invalid("topk",
                     "topk_idxs must be from -1 to {}, blocks of {} keys, "
                     "found {} for {}",
                     blocks - 1, names.picks_block, block, where);
    }
    seen.clear(row);
    const int64_t to = ((b * out.heads + group) * r.q_len + q) * out.k;
    std::copy(row.begin(), row.end(), out.blocks.begin() + to);
  }
  return out;
}

Result<TopkIdxs> make_topk(const Batch& batch) {
  auto read = plan::read_batch(batch, "topk");
  if (!read) return read.error();
  const mask::Bound& bound = (*read)->sweep.bound;
  if (bound.picks == nullptr) return no_picks();
  const int64_t queries = bound.batch * bound.q_len;
  TopkIdxs out;
  out.shape = {queries, bound.pick_heads, bound.picks_k};
  if (bound.pick_heads == 1) out.shape = {queries, bound.picks_k};
  out.values.reserve(
      static_cast<size_t>(queries * bound.pick_heads * bound.picks_k));
  for (int64_t i = 0; i < queries * bound.pick_heads; ++i) {
    const int64_t query = i / bound.pick_heads;
    const int64_t list =
        query / bound.q_len * bound.pick_heads + i % bound.pick_heads;
    const int32_t* const from =
        bound.picks +
        (list * bound.q_len + query % bound.q_len) * bound.picks_k;
    out.values.insert(out.values.end(), from, from + bound.picks_k);
  }
  return out;
}

Result<KeyReads> count_key_reads(const Batch& batch) {
  auto read = plan::read_batch(batch, "topk");
  if (!read) return read.error();
  return plan::key_reads((*read)->sweep, (*read)->plan);
}

}  // namespace tessera
