// route/unions.cc: unions of tile rows by bitmap or by sorting, and the slot of
// each pick in its union.
#include "route/unions.h"

#include <algorithm>
#include <bit>

#include "base/fail.h"
#include "base/integers.h"
#include "route/tasks.h"
#include "tessera/batch.h"

namespace tessera::routing {
namespace {

// Picks of one tile row, query after query.
using Rows = std::span<const int32_t>;

// Most picks equal the previous query's pick in the same slot.
bool is_again(Rows picks, size_t i, size_t k) {
  return i >= k && picks[i] == picks[i - k];
}

// A bit per block, and how many bits are set before each word.
class Bitmap {
 public:
  void find(Rows picks, size_t k, int64_t blocks,
            std::vector<int32_t>& unions) {
    words_.assign(static_cast<size_t>(ceil_div(blocks, 64)), 0);
    before_.resize(words_.size());
    for (size_t i = 0; i < picks.size(); ++i) {
      const int32_t p = picks[i];
      if (p < 0 || is_again(picks, i, k)) continue;
      words_[word(p)] |= uint64_t{1} << (p & 63);
    }
    for (size_t w = 0; w < words_.size(); ++w) {
      before_[w] = static_cast<int32_t>(unions.size());
      for (uint64_t left = words_[w]; left != 0; left &= left - 1) {
        unions.push_back(static_cast<int32_t>(w * 64) + std::countr_zero(left));
      }
    }
  }
  int32_t slot(int32_t pick) const {
    const uint64_t below = (uint64_t{1} << (pick & 63)) - 1;
    return before_[word(pick)] + std::popcount(words_[word(pick)] & below);
  }

 private:
  static size_t word(int32_t pick) { return static_cast<size_t>(pick) / 64; }

  std::vector<uint64_t> words_;
  std::vector<int32_t> before_;
};

void find_sorted(Rows picks, size_t k, std::vector<int32_t>& unions) {
  for (size_t i = 0; i < picks.size(); ++i) {
    if (picks[i] >= 0 && !is_again(picks, i, k)) unions.push_back(picks[i]);
  }
  std::sort(unions.begin(), unions.end());
  unions.erase(std::unique(unions.begin(), unions.end()), unions.end());
}

}  // namespace

PickUnions make_unions(const PickSizes& s, Ints picks, int64_t query_tile,
                       UnionMethod method, int threads) {
  PickUnions out;
  out.heads = s.heads;
  out.tiles = ceil_div(s.q_len, query_tile);
  out.slots.assign(picks.size(), -1);
  const int64_t rows = s.batch * s.heads * out.tiles;
  const auto k = static_cast<size_t>(s.k);
  std::vector<std::vector<int32_t>> found(static_cast<size_t>(rows));
  std::vector<Bitmap> bitmaps(static_cast<size_t>(std::max(threads, 1)));
  const auto work = [&](int64_t task, int worker) {
    const int64_t begin = task % out.tiles * query_tile;
    const int64_t end = std::min(s.q_len, begin + query_tile);
    const int64_t first = (task / out.tiles * s.q_len + begin) * s.k;
    const auto count = static_cast<size_t>((end - begin) * s.k);
    const Rows tile(picks.data() + first, count);
    std::vector<int32_t>& row = found[static_cast<size_t>(task)];
    Bitmap& bitmap = bitmaps[static_cast<size_t>(worker)];
    if (method == UnionMethod::bitmap) {
      bitmap.find(tile, k, s.blocks(), row);
    } else {
      find_sorted(tile, k, row);
    }
    int32_t* slots = out.slots.data() + first;
    for (size_t i = 0; i < count; ++i) {
      if (tile[i] < 0) continue;
      if (is_again(tile, i, k)) {
        slots[i] = slots[i - k];
        continue;
      }
      slots[i] = method == UnionMethod::bitmap
                     ? bitmap.slot(tile[i])
                     : static_cast<int32_t>(
                           std::lower_bound(row.begin(), row.end(), tile[i]) -
                           row.begin());
    }
  };
  run_tasks(rows, threads, work, "union");
  out.start.reserve(found.size() + 1);
  out.start.push_back(0);
  for (const std::vector<int32_t>& row : found) {
    out.blocks.insert(out.blocks.end(), row.begin(), row.end());
    out.start.push_back(static_cast<int64_t>(out.blocks.size()));
    out.widest = std::max(out.widest, static_cast<int64_t>(row.size()));
  }
  return out;
}

Result<void> set_capacity(int64_t ceiling, PickUnions& unions,
                          std::string_view where) {
  unions.capacity =
      ceiling > 0 ? ceiling : bucket(std::max<int64_t>(unions.widest, 1));
  if (unions.widest <= unions.capacity) return {};
  const auto rows = static_cast<int64_t>(unions.start.size()) - 1;
  for (int64_t r = 0; r < rows; ++r) {
    const auto width = static_cast<int64_t>(unions.row(r).size());
    if (width <= unions.capacity) continue;
    const int64_t list = r / unions.tiles;
    return over_limit(where,
                      "a tile row's union must be at most max_union {} blocks, "
                      "found {} for tile row {} of batch row {}, head {}",
                      unions.capacity, width, r % unions.tiles,
                      list / unions.heads, list % unions.heads);
  }
  return {};
}

}  // namespace tessera::routing
