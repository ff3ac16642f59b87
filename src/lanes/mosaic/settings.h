// lanes/mosaic/settings.h: the table behind mosaic_setting.
#pragma once

#include <cstdint>
#include <span>

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

std::span<const SettingRow> setting_rows();

}  // namespace tessera::mosaic
