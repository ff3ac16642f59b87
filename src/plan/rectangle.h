// plan/rectangle.h: the size of a worklist's rectangle.
#pragma once

#include <string_view>

#include "tessera/layouts.h"

namespace tessera::plan {

// The cells of a rectangle of this width: wide enough for every row, and within
// kMaxLayoutBytes.
Result<int64_t> count_cells(const Worklist& w, int64_t width,
                            std::string_view where);

}  // namespace tessera::plan
