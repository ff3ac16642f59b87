// plan/rectangle.cc: a worklist as rows of one width, for grid kernels.
#include "plan/rectangle.h"

#include <algorithm>

#include "base/fail.h"
#include "plan/well_formed.h"

namespace tessera {
namespace {

constexpr int64_t kCellBytes = sizeof(int32_t) + sizeof(uint8_t);

// lists * rows * width, or -1 if the sizes are invalid or too large.
int64_t cells_of(int64_t lists, int64_t rows, int64_t width) {
  int64_t cells = 0;
  if (lists < 0 || rows < 0 || width < 0 || width > kMaxTiles ||
      __builtin_mul_overflow(lists, rows, &cells) || cells > kMaxTiles ||
      __builtin_mul_overflow(cells, width, &cells) ||
      cells > kMaxLayoutBytes / kCellBytes) {
    return -1;
  }
  return cells;
}

Error too_many_cells(int64_t lists, int64_t rows, int64_t width,
                     std::string_view where) {
  return over_limit(where,
                    "a rectangle may have {} cells in {} rows, found {} lists "
                    "of {} rows, {} wide",
                    kMaxLayoutBytes / kCellBytes, kMaxTiles, lists, rows,
                    width);
}

}  // namespace

int64_t grid_width(const Worklist& w) {
  uint32_t width = 0;
  for (size_t r = 0; r + 1 < w.row_start.size(); ++r) {
    width = std::max(width, w.row_start[r + 1] - w.row_start[r]);
  }
  return width;
}

Result<int64_t> plan::count_cells(const Worklist& w, int64_t width,
                                  std::string_view where) {
  const int64_t least = grid_width(w);
  if (width < least) {
    return invalid(where,
                   "width must be at least the {} tiles of the widest row, "
                   "found {}",
                   least, width);
  }
  const int64_t cells = cells_of(w.lists, w.rows, width);
  if (cells < 0) return too_many_cells(w.lists, w.rows, width, where);
  return cells;
}

Result<Rectangle> make_rectangle(const Worklist& w, int64_t width) {
  constexpr std::string_view kWhere = "rectangle";
  if (auto r = plan::check_worklist(w, kWhere); !r) return r.error();
  auto cells = plan::count_cells(w, width, kWhere);
  if (!cells) return cells.error();
  Rectangle out{w.lists, w.rows, width, {}, {}};
  out.column.assign(static_cast<size_t>(*cells), 0);
  out.tile_class.assign(static_cast<size_t>(*cells), 0);
  for (size_t r = 0; r + 1 < w.row_start.size(); ++r) {
    size_t at = r * static_cast<size_t>(width);
    for (uint32_t i = w.row_start[r]; i < w.row_start[r + 1]; ++i, ++at) {
      out.column[at] = static_cast<int32_t>(w.entries[i].column());
      out.tile_class[at] = static_cast<uint8_t>(w.entries[i].tile_class());
    }
  }
  return out;
}

Result<Worklist> list_from_rectangle(const Rectangle& r, int64_t columns) {
  if (columns < 0 || columns > kMaxTiles) {
    return invalid("rectangle", "columns must be between 0 and {}, found {}",
                   kMaxTiles, columns);
  }
  const int64_t cells = cells_of(r.lists, r.rows, r.width);
  if (cells < 0) return too_many_cells(r.lists, r.rows, r.width, "rectangle");
  if (static_cast<int64_t>(r.column.size()) != cells ||
      static_cast<int64_t>(r.tile_class.size()) != cells) {
    return invalid("rectangle",
                   "columns and classes must be {} each, found {} and {}",
                   cells, r.column.size(), r.tile_class.size());
  }
  Worklist w;
  w.lists = r.lists;
  w.rows = r.rows;
  w.columns = columns;
  const int64_t rows = r.lists * r.rows;
  w.row_start.reserve(static_cast<size_t>(rows) + 1);
  w.row_start.push_back(0);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t before = -1;
    bool padding = false;
    for (int64_t i = 0; i < r.width; ++i) {
      const auto at = static_cast<size_t>(row * r.width + i);
      const int64_t column = r.column[at];
      const int tile_class = r.tile_class[at];
      if (tile_class > 2) {
        return invalid("rectangle",
                       "classes must be 0, 1 or 2, found {} for cell {} of row "
                       "{}",
                       tile_class, i, row);
      }
      padding |= tile_class == 0;
      if (padding) {
        if (tile_class == 0 && column == 0) continue;
        return invalid("rectangle",
                       "after class 0 all cells of a row must be class 0 and "
                       "column 0, found class {} and column {} for cell {} of "
                       "row {}",
                       tile_class, column, i, row);
      }
      if (column <= before || column >= columns) {
        return invalid("rectangle",
                       "columns must ascend below {}, found {} after {} for "
                       "cell {} of row {}",
                       columns, column, before, i, row);
      }
      before = column;
      w.entries.push_back(
          Entry::of(column, static_cast<TileClass>(tile_class)));
    }
    w.row_start.push_back(static_cast<uint32_t>(w.entries.size()));
  }
  return w;
}

}  // namespace tessera
