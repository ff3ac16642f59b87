// picture/rows.h: what packed rows are like, as SVG.
#pragma once

#include <string>

#include "data/row_stats.h"

namespace tessera::picture {

// How full rows are, what attention over each costs, how many documents each
// has, and all tiles by class. `title` is escaped here.
std::string draw_rows(const data::RowStats& stats, std::string_view title);

}  // namespace tessera::picture
