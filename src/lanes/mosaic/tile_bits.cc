// lanes/mosaic/tile_bits.cc: the plan's bitmaps of partial tiles, turned to how
// the kernel unpacks them, and the number of each step's.
#include "lanes/mosaic/tile_bits.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "lanes/mosaic/shape.h"
#include "plan/bitmaps.h"

namespace tessera::mosaic {
namespace {

KernelShape tile_shape(const MosaicKernel& kernel) {
  KernelShape s;
  s.block_q = kernel.tile.q;
  s.block_kv = kernel.tile.kv;
  return s;
}

class BitWriter {
 public:
  BitWriter(const MosaicKernel& kernel, std::vector<int32_t>& words)
      : s_(tile_shape(kernel)), words_(words) {}

  // A row of a tile: bit k of `keys` is key k.
  void add_query(int64_t bitmap, int64_t q, std::span<const uint64_t> keys) {
    for (size_t i = 0; i < keys.size(); ++i) {
      for (uint64_t left = keys[i]; left != 0; left &= left - 1) {
        add(bitmap, q, static_cast<int64_t>(i) * 64 + std::countr_zero(left));
      }
    }
  }
  // The first pairs of a tile: what a length leaves of a full one.
  void add_corner(int64_t bitmap, int64_t queries, int64_t keys) {
    for (int64_t q = 0; q < queries; ++q) {
      for (int64_t k = 0; k < keys; ++k) add(bitmap, q, k);
    }
  }

 private:
  void add(int64_t bitmap, int64_t q, int64_t k) {
    const int64_t line = bitmap * s_.bit_rows() + k % s_.bit_rows();
    int32_t& word = words_[static_cast<size_t>(line * s_.block_q + q)];
    word = static_cast<int32_t>(static_cast<uint32_t>(word) |
                                uint32_t{1} << k / s_.bit_rows());
  }

