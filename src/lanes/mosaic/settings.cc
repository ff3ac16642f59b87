// lanes/mosaic/settings.cc: finds a request's row by what its contract holds.
#include "lanes/mosaic/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/rule.h"
#include "lanes/mosaic/vector_memory.h"
#include "mask/canonical.h"
#include "tessera/machine.h"

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
constexpr SettingRow kRowsAlone[] = {
#include "lanes/mosaic/settings_alone.inc"
};
constexpr SettingRow kRows64[] = {
#include "lanes/mosaic/settings_64.inc"
};
constexpr SettingRow kRows256[] = {
#include "lanes/mosaic/settings_256.inc"
};
constexpr SettingRow kRowsF32[] = {
#include "lanes/mosaic/settings_f32.inc"
};

std::optional<MaskClass> class_of(const Rule& rule) {
  if (rule.low) {
    if (!rule.high) return {};
    return kBand;
  }
  return rule.high ? kCausal : kOpen;
}

// Mean keys of a query, for n queries and n keys. Takes the bounds' classes
// instead of the bounds, so that all masks of one contract get one answer.
int64_t mean_keys(const Rule& rule, int64_t n) {
  // Pairs at distances 1 to d on one side: n - 1, n - 2, ...
  const auto side = [n](std::optional<int64_t> bound) {
    const int64_t d = bound ? std::min(mask::fold_bound(*bound), n - 1) : n - 1;
    return d * n - d * (d + 1) / 2;
  };
  const auto low = rule.low ? std::optional(-*rule.low) : std::nullopt;
  return (n + side(low) + side(rule.high)) / n;
}

// The rows for a request, for any number of keys. `keys` is 0 if neither the
// caller nor the mask says how many.
struct RowsOfCall {
  std::span<const SettingRow> table;
  MaskClass mask = MaskClass::causal;
  bool backward = false;
  int64_t tokens = 0;
  int64_t keys = 0;
  // Why the table has no rows for this request, if rows of others are used.
  std::string_view nearest;

  bool has(const SettingRow& row) const {
    return mask == row.mask && backward == row.backward &&
           tokens <= row.tokens && tokens > row.tokens / 4;
  }
};

// The chip of all tables.
constexpr std::string_view kTableChip = "v6e";

// The head dim of the table to use: the larger one, else the next in the
// tables; 0: none.
int64_t table_dim(const AttentionShape& s) {
  const auto found = std::ranges::lower_bound(
      mosaic::kTableDims, std::max(s.head_dim, s.v_head_dim));
  return found == std::end(mosaic::kTableDims) ? 0 : *found;
}

// Whether a forward pass takes fewer than kFew heads, for which there is a
// table. float32 has its own, as its heads always go one at a time.
bool goes_alone(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  constexpr int64_t kFew = 4;
  return !call.backward && call.dtype == Dtype::bf16 && s.kv_heads > 0 &&
         mosaic::heads_together(s.heads, s.heads / s.kv_heads,
                                mosaic::kMaxHeadsPerPass) < kFew;
}

std::span<const SettingRow> table_for(const AttentionCall& call) {
  const int64_t dim = table_dim(call.shape);
  if (dim > 0 && goes_alone(call)) return kRowsAlone;
  return mosaic::setting_rows(dim, call.dtype);
}

// The shortest and the longest length that the tables have rows for.
constexpr int64_t kMinRowTokens = 513, kMaxRowTokens = 131072;

// Measured were single masks of bounds and ids, with as many queries as keys.
// Other requests gain by these rows too: bitmaps cost a hundredth of a tile.
RowsOfCall rows_for(const Request& request, const AttentionCall& call,
                    int64_t keys) {
  if (request.q_len < 1 || request.kv_len < 1) return {};
  RowsOfCall out;
  out.table = table_for(call);
  out.backward = call.backward;
  const int64_t tokens = bucket(request.kv_len);
  out.tokens = std::clamp(tokens, kMinRowTokens, kMaxRowTokens);
  if (out.tokens != tokens) out.nearest = "has no rows of such lengths";
  if (bucket(request.q_len) != tokens) {
    out.nearest = "has no rows of fewer queries than keys";
  }
  std::optional<Rule> rule;
  if (request.masks.size() == 1) {
    rule = mosaic::rule_of(request.masks.front());
  }
  const auto mask = rule ? class_of(*rule) : std::nullopt;
  if (mask) {
    out.mask = *mask;
  } else {
    out.nearest = "has no rows of such masks";
  }
  if (keys <= 0 && rule && !rule->documents && !rule->segments) {
    keys = mean_keys(*rule, tokens);
  }
  out.keys = std::max<int64_t>(keys, 0);
  return out;
}

// The row of this many keys, else of the most that are fewer, else the first.
// Rows are sorted by rising keys.
const SettingRow* find_row(const RowsOfCall& rows) {
  if (rows.keys == 0) return nullptr;
  const auto least =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows.keys)));
  const SettingRow* found = nullptr;
  for (const SettingRow& row : rows.table) {
    if (rows.has(row) && (!found || row.keys <= least)) found = &row;
  }
  return found;
}

