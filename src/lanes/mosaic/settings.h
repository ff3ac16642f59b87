// lanes/mosaic/settings.h: the table behind mosaic_setting, and how a kernel's
// setting is chosen from it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tessera/mosaic.h"

namespace tessera::mosaic {

// Which bounds of key - position a mask has.
enum class MaskClass : uint8_t {
  causal,  // an upper one
  band,    // both
  open,    // none
};

// The best setting that was tried, by predicted cycles, for batches of lengths
// above tokens / 4 up to `tokens`, whose queries see in the mean from `keys` to
// less than 2 * keys keys.
struct SettingRow {
  bool backward = false;
  MaskClass mask = MaskClass::causal;
  int64_t tokens = 0;
  int64_t keys = 0;
  Tile tile;
  int64_t tiles_per_pass = 0;
};

// The table for bf16 kernels whose head dims are both `head_dim`: 64, 128 or
// 256. float32 has one table, made at 128, for all head dims.
std::span<const SettingRow> setting_rows(int64_t head_dim,
                                         Dtype dtype = Dtype::bf16);
inline constexpr int64_t kTableDims[] = {64, 128, 256};

// A setting, partly left open by the caller, and words on what chose it.
struct ChosenSetting {
  MosaicSetting setting;
  std::string chosen_by;
};
// Tile and tiles a pass are both open: returns mosaic_setting().
ChosenSetting choose_setting(const Request& request, const AttentionCall& call,
                             int64_t keys_per_query);
// The request's tile is fixed, as in a planned batch. Tiles a pass come from a
// row of the table with this tile: the row for keys_per_query, or the first one
// if that has another tile or is not known. Reads only what a contract holds.
ChosenSetting choose_passes(const Request& request, const AttentionCall& call,
                            int64_t keys_per_query = 0);

// Words to append to chosen_by: properties of the row's kernels that this
// kernel, for the target, lacks. "" if there are none, and for the default
// setting.
std::string borrowed_words(const MosaicSetting& setting,
                           const AttentionCall& call, std::string_view target,
                           bool on_mesh = false);

// Which parts of a setting the caller left open, so that they may be reduced.
struct OpenSetting {
  bool tile = false, passes = true, ahead = true;
};
using FitsSetting = std::function<bool(const Tile&, const MosaicOptions&)>;

// The setting if it fits; else the largest that fits with open parts halved,
// tiles down to the target's granule. A larger tile comes first, then more
// tiles a pass, then fetching further ahead. If none fits, the setting is
// returned as it was, and its kernel is refused.
ChosenSetting fit_setting(ChosenSetting found, const OpenSetting& open,
                          std::string_view target, const FitsSetting& fits);
// The same; backward first with dQ of all queries, then, if none fits, in
// chunks of queries.
using FitsInChunks =
    std::function<bool(const Tile&, const MosaicOptions&, bool in_chunks)>;
ChosenSetting fit_or_chunk(const ChosenSetting& found, const OpenSetting& open,
                           const AttentionCall& call, std::string_view target,
                           const FitsInChunks& fits);
// fit_or_chunk by the target's vector memory.
ChosenSetting fit_setting(const ChosenSetting& found, const OpenSetting& open,
                          const Request& request, const Facts& present,
                          const AttentionCall& call, const std::string& target);

// Options that a caller sets for all kernels of a call.
struct KernelTerms {
  std::optional<std::string> lowering_reason = {};
  Numbers numbers = Numbers::finite;
  RowSum row_sum = RowSum::exact;  // of the forward kernel
};
KernelTerms terms_of(const XlaOptions& options);
// Sets the terms that the call's kernel takes: sink telemetry takes neither
// `numbers` nor `row_sum`, backward no `row_sum`.
void take_terms(const KernelTerms& terms, const AttentionCall& call,
                MosaicOptions& options);

// The setting for a planned batch, where the caller set nothing else:
// choose_passes, reduced to fit.
ChosenSetting fit_passes(const Request& request, const Facts& present,
                         const AttentionCall& call, const std::string& target,
                         const KernelTerms& terms);

// The setting as a receipt states it.
std::string setting_words(const MosaicKernel& kernel,
                          std::string_view chosen_by);

}  // namespace tessera::mosaic
