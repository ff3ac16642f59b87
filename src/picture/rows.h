// picture/rows.h: statistics of packed rows, as SVG.
#pragma once

#include <string>

#include "data/row_stats.h"

namespace tessera::picture {

// Draws how full rows are, the cost of attention over each, the documents in
// each, and all tiles by class. `title` is escaped here.
std::string draw_rows(const data::RowStats& stats, std::string_view title);

}  // namespace tessera::picture
