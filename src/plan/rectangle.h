// plan/rectangle.h: the size of a worklist's rectangle.
#pragma once

#include <string_view>

#include "tessera/layouts.h"

namespace tessera::plan {

// The number of cells of a rectangle of `width` cells a row. An error if a row
// of `w` is wider or the cells exceed kMaxLayoutBytes.
Result<int64_t> count_cells(const Worklist& w, int64_t width,
                            std::string_view where);

}  // namespace tessera::plan
