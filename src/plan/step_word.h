// plan/step_word.h: packs one step.
#pragma once

#include <cstdint>

#include "tessera/layouts.h"

namespace tessera::plan {

// Classes of a step beside partial; a full one may cross q_len or kv_len.
inline constexpr uint32_t kStepEmpty = 0;
inline constexpr uint32_t kStepFull = 2;
inline constexpr uint32_t kStepFullCrossing = 3;

inline Step step_of(int64_t row, int64_t column, uint32_t step_class,
                    bool first, bool last) {
  return {static_cast<uint32_t>(row) << 18 |
          static_cast<uint32_t>(column) << 4 | step_class << 2 |
          static_cast<uint32_t>(first) << 1 | static_cast<uint32_t>(last)};
}

}  // namespace tessera::plan
