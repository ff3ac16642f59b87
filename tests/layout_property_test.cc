// tests/layout_property_test.cc: packed steps, rectangles and statistics of
// random plans are expanded and compared with brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/make_plan.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"
#include "tests/hold_for_all.h"
#include "tests/oracle.h"
#include "tests/random_case.h"

namespace tessera::testing {
namespace {

// The oracle's classes of one (batch row, head), transposed if asked, with 3
// for a full tile that crosses the end of the tokens.
struct Want {
  int64_t rows = 0;
  int64_t columns = 0;
  std::vector<int64_t> cells;

  int64_t at(int64_t r, int64_t col) const {
    return cells[static_cast<size_t>(r * columns + col)];
  }
};

Want wanted(const RandomCase& c, const Oracle& oracle, int64_t b, int64_t h,
            bool transposed) {
  const DenseClasses dense = oracle.classes(b, h);
  Want want;
  want.rows = transposed ? dense.columns : dense.rows;
  want.columns = transposed ? dense.rows : dense.columns;
  for (int64_t r = 0; r < want.rows; ++r) {
    for (int64_t col = 0; col < want.columns; ++col) {
      const int64_t i = transposed ? col : r;
      const int64_t j = transposed ? r : col;
      int64_t cell = static_cast<int64_t>(dense.at(i, j));
      const bool crosses =
          (i + 1) * c.tile.q > c.q_len || (j + 1) * c.tile.kv > c.kv_len;
      if (cell == 2 && crosses) cell = 3;
      want.cells.push_back(cell);
    }
  }
  return want;
}

// Checks the steps of a list: each row has its active tiles in ascending order,
// or one empty step, and marks on its first and last step.
Fault steps_fault(const Want& want, const Steps& steps, size_t list) {
  size_t at = steps.range[list];
  for (int64_t r = 0; r < want.rows; ++r) {
    std::vector<int64_t> columns;
    for (int64_t col = 0; col < want.columns; ++col) {
      if (want.at(r, col) != 0) columns.push_back(col);
    }
    const bool empty = columns.empty();
    if (empty) columns.push_back(0);
    for (size_t n = 0; n < columns.size(); ++n, ++at) {
      if (at >= steps.range[list + 1]) return "too few steps";
      const Step s = steps.steps[at];
      if (s.row() != r || (!empty && s.column() != columns[n]) ||
          s.step_class() != (empty ? 0 : want.at(r, columns[n])) ||
          s.first() != (n == 0) || s.last() != (n + 1 == columns.size())) {
        return "step " + std::to_string(at) + " of tile row " +
               std::to_string(r) + " is wrong";
      }
    }
  }
  return at == steps.range[list + 1] ? Fault() : "too many steps";
}

Fault rectangle_fault(const Want& want, const Rectangle& rectangle,
                      int64_t list) {
  for (int64_t r = 0; r < want.rows; ++r) {
    int64_t slot = (list * rectangle.rows + r) * rectangle.width;
    const int64_t end = slot + rectangle.width;
    for (int64_t col = 0; col < want.columns; ++col) {
      const int64_t cell = std::min<int64_t>(want.at(r, col), 2);
      if (cell == 0) continue;
      const auto at = static_cast<size_t>(slot);
      if (slot++ == end || rectangle.column[at] != col ||
          rectangle.tile_class[at] != cell) {
        return "rectangle row " + std::to_string(r) + " is wrong";
      }
    }
    for (; slot < end; ++slot) {
      const auto at = static_cast<size_t>(slot);
      if (rectangle.column[at] != 0 || rectangle.tile_class[at] != 0) {
        return "rectangle row " + std::to_string(r) + " is padded wrongly";
      }
    }
  }
  return std::nullopt;
}

Fault layout_fault(const RandomCase& c) {
  const Result<Request> request = c.request();
  if (!request.ok()) return request.error().message;
  const Facts facts = c.facts();
  const auto batch = BorrowedBatch::make(*request, facts);
  if (!batch.ok()) return batch.error().message;
  const Plan* const plan = &batch->plan();
  const Oracle oracle(c.masks, *request, facts);
  for (const bool transposed : {false, true}) {
    const Worklist& w = transposed ? plan->transposed : plan->forward;
    const Result<Steps> steps = pack_steps(*batch, transposed);
    if (!steps.ok()) return steps.error().message;
    // Some extra width; at least 1, since a list may have no tiles.
    const int64_t width =
        std::max<int64_t>(1, grid_width(w)) + static_cast<int64_t>(c.seed % 3);
    const Result<Rectangle> rectangle = make_rectangle(w, width);
    if (!rectangle.ok()) return rectangle.error().message;
    if (steps->range.size() != static_cast<size_t>(w.lists + 1) ||
        steps->range.back() != steps->steps.size() ||
        rectangle->width != width) {
      return "ranges or widths are wrong";
    }
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t h = 0; h < plan->heads; ++h) {
        const int64_t list = plan->list(b, h);
        const Want want = wanted(c, oracle, b, h, transposed);
        if (auto f = steps_fault(want, *steps, static_cast<size_t>(list))) {
          return f;
        }
        if (auto f = rectangle_fault(want, *rectangle, list)) return f;
      }
    }
  }
  return std::nullopt;
}

Fault statistics_fault(const RandomCase& c) {
  const Result<Request> request = c.request();
  if (!request.ok()) return request.error().message;
  const Facts facts = c.facts();
  const Result<Plan> plan = plan::make_plan(*request, facts);
  if (!plan.ok()) return plan.error().message;
  const Result<Statistics> found =
      make_statistics(*BorrowedBatch::make(*request, facts));
  if (!found.ok()) return found.error().message;
  const Oracle oracle(c.masks, *request, facts);
  Statistics want;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < plan->heads; ++h) {
      const DenseClasses dense = oracle.classes(b, h);
      want.pairs_needed += dense.legal_pairs;
      want.pairs_total += c.q_len * c.kv_len;
      for (int64_t r = 0; r < dense.rows; ++r) {
        int64_t active = 0;
        for (int64_t col = 0; col < dense.columns; ++col) {
          ++want.tiles_total;
          const TileClass cell = dense.at(r, col);
          if (cell == TileClass::empty) continue;
          ++active;
          want.tiles_partial += cell == TileClass::partial;
          want.tiles_full += cell == TileClass::full;
          // A ragged tile is paid for by its real tokens.
          want.pairs_paid += std::min(c.tile.q, c.q_len - r * c.tile.q) *
                             std::min(c.tile.kv, c.kv_len - col * c.tile.kv);
        }
        want.tiles_active += active;
        want.empty_rows += active == 0;
        want.grid_width = std::max(want.grid_width, active);
        ++want.row_histogram[active];
      }
    }
  }
  if (found->tiles_total != want.tiles_total ||
      found->tiles_active != want.tiles_active ||
      found->tiles_partial != want.tiles_partial ||
      found->tiles_full != want.tiles_full ||
      found->pairs_total != want.pairs_total ||
      found->pairs_needed != want.pairs_needed ||
      found->pairs_paid != want.pairs_paid ||
      found->empty_rows != want.empty_rows ||
      found->grid_width != want.grid_width ||
      found->row_histogram != want.row_histogram) {
    return "statistics are not what brute force counts";
  }
  return std::nullopt;
}

TEST(LayoutProperty, StepsAndRectanglesExpandToBruteForce) {
  hold_for_all(layout_fault, 1000);
}

TEST(LayoutProperty, StatisticsAreWhatBruteForceCounts) {
  hold_for_all(statistics_fault, 1000);
}

}  // namespace
}  // namespace tessera::testing
