// receipt/lowering.cc: fills and checks the lowering of a receipt.
#include "receipt/lowering.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "base/integers.h"
#include "plan/logical_block.h"
#include "tessera/machine.h"

namespace tessera::receipt {
namespace {

using Broken = std::optional<std::string>;

// The chip whose matrix unit took tiles; nothing if none did.
std::optional<Chip> chip_due(const Receipt& r, const std::string& executed) {
  if (!r.plugin) return {};
  if (executed == "mosaic" && !r.ran()) {
    auto chip = find_chip(r.plugin->device);
    if (!chip) return {};
    return *chip;
  }
  if (r.kind == Kind::training) {
    const auto attention = r.training.slots.find("attention");
    if (attention == r.training.slots.end() ||
        (attention->second != "mosaic" && attention->second != "worklist")) {
      return {};
    }
  } else if (executed != "mosaic" && executed != "splash" &&
             (executed != "xla" || r.method == "dense")) {
    return {};
  }
  return chip_of_device(r.plugin->device);
}

// Parses "256x128" or "256"; nothing if the text is not a tile.
std::optional<Tile> tile_of(std::string_view text) {
  const size_t cross = text.find('x');
  const auto side = [](std::string_view word, int64_t& out) {
    const char* const end = word.data() + word.size();
    const auto [at, error] = std::from_chars(word.data(), end, out);
    return error == std::errc() && at == end;
  };
  Tile out;
  const std::string_view keys =
      cross == std::string_view::npos ? text : text.substr(cross + 1);
  if (!side(text.substr(0, cross), out.q) || !side(keys, out.kv)) return {};
  return out;
}

// The tile that was asked for; nothing for chunked, which takes another one.
std::optional<Tile> tile_asked(const Receipt& r) {
  if (r.kind == Kind::training) return tile_of(r.training.tile);
  if (r.method == "chunked" || !r.request.tile) return {};
  return tile_of(*r.request.tile);
}

// The logical block that was asked for; sides of 0 stand for the tile's.
Tile block_asked(const Receipt& r) {
  const auto block = r.request.logical_block ? tile_of(*r.request.logical_block)
                                             : std::nullopt;
  return block.value_or(Tile{0, 0});
}

Broken tile_broken(const Receipt& r, const Receipt::Lowering& l,
                   const Tile& tile) {
  if (const auto asked = tile_asked(r); asked && *asked != tile) {
    return fmt::format("lowering.tile must be the request's, {}x{}", asked->q,
                       asked->kv);
  }
  const bool below =
      is_below_granule(tile, l.granule) ||
      is_below_granule(plan::block_or_tile(block_asked(r), tile), l.granule);
  if (below != l.reason.has_value()) {
    return "lowering.reason must be there for a tile or a logical block below "
           "the granule, and nowhere else";
  }
  if (l.reason && !check_lowering_reason("receipt", *l.reason)) {
    return fmt::format(
        "lowering.reason must be a line of 1 to {} bytes of printable UTF-8",
        kMaxLoweringReason);
  }
  return {};
}

Broken work_broken(const Receipt& r, const Receipt::Lowering& l,
                   const Tile& tile) {
  const PaidWork one = paid_work(tile, l.granule);
  if (l.factor != one.factor()) {
    return "lowering.factor must be that of tile and granule";
  }
  const int64_t tiles = r.kind == Kind::training
                            ? r.training.tiles_run
                            : ceil_div(r.pairs_run, one.pairs);
  int64_t due = 0;  // a product of claimed numbers may overflow
  if (__builtin_mul_overflow(tiles, one.paid, &due) || l.paid_pairs != due) {
    return "lowering.paid_pairs must be pairs.run in whole granules";
  }
  return {};
}

}  // namespace

Receipt::Lowering lowering_of(const Lowering& lowering, int64_t pairs) {
  const PaidWork one = paid_work(lowering.tile, lowering.granule);
  const PaidWork all =
      paid_work(lowering.tile, lowering.granule, ceil_div(pairs, one.pairs));
  return {
      lowering.chip,   lowering.granule, {lowering.tile.q, lowering.tile.kv},
      lowering.reason, one.factor(),     all.paid};
}

std::optional<std::string> lowering_contradiction(const Receipt& r,
                                                  const std::string& executed) {
  const auto chip = chip_due(r, executed);
  if (chip.has_value() != r.lowering.has_value()) {
    return "lowering must be there where a known TPU took tiles, and nowhere "
           "else";
  }
  if (!chip) return {};
  const Receipt::Lowering& l = *r.lowering;
  if (l.chip != chip->name || l.granule != chip->granule) {
    return fmt::format("lowering must be of {}, whose granule is {}",
                       chip->name, chip->granule);
  }
  // A chunked program's tile has all queries, rounded up to a bucket.
  if (l.tile.size() != 2 || l.tile[0] < 1 || l.tile[0] > 2 * kMaxTokens ||
      l.tile[1] < 1 || l.tile[1] > kMaxBlock) {
    return "lowering.tile must be queries and keys of a tile";
  }
  const Tile tile = {l.tile[0], l.tile[1]};
  if (auto broken = tile_broken(r, l, tile)) return broken;
  return work_broken(r, l, tile);
}

}  // namespace tessera::receipt
