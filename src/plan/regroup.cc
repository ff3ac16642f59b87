// plan/regroup.cc: groups neighbouring rows to share fetched key tiles.
#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "plan/well_formed.h"
#include "tessera/layouts.h"

namespace tessera {
namespace {

// Calls `at_column(column)` for every column of the union of the rows, in
// ascending order, while each row that has the column starts with it.
template <class AtColumn>
void merge(std::vector<std::span<const Entry>>& rows,
           const AtColumn& at_column) {
  constexpr int64_t kNone = kMaxTiles;
  for (;;) {
    int64_t column = kNone;
    for (const auto& row : rows) {
      if (!row.empty()) column = std::min(column, row.front().column());
    }
    if (column == kNone) return;
    at_column(column);
    for (auto& row : rows) {
      if (!row.empty() && row.front().column() == column) {
        row = row.subspan(1);
      }
    }
  }
}

// Visits the groups of all lists in order: `visit(list, first_row, rows)`.
template <class Visit>
void for_groups(const Worklist& w, int64_t rows_per_group, const Visit& visit) {
  std::vector<std::span<const Entry>> rows;
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows; r += rows_per_group) {
      rows.clear();
      for (int64_t i = r; i < std::min(r + rows_per_group, w.rows); ++i) {
        rows.push_back(w.row(l, i));
      }
      visit(l, r, rows);
    }
  }
}

}  // namespace

Result<Regrouped> regroup(const Worklist& w, int64_t rows_per_group,
                          int64_t tiles_per_step) {
  if (auto r = plan::check_worklist(w, "regroup"); !r) return r.error();
  if (rows_per_group < 1 || rows_per_group > kMaxGroupRows) {
    return invalid("regroup", "rows a group must be between 1 and {}, found {}",
                   kMaxGroupRows, rows_per_group);
  }
  if (tiles_per_step < 1 || tiles_per_step > kMaxTiles) {
    return invalid("regroup", "tiles a step must be between 1 and {}, found {}",
                   kMaxTiles, tiles_per_step);
  }
  // Counted first: sharing may need far less than tiles times rows.
  size_t columns = 0;
  size_t groups = 0;
  for_groups(w, rows_per_group, [&](int64_t, int64_t, auto& rows) {
    ++groups;
    merge(rows, [&](int64_t) { ++columns; });
  });
  const size_t slots = static_cast<size_t>(rows_per_group);
  if (columns * slots > kMaxLayoutBytes / sizeof(uint8_t)) {
    return over_limit("regroup",
                      "regrouped rows may hold {} class slots, found {} for {} "
                      "rows a group",
                      kMaxLayoutBytes, columns * slots, rows_per_group);
  }

  Regrouped out;
  out.rows_per_group = rows_per_group;
  out.tiles_per_step = tiles_per_step;
  out.group_start.assign(static_cast<size_t>(w.lists) + 1, 0);
  out.groups.reserve(groups);
  out.columns.reserve(columns);
  out.classes.assign(columns * slots, 0);
  for_groups(w, rows_per_group, [&](int64_t l, int64_t r, auto& rows) {
    Group g;
    g.first_row = static_cast<uint32_t>(r);
    g.rows = static_cast<uint32_t>(rows.size());
    g.begin = static_cast<uint32_t>(out.columns.size());
    merge(rows, [&](int64_t column) {
      uint8_t* classes = out.classes.data() + out.columns.size() * slots;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (!rows[i].empty() && rows[i].front().column() == column) {
          classes[i] = static_cast<uint8_t>(rows[i].front().tile_class());
        } else {
          ++out.dead_tiles;
        }
      }
      out.columns.push_back(static_cast<uint32_t>(column));
    });
    g.end = static_cast<uint32_t>(out.columns.size());
    const int64_t tiles = g.end - g.begin;
    out.steps += std::max<int64_t>(1, ceil_div(tiles, tiles_per_step));
    out.groups.push_back(g);
    out.group_start[static_cast<size_t>(l) + 1] =
        static_cast<uint32_t>(out.groups.size());
  });
  return out;
}

}  // namespace tessera