  KernelShape s_;
  std::vector<int32_t>& words_;
};

}  // namespace

Result<TileBitmaps> TileBitmaps::make(const Batch::State& batch,
                                      const MosaicKernel& kernel) {
  const Plan& plan = batch.plan;
  for (const int64_t side : {plan.tile.q, plan.tile.kv}) {
    if (side % kLanes == 0) continue;
    return invalid("mosaic",
                   "tiles with bitmaps must have sides of whole {}, found "
                   "{}x{}",
                   kLanes, plan.tile.q, plan.tile.kv);
  }
  auto bitmaps = plan::make_bitmaps_of(
      batch, 0, plan.batch, {plan.tile.q * plan.tile.kv / 8, kMaxLayoutBytes},
      "mosaic");
  if (!bitmaps) return bitmaps.error();
  return TileBitmaps(plan, kernel, std::move(*bitmaps));
}

TileBitmaps::TileBitmaps(const Plan& plan, const MosaicKernel& kernel,
                         Bitmaps bitmaps)
    : plan_(plan), kernel_(kernel), bitmaps_(std::move(bitmaps)) {
  first_corner_ =
      kFirstBitmap + static_cast<int64_t>(bitmaps_.words.size()) /
                         std::max<int64_t>(bitmaps_.words_per_tile, 1);
}

int64_t TileBitmaps::number_of(int64_t list, int64_t r, int64_t c) {
  const Worklist& w = plan_.forward;
  const std::span<const Entry> row = w.row(list, r);
  const auto at = std::ranges::lower_bound(row, c, {}, &Entry::column);
  if (at == row.end() || at->column() != c) return kNoPairs;
  const auto entry = static_cast<size_t>(&*at - w.entries.data());
  if (const int32_t found = bitmaps_.of_entry[entry]; found >= 0) {
    return kFirstBitmap + found;
  }
  const Tile& tile = plan_.tile;
  const Corner corner = {std::min(tile.q, plan_.q_len - r * tile.q),
                         std::min(tile.kv, plan_.kv_len - c * tile.kv)};
  if (corner == Corner{tile.q, tile.kv}) return kAllPairs;
  const auto [known, added] = corner_numbers_.try_emplace(corner, count());
  if (added) corners_.push_back(corner);
  return known->second;
}

void TileBitmaps::write(int64_t number, int64_t place,
                        std::vector<int32_t>& words) const {
  BitWriter writer(kernel_, words);
  const Tile& tile = plan_.tile;
  if (number == kNoPairs) return;
  if (number == kAllPairs) return writer.add_corner(place, tile.q, tile.kv);
  if (number >= first_corner_) {
    const Corner& c = corners_[static_cast<size_t>(number - first_corner_)];
    return writer.add_corner(place, c.first, c.second);
  }
  // A tile's sides are multiples of 128: a query's bits are whole words.
  const auto line = static_cast<size_t>(tile.kv / 64);
  const auto first = static_cast<size_t>((number - kFirstBitmap) * tile.q);
  const auto all = std::span<const uint64_t>(bitmaps_.words);
  for (int64_t q = 0; q < tile.q; ++q) {
    writer.add_query(
        place, q, all.subspan((first + static_cast<size_t>(q)) * line, line));
  }
}

namespace {

Result<std::vector<int32_t>> empty_words(int64_t bitmaps,
                                         const MosaicKernel& kernel) {
  if (bitmaps > kernel.bitmaps) {
    return over_limit("mosaic",
                      "bitmaps of tiles must fit the kernel's {}, found {}",
                      kernel.bitmaps, bitmaps);
  }
  const KernelShape s = tile_shape(kernel);
  return std::vector<int32_t>(
      static_cast<size_t>(kernel.bitmaps * s.bit_rows() * kernel.tile.q), 0);
}

// Calls f(number of the step, list, query tile, key tile) for each tile.
template <class F>
void for_each_tile(const Steps& steps, const MosaicKernel& kernel, F f) {
  for (size_t list = 0; list + 1 < steps.range.size(); ++list) {
    for (size_t i = steps.range[list]; i < steps.range[list + 1]; ++i) {
      const Step& step = steps.steps[i];
      if (step.step_class() == 0) continue;
      const bool turned = kernel.call.backward;
      f(i, static_cast<int64_t>(list), turned ? step.column() : step.row(),
        turned ? step.row() : step.column());
    }
  }
}

}  // namespace

Result<TileBits> make_tile_bits(const Batch::State& batch, const Steps& steps,
                                const MosaicKernel& kernel) {
  auto bitmaps = TileBitmaps::make(batch, kernel);
  if (!bitmaps) return bitmaps.error();
  TileBits out;
  out.of_step.assign(static_cast<size_t>(kernel.steps), kNoPairs);
  for_each_tile(
      steps, kernel, [&](size_t i, int64_t list, int64_t r, int64_t c) {
        out.of_step[i] = static_cast<int32_t>(bitmaps->number_of(list, r, c));
      });
  auto words = empty_words(bitmaps->count(), kernel);
  if (!words) return words.error();
  out.words = std::move(*words);
  for (int64_t n = kAllPairs; n < bitmaps->count(); ++n) {
    bitmaps->write(n, n, out.words);
  }
  return out;
}

Result<ShardBits> make_shard_bits(TileBitmaps& bitmaps, const Shard& shard,
                                  int64_t plan_heads,
                                  std::span<const CallTiles> calls,
                                  const MosaicKernel& kernel) {
  ShardBits out;
  // Those that it needs, numbered as they are met.
  std::map<int64_t, int32_t> here = {{kNoPairs, kNoPairs},
                                     {kAllPairs, kAllPairs}};
  for (const CallTiles& call : calls) {
    std::vector<int32_t>& of_step =
        out.of_step.emplace_back(static_cast<size_t>(kernel.steps), kNoPairs);
    for_each_tile(*call.steps, kernel,
                  [&](size_t i, int64_t list, int64_t r, int64_t c) {
                    const TileAt& row = shard.rows[static_cast<size_t>(r)];
                    const TileAt& column =
                        shard.columns[static_cast<size_t>(c + call.shift)];
                    const int64_t number = bitmaps.number_of(
                        row.batch_row * plan_heads + shard.first_list + list,
                        row.tile, column.tile);
                    const auto next = static_cast<int32_t>(here.size());
                    of_step[i] = here.try_emplace(number, next).first->second;
                  });
  }
  auto words = empty_words(static_cast<int64_t>(here.size()), kernel);
  if (!words) return words.error();
  out.words = std::move(*words);
  for (const auto& [number, place] : here) {
    bitmaps.write(number, place, out.words);
  }
  return out;
}

}  // namespace tessera::mosaic
