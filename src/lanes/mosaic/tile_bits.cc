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

class Writer {
 public:
  Writer(const MosaicKernel& kernel, std::vector<int32_t>& words)
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

// Numbers of bitmaps by where a tile stands.
class Numbers {
 public:
  Numbers(const Plan& plan, const Bitmaps& bitmaps)
      : plan_(plan),
        bitmaps_(bitmaps),
        next_(kFirstBitmap + static_cast<int64_t>(bitmaps.words.size()) /
                                 std::max<int64_t>(bitmaps.words_per_tile, 1)) {
  }

  // Of row r and column c of the forward list.
  int64_t number_of(int64_t list, int64_t r, int64_t c) {
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
    const auto [known, added] = corners_.try_emplace(corner, next_);
    next_ += added;
    return known->second;
  }

  using Corner = std::pair<int64_t, int64_t>;  // queries, keys
  const std::map<Corner, int64_t>& corners() const { return corners_; }
  int64_t count() const { return next_; }

 private:
  const Plan& plan_;
  const Bitmaps& bitmaps_;
  int64_t next_;
  std::map<Corner, int64_t> corners_;
};

}  // namespace

Result<TileBits> make_tile_bits(const Batch::State& batch, const Steps& steps,
                                const MosaicKernel& kernel) {
  const Plan& plan = batch.plan;
  const KernelShape s = tile_shape(kernel);
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
  TileBits out;
  out.of_step.assign(static_cast<size_t>(kernel.steps), kNoPairs);
  Numbers numbers(plan, *bitmaps);
  for (size_t list = 0; list + 1 < steps.range.size(); ++list) {
    for (size_t i = steps.range[list]; i < steps.range[list + 1]; ++i) {
      const Step& step = steps.steps[i];
      if (step.step_class() == 0) continue;
      const bool turned = kernel.call.backward;
      out.of_step[i] = static_cast<int32_t>(numbers.number_of(
          static_cast<int64_t>(list), turned ? step.column() : step.row(),
          turned ? step.row() : step.column()));
    }
  }
  if (numbers.count() > kernel.bitmaps) {
    return over_limit("mosaic",
                      "bitmaps of tiles must fit the kernel's {}, found {}",
                      kernel.bitmaps, numbers.count());
  }
  out.words.assign(
      static_cast<size_t>(kernel.bitmaps * s.bit_rows() * kernel.tile.q), 0);
  Writer writer(kernel, out.words);
  writer.add_corner(kAllPairs, plan.tile.q, plan.tile.kv);
  for (const auto& [corner, number] : numbers.corners()) {
    writer.add_corner(number, corner.first, corner.second);
  }
  // A tile's sides are multiples of 128: a query's bits are whole words.
  const int64_t line = plan.tile.kv / 64;
  const auto words = std::span<const uint64_t>(bitmaps->words);
  const int64_t lines = static_cast<int64_t>(words.size()) / line;
  for (int64_t i = 0; i < lines; ++i) {
    writer.add_query(kFirstBitmap + i / plan.tile.q, i % plan.tile.q,
                     words.subspan(static_cast<size_t>(i * line),
                                   static_cast<size_t>(line)));
  }
  return out;
}

}  // namespace tessera::mosaic
