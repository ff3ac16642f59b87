// plan/flex.cc: FlexAttention's dense block lists from a plan's sparse ones.
#include "plan/flex.h"

#include <new>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "plan/batch_state.h"
#include "plan/well_formed.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "flex";

size_t index(int64_t i) { return static_cast<size_t>(i); }
std::optional<int64_t> product(int64_t a, int64_t b) {
  int64_t p = 0;
  if (__builtin_mul_overflow(a, b, &p)) return std::nullopt;
  return p;
}

// Fills lists row by row; blocks are pushed in ascending order within a row.
class Builder {
 public:
  Builder(FlexLists& lists, int64_t rows, int64_t columns)
      : lists_(lists), columns_(columns) {
    lists.num_blocks.assign(index(rows), 0);
    lists.indices.resize(index(rows * columns));
  }

  void push(int64_t row, int64_t column) {
    int32_t& count = lists_.num_blocks[index(row)];
    lists_.indices[index(row * columns_ + count)] =
        static_cast<int32_t>(column);
    ++count;
  }

  // Writes begin, begin + 1, ..., end - 1.
  static int32_t* ascend(int32_t* out, int32_t begin, int32_t end) {
    std::iota(out, out + (end - begin), begin);
    return out + (end - begin);
  }

  // Appends to each row the blocks that were not pushed.
  void finish() {
    int32_t* row = lists_.indices.data();
    for (const int32_t count : lists_.num_blocks) {
      int32_t* out = row + count;
      int32_t next = 0;
      for (const int32_t* listed = row; listed != row + count; ++listed) {
        out = ascend(out, next, *listed);
        next = *listed + 1;
      }
      ascend(out, next, static_cast<int32_t>(columns_));
      row += columns_;
    }
  }

 private:
  FlexLists& lists_;
  int64_t columns_;
};

FlexBlockMask fill(const Plan& plan, int64_t heads, FlexBlockMask out) {
  const Worklist& w = plan.forward;
  out.batch = plan.batch;
  out.heads = heads;
  out.rows = w.rows;
  out.columns = w.columns;
  const int64_t lists = plan.batch * heads;
  Builder kv(out.kv, lists * w.rows, w.columns);
  Builder full_kv(out.full_kv, lists * w.rows, w.columns);
  Builder q(out.q, lists * w.columns, w.rows);
  Builder full_q(out.full_q, lists * w.columns, w.rows);
  for (int64_t b = 0; b < plan.batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t list = b * heads + h;
      const int64_t from = plan.list(b, h / (heads / plan.heads));
      for (int64_t r = 0; r < w.rows; ++r) {
        const bool whole_row = (r + 1) * plan.tile.q <= plan.q_len;
        for (const Entry& e : w.row(from, r)) {
          const int64_t c = e.column();
          const bool whole = whole_row && (c + 1) * plan.tile.kv <= plan.kv_len;
          const bool full = whole && e.tile_class() == TileClass::full;
          (full ? full_kv : kv).push(list * w.rows + r, c);
          (full ? full_q : q).push(list * w.columns + c, r);
        }
      }
    }
  }
  for (Builder* b : {&kv, &full_kv, &q, &full_q}) b->finish();
  return out;
}

}  // namespace

Result<FlexBlockMask> make_flex(const Batch& batch, int64_t heads,
                                FlexBlockMask* before) {
  auto read = plan::read_batch(batch, kWhere);
  if (!read) return read.error();
  return plan::flex_of_plan((*read)->plan, heads, before);
}

Result<FlexBlockMask> plan::flex_of_plan(const Plan& plan, int64_t heads,
                                         FlexBlockMask* before) {
  if (auto r = plan::check_plan(plan, kWhere); !r) return r.error();
  if (heads == 0) heads = plan.heads;
  if (heads < 1 || heads % plan.heads != 0) {
    return invalid(kWhere,
                   "heads must be a multiple of the plan's heads, found {} for "
                   "{}",
                   heads, plan.heads);
  }
  const Worklist& w = plan.forward;
  const auto tiles = product(w.rows, w.columns);
  const auto lists = product(plan.batch, heads);
  const auto cells =
      tiles && lists ? product(*tiles, *lists) : std::optional<int64_t>();
  if (!cells || *cells > kMaxTiles) {
    return over_limit(kWhere,
                      "a BlockMask holds at most {} indices an array, found "
                      "{} batch rows of {} heads of {} x {} blocks",
                      kMaxTiles, plan.batch, heads, w.rows, w.columns);
  }
  try {
    return fill(plan, heads,
                before == nullptr ? FlexBlockMask{} : std::move(*before));
  } catch (const std::bad_alloc&) {
    return over_limit(kWhere,
                      "four arrays of {} indices must fit in memory, found "
                      "too little",
                      *cells);
  }
}

}  // namespace tessera