// The first of the rows with this tile.
const SettingRow* find_tile(const RowsOfCall& rows, const Tile& tile) {
  const auto found = std::ranges::find_if(
      rows.table,
      [&](const SettingRow& row) { return rows.has(row) && row.tile == tile; });
  return found == rows.table.end() ? nullptr : &*found;
}

MosaicSetting default_setting(const AttentionCall& call) {
  if (call.backward) return {kMosaicBackwardTile, kMosaicBackward, 0};
  return {};
}

// A number and, where it is open, its halves down to 1.
std::vector<int64_t> halves(int64_t n, bool open) {
  std::vector<int64_t> out;
  for (; n > 0; n /= 2) {
    out.push_back(n);
    if (!open) break;
  }
  return out;
}

// A tile, then tiles with the longer side halved each time, down to the
// granule; granule 0: the tile alone.
std::vector<Tile> halves(Tile tile, int64_t granule) {
  std::vector<Tile> out = {tile};
  while (granule > 0) {
    int64_t& side = tile.q > tile.kv ? tile.q : tile.kv;
    if (side / 2 < granule) break;
    side /= 2;
    out.push_back(tile);
  }
  return out;
}

constexpr std::string_view kNoRow = "the default: the table has no such row";
// For example with a mask that names documents, where the tile is open too.
constexpr std::string_view kNoKeys =
    "the default: nobody said how many keys a query sees";

std::string table_of(const AttentionCall& call) {
  if (goes_alone(call)) return "the table of heads alone";
  if (call.dtype == Dtype::f32) return "the table of float32";
  const AttentionShape& s = call.shape;
  const int64_t dim = table_dim(s);
  if (s.head_dim == dim && s.v_head_dim == dim) return "the table";
  return fmt::format("the table of head dim {}", dim);
}

std::string chosen_by(const MosaicSetting& setting, const AttentionCall& call,
                      const RowsOfCall& rows) {
  if (setting.keys == 0) return std::string(kNoRow);
  return fmt::format("{}, for {} keys a query{}{}", table_of(call),
                     setting.keys, rows.nearest.empty() ? "" : "; it ",
                     rows.nearest);
}

// Which heads the call has, if the tables were made for others; else "". They
// were made for one head, and for eight whose keys are their own. Calls with as
// many heads a pass count as these.
std::string_view other_heads(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  if (s.heads != s.kv_heads) return "heads with keys of their own";
  if (call.dtype == Dtype::f32) return "";  // one at a time
  const int64_t most = call.backward ? mosaic::kMaxBackwardHeadsPerPass
                                     : mosaic::kMaxHeadsPerPass;
  const int64_t together = mosaic::heads_together(s.heads, 1, most);
  if (goes_alone(call)) return together == 1 ? "" : "1 head";
  return together == most ? "" : "8 heads";
}

// Whether a table of head dim 128 serves another dim, unsaid by table_of().
bool is_of_other_dim(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  const bool is_of_128 = call.dtype == Dtype::f32 || goes_alone(call);
  return is_of_128 && (s.head_dim != 128 || s.v_head_dim != 128);
}

// The default setting, with the values of the row if there is one.
MosaicSetting setting_of(const AttentionCall& call, const SettingRow* row) {
  MosaicSetting out = default_setting(call);
  if (!row) return out;
  out.tile = row->tile;
  out.options.tiles_per_pass = row->tiles_per_pass;
  out.keys = row->keys;
  return out;
}

}  // namespace

std::span<const SettingRow> mosaic::setting_rows(int64_t head_dim,
                                                 Dtype dtype) {
  if (head_dim == 0) return {};
  if (dtype == Dtype::f32) return kRowsF32;
  if (dtype != Dtype::bf16) return {};
  if (head_dim == 64) return kRows64;
  if (head_dim == 128) return kRows;
  return head_dim == 256 ? std::span<const SettingRow>(kRows256)
                         : std::span<const SettingRow>();
}

MosaicSetting mosaic_setting(const Request& request, const AttentionCall& call,
                             int64_t keys_per_query) {
  return setting_of(call, find_row(rows_for(request, call, keys_per_query)));
}

mosaic::ChosenSetting mosaic::choose_setting(const Request& request,
                                             const AttentionCall& call,
                                             int64_t keys_per_query) {
  const RowsOfCall rows = rows_for(request, call, keys_per_query);
  const MosaicSetting found = setting_of(call, find_row(rows));
  if (rows.keys == 0 && !rows.table.empty()) {
    return {found, std::string(kNoKeys)};
  }
  return {found, chosen_by(found, call, rows)};
}

