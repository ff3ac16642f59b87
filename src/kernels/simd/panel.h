// kernels/simd/panel.h: how wide the panels of kernels are.
#pragma once

#include <cstdint>

namespace tessera::kernels {

// Numbers of a panel of any ISA: two of the widest vectors.
inline constexpr int64_t kMaxLanes = 32;

}  // namespace tessera::kernels
