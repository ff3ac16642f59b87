// plan/pick_unions.cc: picks as bits over the unions of tile rows, and back.
#include "plan/pick_unions.h"

#include <algorithm>
#include <bit>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/integers.h"
#include "route/unions.h"

namespace tessera::plan {
namespace {

constexpr int64_t kWord = 32;

routing::PickSizes sizes_of(const mask::Bound& b, int64_t block) {
  return {b.batch, b.pick_heads, b.q_len, b.picks_k, block, b.kv_len};
}

Ints picks_of(const mask::Bound& b) {
  return {b.picks,
          static_cast<size_t>(b.batch * b.pick_heads * b.q_len * b.picks_k)};
}

// Reads the union of one tile row from unchecked words.
Result<std::vector<int32_t>> read_union(std::string_view words, int64_t first,
                                        int64_t count, int64_t blocks,
                                        int64_t row, std::string_view where) {
  std::vector<int32_t> out;
  out.reserve(static_cast<size_t>(count));
  for (int64_t i = first; i < first + count; ++i) {
    const auto block =
        int64_t{load<uint32_t>(words, 4 * static_cast<size_t>(i))};
    if (block >= blocks || (!out.empty() && block <= out.back())) {
      return invalid(where,
                     "blocks of a union must ascend below {}, found {} for "
                     "tile row {} of the picks",
                     blocks, block, row);
    }
    out.push_back(static_cast<int32_t>(block));
  }
  return out;
}

}  // namespace

PickUnions plan_unions(const mask::Bound& bound, int64_t block) {
  return routing::make_unions(sizes_of(bound, block), picks_of(bound),
                              bound.tile.q, UnionMethod::bitmap, 1);
}

std::vector<uint32_t> tile_slots(const mask::Bound& bound, int64_t block,
                                 const PickUnions& unions,
                                 const Worklist& forward) {
  std::vector<uint32_t> out;
  out.reserve(forward.entries.size());
  for (int64_t list = 0; list < forward.lists; ++list) {
    const int64_t batch_row = list / bound.heads;
    const int64_t pick_head =
        list % bound.heads * bound.pick_heads / bound.heads;
    for (int64_t r = 0; r < forward.rows; ++r) {
      const auto row =
          unions.row((batch_row * unions.heads + pick_head) * unions.tiles + r);
      for (const Entry e : forward.row(list, r)) {
        const int64_t begin = e.column() * bound.tile.kv;
        const auto it = std::lower_bound(row.begin(), row.end(), begin / block);
        const bool touches =
            it != row.end() && *it * block < begin + bound.tile.kv;
        out.push_back(touches ? static_cast<uint32_t>(it - row.begin())
                              : kNoSlot);
      }
    }
  }
  return out;
}

PickWords pick_words(const mask::Bound& bound, int64_t block,
                     const Worklist& forward) {
  const PickUnions unions = plan_unions(bound, block);
  PickWords out;
  const auto rows = static_cast<int64_t>(unions.start.size()) - 1;
  for (int64_t row = 0; row < rows; ++row) {
    out.counts.push_back(static_cast<uint32_t>(unions.row(row).size()));
  }
  out.blocks.assign(unions.blocks.begin(), unions.blocks.end());
  const int64_t queries = bound.batch * bound.pick_heads * bound.q_len;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t row =
        i / bound.q_len * unions.tiles + i % bound.q_len / bound.tile.q;
    const size_t first = out.bits.size();
    const auto count = static_cast<int64_t>(unions.row(row).size());
    out.bits.resize(first + static_cast<size_t>(ceil_div(count, kWord)));
    for (int64_t s = 0; s < bound.picks_k; ++s) {
      const int32_t slot =
          unions.slots[static_cast<size_t>(i * bound.picks_k + s)];
      if (slot < 0) continue;
      out.bits[first + static_cast<size_t>(slot / kWord)] |= uint32_t{1}
                                                             << (slot % kWord);
    }
  }
  out.slots = tile_slots(bound, block, unions, forward);
  return out;
}

Result<std::vector<int32_t>> picks_of_words(const PickLayout& l,
                                            std::string_view counts,
                                            std::string_view blocks,
                                            std::string_view bits,
                                            std::string_view where) {
  const int64_t tiles = ceil_div(l.q_len, l.tile_q);
  const int64_t rows = l.batch * l.heads * tiles;
  if (static_cast<int64_t>(counts.size() / 4) != rows) {
    return invalid(where, "union_counts must hold {} tile rows, found {}", rows,
                   counts.size() / 4);
  }
  std::vector<int32_t> out(
      static_cast<size_t>(l.batch * l.heads * l.q_len * l.k), -1);
  const auto all_blocks = static_cast<int64_t>(blocks.size() / 4);
  const auto all_bits = static_cast<int64_t>(bits.size() / 4);
  int64_t block_at = 0;
  int64_t bit_at = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const auto count =
        int64_t{load<uint32_t>(counts, 4 * static_cast<size_t>(row))};
    if (count > std::min(l.blocks, all_blocks - block_at)) {
      return invalid(where,
                     "a union must be at most {} blocks, found {} for tile row "
                     "{} of the picks",
                     std::min(l.blocks, all_blocks - block_at), count, row);
    }
    auto found = read_union(blocks, block_at, count, l.blocks, row, where);
    if (!found) return found.error();
    block_at += count;
    const int64_t words = ceil_div(count, kWord);
    const int64_t begin = row % tiles * l.tile_q;
    const int64_t end = std::min(l.q_len, begin + l.tile_q);
    if (words * (end - begin) > all_bits - bit_at) {
      return invalid(where,
                     "pick_bits must hold {} words for tile row {} of the "
                     "picks, found {}",
                     words * (end - begin), row, all_bits - bit_at);
    }
    std::vector<bool> used(static_cast<size_t>(count), false);
    for (int64_t q = begin; q < end; ++q) {
      int32_t* to = out.data() + (row / tiles * l.q_len + q) * l.k;
      int64_t picked = 0;
      for (int64_t w = 0; w < words; ++w, ++bit_at) {
        auto word = load<uint32_t>(bits, 4 * static_cast<size_t>(bit_at));
        for (; word != 0; word &= word - 1) {
          const int64_t slot = w * kWord + std::countr_zero(word);
          if (slot >= count || picked == l.k) {
            return invalid(where,
                           "a query must pick at most {} of its union's {} "
                           "blocks, found more for query {} of tile row {} of "
                           "the picks",
                           l.k, count, q, row);
          }
          used[static_cast<size_t>(slot)] = true;
          to[picked++] = (*found)[static_cast<size_t>(slot)];
        }
      }
    }
    const auto unused = std::find(used.begin(), used.end(), false);
    if (unused != used.end()) {
      return invalid(where,
                     "each block of a union must be a query's, found {} for "
                     "tile row {} of the picks",
                     (*found)[static_cast<size_t>(unused - used.begin())], row);
    }
  }
  if (block_at != all_blocks || bit_at != all_bits) {
    return invalid(where,
                   "unions must fill their sections, found {} blocks and {} "
                   "words of bits more",
                   all_blocks - block_at, all_bits - bit_at);
  }
  return out;
}

}  // namespace tessera::plan
