// plan/steps.cc: worklists as packed 32-bit steps.
#include "plan/steps.h"

#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "plan/batch_state.h"
#include "plan/step_word.h"
#include "plan/well_formed.h"

namespace tessera {
namespace {

// An error that names a step by its number and fields.
template <class... Args>
Error bad_step(const Steps& steps, size_t at, std::string_view rule) {
  const Step s = steps.steps[at];
  return invalid("steps",
                 "{}, found row {}, column {}, class {}, first {:d}, last {:d} "
                 "for step {}",
                 rule, s.row(), s.column(), s.step_class(), s.first(), s.last(),
                 at);
}

// Checks the ranges of all lists before memory is allocated for them.
Result<void> check_ranges(const Steps& steps, int64_t rows, int64_t columns) {
  for (int64_t n : {rows, columns}) {
    if (n < 1 || n > kMaxStepRows) {
      return invalid("steps",
                     "tile rows and columns must be between 1 and {}, found {} "
                     "and {}",
                     kMaxStepRows, rows, columns);
    }
  }
  const std::vector<uint32_t>& range = steps.range;
  if (range.empty() || range.front() != 0 ||
      range.back() != steps.steps.size() ||
      !std::is_sorted(range.begin(), range.end())) {
    return invalid("steps", "ranges must rise from 0 to {} steps, found {}",
                   steps.steps.size(),
                   range.empty() ? "none" : fmt::to_string(range.back()));
  }
  if (steps.tiles_per_pass < 1 || steps.tiles_per_pass > kMaxTilesPerPass) {
    return invalid("steps", "tiles a pass must be between 1 and {}, found {}",
                   kMaxTilesPerPass, steps.tiles_per_pass);
  }
  // Every row has a step, so the steps given bound the row starts too.
  const auto lists = static_cast<int64_t>(range.size()) - 1;
  if (lists * rows > static_cast<int64_t>(steps.steps.size())) {
    return invalid("steps", "steps must be at least one a row, found {} for {}",
                   steps.steps.size(), lists * rows);
  }
  return {};
}

}  // namespace

int64_t step_count(const Worklist& w, int64_t tiles_per_pass) {
  int64_t steps = 0;
  for (size_t r = 0; r + 1 < w.row_start.size(); ++r) {
    const int64_t tiles =
        std::max<int64_t>(w.row_start[r + 1] - w.row_start[r], 1);
    steps += round_up(tiles, tiles_per_pass);
  }
  return steps;
}

Result<Steps> pack_steps(const Batch& batch, bool transposed,
                         int64_t tiles_per_pass) {
  auto read = plan::read_batch(batch, "steps");
  if (!read) return read.error();
  return plan::steps_of_plan((*read)->plan, transposed, tiles_per_pass);
}

Result<Steps> plan::steps_of_plan(const Plan& plan, bool transposed,
                                  int64_t tiles_per_pass) {
  if (tiles_per_pass < 1 || tiles_per_pass > kMaxTilesPerPass) {
    return invalid("steps", "tiles a pass must be between 1 and {}, found {}",
                   kMaxTilesPerPass, tiles_per_pass);
  }
  if (auto r = plan::check_plan(plan, "steps"); !r) return r.error();
  const Worklist& w = transposed ? plan.transposed : plan.forward;
  const int64_t most = std::max(w.rows, w.columns);
  if (most > kMaxStepRows) {
    return over_limit("steps",
                      "packed steps count at most {} tile rows or columns, "
                      "found {} (use a larger tile)",
                      kMaxStepRows, most);
  }
  const int64_t count = step_count(w, tiles_per_pass);
  constexpr int64_t kMaxSteps = kMaxLayoutBytes / int64_t{sizeof(Step)};
  if (count > kMaxSteps) {
    return over_limit("steps",
                      "packed steps may be {}, found {} of {} lists of {} rows",
                      kMaxSteps, count, w.lists, w.rows);
  }
  // A tile at or beyond these counts crosses q_len or kv_len.
  const int64_t whole_q = plan.q_len / plan.tile.q;
  const int64_t whole_kv = plan.kv_len / plan.tile.kv;
  const int64_t whole_rows = transposed ? whole_kv : whole_q;
  const int64_t whole_columns = transposed ? whole_q : whole_kv;

  Steps out;
  out.tiles_per_pass = tiles_per_pass;
  out.steps.reserve(static_cast<size_t>(count));
  out.range.reserve(static_cast<size_t>(w.lists) + 1);
  out.range.push_back(0);
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows; ++r) {
      const auto is_whole = [&](int64_t column) {
        return r < whole_rows && column < whole_columns;
      };
      plan::append_row(r, w.row(l, r), tiles_per_pass, is_whole, out.steps);
    }
    out.range.push_back(static_cast<uint32_t>(out.steps.size()));
  }
  return out;
}

Result<Worklist> list_from_steps(const Steps& steps, int64_t rows,
                                 int64_t columns) {
  if (auto e = check_ranges(steps, rows, columns); !e) return e.error();
  const std::vector<uint32_t>& range = steps.range;
  Worklist w;
  w.lists = static_cast<int64_t>(range.size()) - 1;
  w.rows = rows;
  w.columns = columns;
  w.row_start.reserve(static_cast<size_t>(w.lists * rows) + 1);
  w.row_start.push_back(0);
  w.entries.reserve(steps.steps.size());
  for (size_t l = 0; l + 1 < range.size(); ++l) {
    int64_t row = 0;
    int64_t before = -1;
    int64_t of_row = 0;    // steps of this row so far
    bool filling = false;  // only class 0 may follow
    for (size_t at = range[l]; at < range[l + 1]; ++at) {
      const Step s = steps.steps[at];
      if (s.row() != row || row >= rows) {
        return bad_step(steps, at, "rows must follow each other from 0");
      }
      if (s.first() != (before < 0)) {
        return bad_step(steps, at, "a row's first step is marked first");
      }
      if (s.step_class() == plan::kStepEmpty) {
        if (s.column() != std::max<int64_t>(before, 0)) {
          return bad_step(steps, at,
                          "a class 0 step names its row's last column, or 0");
        }
        // Class 0 only fills a pass begun by a tile or by an empty row.
        if (!s.first() && of_row % steps.tiles_per_pass == 0) {
          return bad_step(steps, at, "class 0 must not begin another pass");
        }
        filling = true;
      } else {
        if (filling || s.column() <= before || s.column() >= columns) {
          return bad_step(steps, at, "columns must ascend inside the grid");
        }
        w.entries.push_back(
            Entry::of(s.column(), static_cast<TileClass>(std::min<int64_t>(
                                      s.step_class(), plan::kStepFull))));
      }
      before = s.column();
      ++of_row;
      if (s.last()) {
        if (of_row % steps.tiles_per_pass != 0) {
          return bad_step(steps, at, "a row must fill its last pass");
        }
        of_row = 0;
        filling = false;
        w.row_start.push_back(static_cast<uint32_t>(w.entries.size()));
        ++row;
        before = -1;
      }
    }
    if (row != rows) {
      return invalid("steps",
                     "every row must end with a step marked last, found {} of "
                     "{} rows for list {}",
                     row, rows, l);
    }
  }
  return w;
}

}  // namespace tessera
