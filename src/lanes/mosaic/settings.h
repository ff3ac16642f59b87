// lanes/mosaic/settings.h: the table behind mosaic_setting, and what a kernel
// takes of it.
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

// The best of what was tried for batches like these, by predicted cycles:
// lengths up to `tokens` and above a quarter of it, whose queries see from
// `keys` to less than twice as many in the mean.
struct SettingRow {
  bool backward = false;
  MaskClass mask = MaskClass::causal;
  int64_t tokens = 0;
  int64_t keys = 0;
  Tile tile;
  int64_t tiles_per_pass = 0;
};

// Of kernels of bf16 whose head dims are both this one: 64, 128, 256; float32
// has one table, of 128, for all.
std::span<const SettingRow> setting_rows(int64_t head_dim,
                                         Dtype dtype = Dtype::bf16);
inline constexpr int64_t kTableDims[] = {64, 128, 256};

// What a kernel takes where not all of it was said, and who chose that.
struct ChosenSetting {
  MosaicSetting setting;
  std::string chosen_by;
};
// Tile and tiles a pass are both open: mosaic_setting's.
ChosenSetting choose_setting(const Request& request, const AttentionCall& call,
                             int64_t keys_per_query);
// The request's tile stands, as that of a batch that is planned; tiles a pass
// are those of the table's row with this tile: the row of so many keys, or the
// first where they are not known. It reads what a contract holds alone.
ChosenSetting choose_passes(const Request& request, const AttentionCall& call,
                            int64_t keys_per_query = 0);

// Behind who chose: of what kernels the row is, as far as this one, for the
// target, is none of them. "" where it is, and of the default.
std::string borrowed_words(const MosaicSetting& setting,
                           const AttentionCall& call, std::string_view target,
                           bool on_mesh = false);

// What of a setting nobody said, so that less of it may be taken.
struct OpenSetting {
  bool tile = false, passes = true, ahead = true;
};
using FitsSetting = std::function<bool(const Tile&, const MosaicOptions&)>;

// The setting, where it fits; else the largest of what is open that does: the
// larger tile, then more tiles a pass, then further ahead, each a half of the
// one before, tiles down to the target's granule. Where none fits it stays, and
// its kernel is refused.
ChosenSetting fit_setting(ChosenSetting found, const OpenSetting& open,
                          std::string_view target, const FitsSetting& fits);
// The same; backward with dQ of all queries, or, where none fits so, in chunks
// of them.
using FitsInChunks =
    std::function<bool(const Tile&, const MosaicOptions&, bool in_chunks)>;
ChosenSetting fit_or_chunk(const ChosenSetting& found, const OpenSetting& open,
                           const AttentionCall& call, std::string_view target,
                           const FitsInChunks& fits);
// That, by the vector memory of the target.
ChosenSetting fit_setting(const ChosenSetting& found, const OpenSetting& open,
                          const Request& request, const Facts& present,
                          const AttentionCall& call, const std::string& target);

// What a caller says of all kernels of a call.
struct KernelTerms {
  std::optional<std::string> lowering_reason = {};
  Numbers numbers = Numbers::finite;
  RowSum row_sum = RowSum::exact;  // of the forward one
};
KernelTerms terms_of(const XlaOptions& options);
// Of the call's own kernel: that of sink telemetry has neither of the last.
void take_terms(const KernelTerms& terms, const AttentionCall& call,
                MosaicOptions& options);

// Of a batch that is planned, where nobody said more: choose_passes' as far as
// it fits.
ChosenSetting fit_passes(const Request& request, const Facts& present,
                         const AttentionCall& call, const std::string& target,
                         const KernelTerms& terms);

// As a receipt has it.
std::string setting_words(const MosaicKernel& kernel,
                          std::string_view chosen_by);

}  // namespace tessera::mosaic
