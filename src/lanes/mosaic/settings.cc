// lanes/mosaic/settings.cc: looks a request up by what its contract holds.
#include "lanes/mosaic/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "lanes/mosaic/rule.h"
#include "mask/canonical.h"

namespace tessera {
namespace {

using mosaic::MaskClass;
using mosaic::Rule;
using mosaic::SettingRow;

constexpr auto kForward = false;
constexpr auto kBackward = true;
constexpr MaskClass kCausal = MaskClass::causal, kBand = MaskClass::band,
                    kOpen = MaskClass::open;
constexpr SettingRow kRows[] = {
#include "lanes/mosaic/settings.inc"
};

std::optional<MaskClass> class_of(const Rule& rule) {
  if (rule.low) {
    if (!rule.high) return {};
    return kBand;
  }
  return rule.high ? kCausal : kOpen;
}

// Of n queries and as many keys, with the bounds' classes in place of bounds:
// what one contract serves gets one answer.
int64_t mean_keys(const Rule& rule, int64_t n) {
  // Distances 1 to d on one side: n - 1 pairs, n - 2, ...
  const auto side = [n](std::optional<int64_t> bound) {
    const int64_t d = bound ? std::min(mask::fold_bound(*bound), n - 1) : n - 1;
    return d * n - d * (d + 1) / 2;
  };
  const auto low = rule.low ? std::optional(-*rule.low) : std::nullopt;
  return (n + side(low) + side(rule.high)) / n;
}

// The rows for a request, those of any number of keys: where nobody says how
// many and the mask does not either, `keys` is 0.
struct Rows {
  std::optional<MaskClass> mask;  // absent: there are none
  bool backward = false;
  int64_t tokens = 0;
  int64_t keys = 0;

  bool has(const SettingRow& row) const {
    return mask == row.mask && row.backward == backward &&
           tokens <= row.tokens && tokens > row.tokens / 4;
  }
};

Rows rows_for(const Request& request, const AttentionCall& call, int64_t keys) {
  if (request.q_len < 1 || request.kv_len < 1) return {};
  const int64_t tokens = bucket(request.kv_len);
  if (request.masks.size() != 1 || bucket(request.q_len) != tokens ||
      call.shape.head_dim != 128 || call.shape.v_head_dim != 128 ||
      call.dtype != Dtype::bf16) {
    return {};
  }
  const auto rule = mosaic::rule_of(request.masks.front());
  if (!rule) return {};
  if (keys <= 0 && !rule->documents && !rule->segments) {
    keys = mean_keys(*rule, tokens);
  }
  return {class_of(*rule), call.backward, tokens, std::max<int64_t>(keys, 0)};
}

const SettingRow* find_row(const Rows& rows) {
  if (rows.keys == 0) return nullptr;
  const auto least =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows.keys)));
  const auto found = std::ranges::find_if(kRows, [&](const SettingRow& row) {
    return rows.has(row) && row.keys == least;
  });
  return found == std::end(kRows) ? nullptr : found;
}

// The first of them with this tile.
const SettingRow* find_tile(const Rows& rows, const Tile& tile) {
  const auto found = std::ranges::find_if(kRows, [&](const SettingRow& row) {
    return rows.has(row) && row.tile == tile;
  });
  return found == std::end(kRows) ? nullptr : found;
}

MosaicSetting default_setting(const AttentionCall& call) {
  if (call.backward) return {kMosaicBackwardTile, kMosaicBackward, 0};
  return {};
}

std::string chosen_by(const MosaicSetting& setting) {
  if (setting.keys == 0) return "the default: the table has no such row";
  return fmt::format("the table, for {} keys a query", setting.keys);
}

}  // namespace

std::span<const SettingRow> mosaic::setting_rows() { return kRows; }

MosaicSetting mosaic_setting(const Request& request, const AttentionCall& call,
                             int64_t keys_per_query) {
  MosaicSetting out = default_setting(call);
  const SettingRow* row = find_row(rows_for(request, call, keys_per_query));
  if (row) {
    out.tile = row->tile;
    out.options.tiles_per_pass = row->tiles_per_pass;
    out.keys = row->keys;
  }
  return out;
}

mosaic::ChosenSetting mosaic::choose_setting(const Request& request,
                                             const AttentionCall& call,
                                             int64_t keys_per_query) {
  const MosaicSetting found = mosaic_setting(request, call, keys_per_query);
  return {found, chosen_by(found)};
}

mosaic::ChosenSetting mosaic::choose_passes(const Request& request,
                                            const AttentionCall& call,
                                            int64_t keys_per_query) {
  const Rows rows = rows_for(request, call, keys_per_query);
  const SettingRow* row = find_row(rows);
  if (!row || row->tile != request.tile) row = find_tile(rows, request.tile);
  MosaicSetting out = default_setting(call);
  out.tile = request.tile;
  if (row) {
    out.options.tiles_per_pass = row->tiles_per_pass;
    out.keys = row->keys;
  }
  return {out, chosen_by(out)};
}

int64_t keys_per_query(const Batch& batch) {
  const Plan& plan = batch.plan();
  double pairs = 0;
  for (const int64_t n : plan.legal_pairs) pairs += static_cast<double>(n);
  const double queries = static_cast<double>(plan.legal_pairs.size()) *
                         static_cast<double>(plan.q_len);
  return queries > 0 ? static_cast<int64_t>(pairs / queries) : 0;
}

}  // namespace tessera
