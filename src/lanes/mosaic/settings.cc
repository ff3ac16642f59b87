// lanes/mosaic/settings.cc: looks a request up by what its contract holds.
#include "lanes/mosaic/settings.h"

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

const SettingRow* find_row(const Request& request, const AttentionCall& call,
                           int64_t keys) {
  if (request.q_len < 1 || request.kv_len < 1) return nullptr;
  const int64_t tokens = bucket(request.kv_len);
  if (request.masks.size() != 1 || bucket(request.q_len) != tokens ||
      call.shape.head_dim != 128 || call.shape.v_head_dim != 128 ||
      call.dtype != Dtype::bf16) {
    return nullptr;
  }
  const auto rule = mosaic::rule_of(request.masks.front());
  if (!rule) return nullptr;
  const auto mask = class_of(*rule);
  if (keys <= 0 && !rule->documents && !rule->segments) {
    keys = mean_keys(*rule, tokens);
  }
  if (!mask || keys <= 0) return nullptr;
  const auto least =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(keys)));
  const auto found = std::ranges::find_if(kRows, [&](const SettingRow& row) {
    return row.backward == call.backward && row.mask == *mask &&
           tokens <= row.tokens && tokens > row.tokens / 4 && row.keys == least;
  });
  return found == std::end(kRows) ? nullptr : found;
}

}  // namespace

std::span<const SettingRow> mosaic::setting_rows() { return kRows; }

MosaicSetting mosaic_setting(const Request& request, const AttentionCall& call,
                             int64_t keys_per_query) {
  MosaicSetting out;
  if (call.backward) out = {kMosaicBackwardTile, kMosaicBackward, 0};
  if (const SettingRow* row = find_row(request, call, keys_per_query)) {
    out.tile = row->tile;
    out.options.tiles_per_pass = row->tiles_per_pass;
    out.keys = row->keys;
  }
  return out;
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