mosaic::ChosenSetting mosaic::choose_passes(const Request& request,
                                            const AttentionCall& call,
                                            int64_t keys_per_query) {
  const RowsOfCall rows = rows_for(request, call, keys_per_query);
  const SettingRow* row = find_row(rows);
  if (!row || row->tile != request.tile) row = find_tile(rows, request.tile);
  MosaicSetting out = setting_of(call, row);
  out.tile = request.tile;
  return {out, chosen_by(out, call, rows)};
}

std::string mosaic::borrowed_words(const MosaicSetting& setting,
                                   const AttentionCall& call,
                                   std::string_view target, bool on_mesh) {
  if (setting.keys == 0) return "";
  std::vector<std::string_view> of;
  const auto add = [&](bool is_other, std::string_view what) {
    if (is_other) of.push_back(what);
  };
  const auto chip = find_chip(target);
  add(chip && chip->name != kTableChip, kTableChip);
  add(on_mesh, "one device");
  add(setting.options.numbers == Numbers::any, "finite numbers");
  add(setting.options.row_sum == RowSum::rounded, "exact row sums");
  const std::string_view heads = other_heads(call);
  add(!heads.empty(), heads);
  add(is_of_other_dim(call), "head dim 128");
  add(call.shape.softcap != 0, "scores without a cap");
  if (of.empty()) return "";
  return fmt::format("; borrowed, for its rows are of {}", fmt::join(of, ", "));
}

mosaic::ChosenSetting mosaic::fit_setting(ChosenSetting found,
                                          const OpenSetting& open,
                                          std::string_view target,
                                          const FitsSetting& fits) {
  const auto chip = find_chip(target);
  const MosaicSetting asked = found.setting;
  if (!chip || fits(asked.tile, asked.options)) return found;
  MosaicOptions options = asked.options;
  for (const Tile& tile : halves(asked.tile, open.tile ? chip->granule : 0)) {
    for (const int64_t n : halves(asked.options.tiles_per_pass, open.passes)) {
      for (const int64_t ahead :
           halves(asked.options.fetch_ahead, open.ahead)) {
        options.tiles_per_pass = n;
        options.fetch_ahead = ahead;
        if (!fits(tile, options)) continue;
        found.setting.tile = tile;
        found.setting.options = options;
        found.chosen_by +=
            fmt::format("; the largest of it that fits the vector memory of {}",
                        chip->name);
        return found;
      }
    }
  }
  return found;
}

mosaic::ChosenSetting mosaic::fit_or_chunk(const ChosenSetting& found,
                                           const OpenSetting& open,
                                           const AttentionCall& call,
                                           std::string_view target,
                                           const FitsInChunks& fits) {
  bool in_chunks = false;
  const FitsSetting fit = [&](const Tile& tile, const MosaicOptions& options) {
    return fits(tile, options, in_chunks);
  };
  ChosenSetting whole = fit_setting(found, open, target, fit);
  if (!call.backward || fit(whole.setting.tile, whole.setting.options)) {
    return whole;
  }
  in_chunks = true;
  return fit_setting(found, open, target, fit);
}

mosaic::ChosenSetting mosaic::fit_setting(const ChosenSetting& found,
                                          const OpenSetting& open,
                                          const Request& request,
                                          const Facts& present,
                                          const AttentionCall& call,
                                          const std::string& target) {
  Request at = request;
  return fit_or_chunk(
      found, open, call, target,
      [&](const Tile& tile, const MosaicOptions& options, bool in_chunks) {
        at.tile = tile;
        return fits_vector_memory(at, present, call, target, options,
                                  in_chunks);
      });
}

mosaic::KernelTerms mosaic::terms_of(const XlaOptions& options) {
  return {options.lowering_reason, options.numbers, options.row_sum};
}

void mosaic::take_terms(const KernelTerms& terms, const AttentionCall& call,
                        MosaicOptions& options) {
  options.lowering_reason = terms.lowering_reason;
  options.numbers = call.sink_telemetry ? Numbers::finite : terms.numbers;
  const bool is_forward = !call.backward && !call.sink_telemetry;
  options.row_sum = is_forward ? terms.row_sum : RowSum::exact;
}

mosaic::ChosenSetting mosaic::fit_passes(const Request& request,
                                         const Facts& present,
                                         const AttentionCall& call,
                                         const std::string& target,
                                         const KernelTerms& terms) {
  ChosenSetting chosen = choose_passes(request, call);
  take_terms(terms, call, chosen.setting.options);
  chosen.chosen_by += borrowed_words(chosen.setting, call, target);
  return fit_setting(chosen, {}, request, present, call, target);
}

std::string mosaic::setting_words(const MosaicKernel& kernel,
                                  std::string_view chosen_by) {
  const int64_t chunk = kernel.query_chunk;
  return fmt::format(
      "{} tiles a pass{}: {}", kernel.options.tiles_per_pass,
      chunk == 0 ? "" : fmt::format(" in chunks of {} queries", chunk),
      chosen_by);
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
