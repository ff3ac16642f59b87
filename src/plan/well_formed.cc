// plan/well_formed.cc: checks a worklist in one linear pass.
#include "plan/well_formed.h"

#include "base/fail.h"
#include "base/integers.h"

namespace tessera::plan {
namespace {

Result<void> check_sizes(const Worklist& w, std::string_view where) {
  for (int64_t n : {w.lists, w.rows, w.columns}) {
    if (n < 0 || n > kMaxTiles) {
      return invalid(where,
                     "lists, rows and columns must be between 0 and {}, found "
                     "{}, {} and {}",
                     kMaxTiles, w.lists, w.rows, w.columns);
    }
  }
  // No product of two sizes up to kMaxTiles overflows.
  const int64_t starts = w.lists * w.rows + 1;
  if (static_cast<int64_t>(w.row_start.size()) != starts) {
    return invalid(where, "row starts must be {}, found {}", starts,
                   w.row_start.size());
  }
  if (w.row_start.front() != 0 || w.row_start.back() != w.entries.size()) {
    return invalid(where,
                   "row starts must go from 0 to {} entries, found {} to {}",
                   w.entries.size(), w.row_start.front(), w.row_start.back());
  }
  return {};
}

Result<void> check_grid(const Worklist& w, int64_t lists, int64_t rows,
                        int64_t columns, std::string_view what,
                        std::string_view where) {
  if (w.lists == lists && w.rows == rows && w.columns == columns) return {};
  return invalid(where,
                 "the {} list must be {} of {} rows and {} columns, found {} "
                 "of {} and {}",
                 what, lists, rows, columns, w.lists, w.rows, w.columns);
}

}  // namespace

Result<void> check_worklist(const Worklist& w, std::string_view where) {
  if (auto r = check_sizes(w, where); !r) return r;
  for (size_t row = 0; row + 1 < w.row_start.size(); ++row) {
    const uint32_t begin = w.row_start[row];
    const uint32_t end = w.row_start[row + 1];
    // The last start is the number of entries; an earlier one may exceed it.
    if (begin > end || end > w.entries.size()) {
      return invalid(where, "row starts must rise, found {} to {} for row {}",
                     begin, end, row);
    }
    int64_t before = -1;
    for (uint32_t at = begin; at < end; ++at) {
      const Entry e = w.entries[at];
      if (e.column() <= before || e.column() >= w.columns) {
        return invalid(where,
                       "columns must ascend below {}, found {} after {} for "
                       "row {}",
                       w.columns, e.column(), before, row);
      }
      before = e.column();
      if (e.tile_class() != TileClass::partial &&
          e.tile_class() != TileClass::full) {
        return invalid(where,
                       "classes in a list must be 1 or 2, found {} for row {}",
                       e.word & 3, row);
      }
    }
  }
  return {};
}

Result<void> check_plan(const Plan& plan, std::string_view where) {
  const auto in_range = [](int64_t n, int64_t most) {
    return n >= 1 && n <= most;
  };
  int64_t lists = 0;
  if (!in_range(plan.batch, kMaxBatch) || plan.heads < 1 ||
      __builtin_mul_overflow(plan.batch, plan.heads, &lists) ||
      !in_range(plan.q_len, kMaxTokens) || !in_range(plan.kv_len, kMaxTokens) ||
      !in_range(plan.tile.q, kMaxBlock) || !in_range(plan.tile.kv, kMaxBlock)) {
    return invalid(where,
                   "a plan's sizes must be those of a request, found batch {}, "
                   "heads {}, q_len {}, kv_len {}, tile {}x{}",
                   plan.batch, plan.heads, plan.q_len, plan.kv_len, plan.tile.q,
                   plan.tile.kv);
  }
  const int64_t rows = ceil_div(plan.q_len, plan.tile.q);
  const int64_t columns = ceil_div(plan.kv_len, plan.tile.kv);
  if (auto r = check_grid(plan.forward, lists, rows, columns, "forward", where);
      !r) {
    return r;
  }
  if (auto r = check_grid(plan.transposed, lists, columns, rows, "transposed",
                          where);
      !r) {
    return r;
  }
  if (static_cast<int64_t>(plan.legal_pairs.size()) != lists) {
    return invalid(where, "legal pairs must be counted for {} lists, found {}",
                   lists, plan.legal_pairs.size());
  }
  if (auto r = check_worklist(plan.forward, where); !r) return r;
  return check_worklist(plan.transposed, where);
}

}  // namespace tessera::plan
