// lanes/mosaic/tile_bits.cc: the plan's bitmaps of partial tiles in the order
// in which the kernel unpacks them, and the number of each step's bitmap.
#include "lanes/mosaic/tile_bits.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "lanes/mosaic/kernel_steps.h"
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

// Writes one bitmap, query by query. Starts from the words of the query before
// and flips the keys that differ, which are mostly few.
class BitWriter {
 public:
  BitWriter(const MosaicKernel& kernel, std::span<int32_t> bitmap)
      : s_(tile_shape(kernel)),
        bitmap_(bitmap),
        before_(static_cast<size_t>(ceil_div(s_.block_kv, 64)), 0),
        words_(static_cast<size_t>(s_.bit_rows()), 0) {}

  // Bit k of `keys` is key k.
  void add_query(int64_t q, std::span<const uint64_t> keys) {
    for (size_t i = 0; i < keys.size(); ++i) {
      const uint64_t changed = keys[i] ^ before_[i];
      for (uint64_t left = changed; left != 0; left &= left - 1) {
        flip(static_cast<uint32_t>(i * 64) +
             static_cast<uint32_t>(std::countr_zero(left)));
      }
      before_[i] = keys[i];
    }
    int32_t* to = bitmap_.data() + q;
    for (const uint32_t word : words_) {
      *to = static_cast<int32_t>(word);
      to += s_.block_q;
    }
  }
  // Sets the first queries and keys of a full tile that a length cuts short.
  void add_corner(int64_t queries, int64_t keys) {
    for (uint32_t k = 0; k < static_cast<uint32_t>(keys); ++k) flip(k);
    int32_t* to = bitmap_.data();
    for (const uint32_t word : words_) {
      std::fill_n(to, queries, static_cast<int32_t>(word));
      to += s_.block_q;
    }
  }

 private:
  void flip(uint32_t k) {
    const auto rows = static_cast<uint32_t>(words_.size());
    words_[k % rows] ^= uint32_t{1} << k / rows;
  }

  KernelShape s_;
  std::span<int32_t> bitmap_;
  std::vector<uint64_t> before_;  // keys of the query before
  std::vector<uint32_t> words_;   // its words
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

void TileBitmaps::write(int64_t number, std::span<int32_t> bitmap) const {
  BitWriter writer(kernel_, bitmap);
  const Tile& tile = plan_.tile;
  if (number == kNoPairs) return;
  if (number == kAllPairs) return writer.add_corner(tile.q, tile.kv);
  if (number >= first_corner_) {
    const Corner& c = corners_[static_cast<size_t>(number - first_corner_)];
    return writer.add_corner(c.first, c.second);
  }
  // A tile's sides are multiples of 128: a query's bits are whole words.
  const auto line = static_cast<size_t>(tile.kv / 64);
  const auto first = static_cast<size_t>((number - kFirstBitmap) * tile.q);
  const auto all = std::span<const uint64_t>(bitmaps_.words);
  for (int64_t q = 0; q < tile.q; ++q) {
    writer.add_query(
        q, all.subspan((first + static_cast<size_t>(q)) * line, line));
  }
}

namespace {

Result<void> check_room(int64_t bitmaps, const MosaicKernel& kernel) {
  if (bitmaps <= kernel.bitmaps) return {};
  return over_limit("mosaic",
                    "bitmaps of tiles must fit the kernel's {}, found {}",
                    kernel.bitmaps, bitmaps);
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
  const int64_t chunks = chunks_of(kernel);
  for_each_tile(
      steps, kernel, [&](size_t i, int64_t list, int64_t r, int64_t c) {
        out.of_step[i] =
            static_cast<int32_t>(bitmaps->number_of(list / chunks, r, c));
      });
  if (auto e = check_room(bitmaps->count(), kernel); !e) return e.error();
  const int64_t of_tile = bitmap_words(kernel);
  out.words.assign(static_cast<size_t>(kernel.bitmaps * of_tile), 0);
  for (int64_t n = kAllPairs; n < bitmaps->count(); ++n) {
    bitmaps->write(
        n, std::span(out.words).subspan(static_cast<size_t>(n * of_tile),
                                        static_cast<size_t>(of_tile)));
  }
  return out;
}

int64_t bitmap_words(const MosaicKernel& kernel) {
  const KernelShape s = tile_shape(kernel);
  return s.bit_rows() * s.block_q;
}

Result<std::vector<std::vector<int32_t>>> make_shard_bits(
    TileBitmaps& bitmaps, const Shard& shard, int64_t plan_heads,
    std::span<const CallTiles> calls, const MosaicKernel& kernel,
    std::span<int32_t> words) {
  std::vector<std::vector<int32_t>> of_step;
  // The batch's number of a bitmap, and the device's, in the order of first
  // use.
  std::map<int64_t, int32_t> here = {{kNoPairs, kNoPairs},
                                     {kAllPairs, kAllPairs}};
  const int64_t chunks = chunks_of(kernel);
  for (const CallTiles& call : calls) {
    std::vector<int32_t>& own =
        of_step.emplace_back(static_cast<size_t>(kernel.steps), kNoPairs);
    for_each_tile(
        *call.steps, kernel, [&](size_t i, int64_t list, int64_t r, int64_t c) {
          const TileAt& row = shard.rows[static_cast<size_t>(r)];
          const TileAt& column =
              shard.columns[static_cast<size_t>(c + call.shift)];
          const int64_t number = bitmaps.number_of(
              row.batch_row * plan_heads + shard.first_list + list / chunks,
              row.tile, column.tile);
          const auto next = static_cast<int32_t>(here.size());
          own[i] = here.try_emplace(number, next).first->second;
        });
  }
  if (auto e = check_room(static_cast<int64_t>(here.size()), kernel); !e) {
    return e.error();
  }
  const auto of_tile = static_cast<size_t>(bitmap_words(kernel));
  for (const auto& [number, place] : here) {
    bitmaps.write(number,
                  words.subspan(static_cast<size_t>(place) * of_tile, of_tile));
  }
  return of_step;
}

}  // namespace tessera::mosaic
