// kernels/simd/panel.h: the width of the kernels' panels.
#pragma once

#include <cstdint>

namespace tessera::kernels {

// Lanes of the widest panel: two vectors of the widest ISA.
inline constexpr int64_t kMaxLanes = 32;

}  // namespace tessera::kernels
