// plan/bitmaps.cc: token masks of the partial tiles, equal ones stored once.
//
// Each query of a tile row is asked once for its legal keys, as intervals. A
// tile is filled with a few runs of bits per query; no pair is tested alone.
#include "plan/bitmaps.h"

#include <algorithm>
#include <span>
#include <unordered_map>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/fail.h"
#include "base/integers.h"
#include "mask/query_keys.h"
#include "plan/batch_state.h"

namespace tessera {
namespace {

// Sets bits [begin, end).
void set_bits(std::span<uint64_t> words, int64_t begin, int64_t end) {
  while (begin < end) {
    const int64_t stop = std::min(end, (begin | 63) + 1);
    const int64_t count = stop - begin;
    const uint64_t ones =
        count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
    words[static_cast<size_t>(begin >> 6)] |= ones << (begin & 63);
    begin = stop;
  }
}

// The legal keys of each query of a tile row, and those that fill() used.
class RowKeys {
 public:
  void read(mask::QueryKeys& queries, int64_t q_begin, int64_t q_end) {
    keys_.clear();
    queries_.clear();
    queries.each(q_begin, q_end,
                 [&](int64_t first, int64_t last,
                     const std::vector<mask::Interval>& keys) {
                   const size_t begin = keys_.size();
                   keys_.insert(keys_.end(), keys.begin(), keys.end());
                   for (int64_t q = first; q < last; ++q) {
                     queries_.push_back({begin, keys_.size(), queries.past(q)});
                   }
                   return true;
                 });
  }

  // Fills the zeroed tile of keys [k_begin, k_end); calls must ascend.
  void fill(int64_t k_begin, int64_t k_end, int64_t stride,
            std::span<uint64_t> words) {
    int64_t base = -k_begin;
    for (auto& [at, end, past] : queries_) {
      while (at < end && keys_[at].end <= k_begin) ++at;
      const int64_t k_past = std::min(k_end, past);
      for (size_t i = at; i < end && keys_[i].begin < k_past; ++i) {
        set_bits(words, base + std::max(keys_[i].begin, k_begin),
                 base + std::min(keys_[i].end, k_past));
      }
      base += stride;
    }
  }

 private:
  struct Query {
    size_t at, end;  // range in keys_
    int64_t past;
  };
  std::vector<mask::Interval> keys_;
  std::vector<Query> queries_;
};

// Numbers distinct bitmaps in the order of their first occurrence.
class Distinct {
 public:
  Distinct(Bitmaps& out, int64_t most) : out_(out), most_(most) {}

  // Appends a zeroed bitmap. The caller fills it, then calls number_of_last().
  std::span<uint64_t> add() {
    out_.words.resize(out_.words.size() + size(), 0);
    return last();
  }
  // The number of the last bitmap; -1 if there would be more than `most`.
  int32_t number_of_last() {
    const std::span<const uint64_t> words = last();
    const uint64_t hash = XXH3_64bits(words.data(), words.size_bytes());
    const auto [begin, end] = seen_.equal_range(hash);
    for (auto it = begin; it != end; ++it) {
      const auto first = out_.words.begin() +
                         static_cast<int64_t>(it->second) * out_.words_per_tile;
      if (!std::equal(words.begin(), words.end(), first)) continue;
      out_.words.resize(out_.words.size() - size());
      return it->second;
    }
    if (static_cast<int64_t>(seen_.size()) >= most_) return -1;
    return seen_.emplace(hash, static_cast<int32_t>(seen_.size()))->second;
  }

 private:
  size_t size() const { return static_cast<size_t>(out_.words_per_tile); }
  std::span<uint64_t> last() { return std::span(out_.words).last(size()); }

  Bitmaps& out_;
  int64_t most_;
  std::unordered_multimap<uint64_t, int32_t> seen_;
};

// Makes the bitmaps of the partial tiles, list by list.
class Filler {
 public:
  Filler(const Plan& plan, const plan::BitmapBudget& budget,
         std::string_view where, Bitmaps& out)
      : plan_(plan),
        budget_(budget),
        where_(where),
        out_(out),
        distinct_(out, budget.max_bytes / budget.bytes_per_tile) {}

  Result<void> fill(mask::QueryKeys& queries, int64_t b, int64_t h) {
    const Tile tile = plan_.tile;
    const int64_t list = plan_.list(b, h);
    queries.begin_list(list);
    for (int64_t r = 0; r < plan_.forward.rows; ++r) {
      const int64_t q_begin = r * tile.q;
      const int64_t q_end = std::min(q_begin + tile.q, plan_.q_len);
      bool read = false;
      for (const Entry e : plan_.forward.row(list, r)) {
        const int64_t k_begin = e.column() * tile.kv;
        const int64_t k_end = std::min(k_begin + tile.kv, plan_.kv_len);
        if (e.tile_class() == TileClass::full) {
          out_.of_entry.push_back(-1);
          continue;
        }
        if (!read) keys_.read(queries, q_begin, q_end);
        read = true;
        keys_.fill(k_begin, k_end, tile.kv, distinct_.add());
        const int32_t number = distinct_.number_of_last();
        if (number < 0) {
          return over_limit(where_,
                            "bitmaps may take {} bytes, found more at tile "
                            "({}, {}) of batch row {}, head {}",
                            budget_.max_bytes, r, e.column(), b, h);
        }
        out_.of_entry.push_back(number);
      }
    }
    return {};
  }

 private:
  const Plan& plan_;
  const plan::BitmapBudget& budget_;
  std::string_view where_;
  Bitmaps& out_;
  Distinct distinct_;
  RowKeys keys_;
};

int64_t words_of(const Tile& tile) { return ceil_div(tile.q * tile.kv, 64); }

}  // namespace

Result<Bitmaps> plan::make_bitmaps_of(const Batch::State& batch, int64_t begin,
                                      int64_t end,
                                      const plan::BitmapBudget& budget,
                                      std::string_view where) {
  const Plan& plan = batch.plan;
  const mask::Sweep pairs = mask::with_tile(batch.sweep, {1, 1});
  const Worklist& w = plan.forward;
  Bitmaps out;
  out.words_per_tile = words_of(plan.tile);
  const auto first_entry = [&](int64_t batch_row) {
    return w.row_start[static_cast<size_t>(plan.list(batch_row, 0) * w.rows)];
  };
  out.of_entry.reserve(first_entry(end) - first_entry(begin));
  Filler filler(plan, budget, where, out);
  mask::QueryKeys queries(pairs);
  for (int64_t b = begin; b < end; ++b) {
    for (int64_t h = 0; h < plan.heads; ++h) {
      if (auto e = filler.fill(queries, b, h); !e) return e.error();
    }
  }
  return out;
}

Result<Bitmaps> make_bitmaps(const Batch& batch) {
  constexpr std::string_view kWhere = "bitmaps";
  auto read = plan::read_batch(batch, kWhere);
  if (!read) return read.error();
  const Plan& plan = (*read)->plan;
  return plan::make_bitmaps_of(**read, 0, plan.batch,
                               {8 * words_of(plan.tile), kMaxLayoutBytes},
                               kWhere);
}

}  // namespace tessera
