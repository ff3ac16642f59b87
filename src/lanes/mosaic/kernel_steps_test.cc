// lanes/mosaic/kernel_steps_test.cc: cuts lists into chunks of queries.
#include "lanes/mosaic/kernel_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/step_word.h"
#include "tests/hold_for_all.h"

namespace tessera::mosaic {
namespace {

using testing::Fault;
using testing::hold_for_all;
using testing::RandomCase;

// Lists before and after they are cut.
struct Cut {
  const Steps& whole;
  const Steps& cut;
  int64_t rows, chunks, columns;
};

std::span<const Step> list_of(const Steps& steps, size_t list) {
  return std::span(steps.steps)
      .subspan(steps.range[list], steps.range[list + 1] - steps.range[list]);
}

// A chunk has whole passes, column after column, of its own rows only.
Fault chunk_fault(const Cut& c, size_t list, int64_t turn) {
  const auto chunk = static_cast<size_t>(turn);
  const auto steps =
      list_of(c.cut, list * static_cast<size_t>(c.chunks) + chunk);
  if (steps.empty()) return "a chunk has no step";
  int64_t due = steps.front().row();
  int64_t in_column = 0;
  for (const Step& s : steps) {
    if (s.row() != due) return "a column is left out";
    if (s.first() != (in_column == 0)) return "a column begins elsewhere";
    if (s.column() / c.rows != turn) return "a row of another chunk";
    ++in_column;
    if (!s.last()) continue;
    if (in_column % c.whole.tiles_per_pass != 0) return "half a pass";
    in_column = 0;
    ++due;
  }
  if (in_column > 0) return "a column without an end";
  return {};
}

// Over the chunks, each column has its tiles in their order.
Fault tiles_fault(const Cut& c, size_t list) {
  const auto tiles = [&](const Steps& steps, size_t first, size_t end) {
    std::vector<std::vector<std::pair<int64_t, uint32_t>>> out(
        static_cast<size_t>(c.columns));
    for (size_t i = steps.range[first]; i < steps.range[end]; ++i) {
      const Step& s = steps.steps[i];
      if (s.step_class() == 0) continue;
      out[static_cast<size_t>(s.row())].emplace_back(s.column(),
                                                     s.step_class());
    }
    return out;
  };
  const auto chunks = static_cast<size_t>(c.chunks);
  if (tiles(c.whole, list, list + 1) !=
      tiles(c.cut, list * chunks, (list + 1) * chunks)) {
    return "other tiles";
  }
  return {};
}

// Each column begins in the first chunk that has it, and ends in the last.
Fault columns_fault(const Cut& c, size_t list) {
  const auto chunks = static_cast<size_t>(c.chunks);
  std::vector<int64_t> first(static_cast<size_t>(c.columns), -1), last = first;
  for (size_t turn = 0; turn < chunks; ++turn) {
    for (const Step& s : list_of(c.cut, list * chunks + turn)) {
      const auto at = static_cast<size_t>(s.row());
      if (first[at] < 0) first[at] = static_cast<int64_t>(turn);
      last[at] = static_cast<int64_t>(turn);
    }
  }
  if (std::ranges::count(first, -1) > 0) return "a column is in no chunk";
  for (size_t turn = 0; turn < chunks; ++turn) {
    const size_t at = list * chunks + turn;
    const auto steps = list_of(c.cut, at);
    const ChunkColumns found = chunk_columns(c.cut, at, chunks);
    if (found.first != steps.front().row()) return "another first column";
    if (found.end != steps.back().row() + 1) return "another end of columns";
    for (int64_t column = found.first; column < found.end; ++column) {
      const auto n = static_cast<size_t>(column);
      const auto here = static_cast<int64_t>(turn);
      if ((first[n] == here) != (column >= found.begins)) return "it begins";
      if ((last[n] == here) != (column < found.ends)) return "it ends";
    }
  }
  return {};
}

TEST(CutSteps, ChunksHaveEveryTileOnceAndRiseWithTheirColumns) {
  int64_t several = 0;
  hold_for_all(
      [&](const RandomCase& c) -> Fault {
        if (!testing::well_formed(c)) return {};
        auto request = c.request();
        if (!request) return {};
        const Facts facts = c.facts();
        auto batch = BorrowedBatch::make(*request, facts);
        if (!batch) return {};
        const Plan& plan = batch->plan();
        const auto whole =
            pack_steps(*batch, true, 1 + static_cast<int64_t>(c.seed % 4));
        if (!whole) return whole.error().message;
        const int64_t tiles = plan.transposed.columns;
        const int64_t rows = 1 + static_cast<int64_t>(c.seed / 4) % (tiles + 1);
        // Some chunks have no row, as in a kernel for larger lengths.
        const int64_t chunks =
            ceil_div(tiles, rows) + static_cast<int64_t>(c.seed / 64 % 3);
        const Steps cut = cut_steps(*whole, rows, chunks);
        const auto lists = static_cast<size_t>(plan.transposed.lists);
        if (cut.range.size() != lists * static_cast<size_t>(chunks) + 1) {
          return "other lists";
        }
        several += chunks > 1;
        const Cut made = {*whole, cut, rows, chunks, plan.transposed.rows};
        for (size_t list = 0; list < lists; ++list) {
          for (int64_t turn = 0; turn < chunks; ++turn) {
            if (auto f = chunk_fault(made, list, turn)) return f;
          }
          if (auto f = tiles_fault(made, list)) return f;
          if (auto f = columns_fault(made, list)) return f;
        }
        return {};
      },
      600);
  EXPECT_GT(several, testing::case_count(600) / 8);
}

// An example written out: 4 causal rows of tiles, two rows a chunk.
TEST(CutSteps, OfCausalRows) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 512;
  request.tile = {128, 128};
  const auto batch = BorrowedBatch::make(request, {});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const auto whole = pack_steps(*batch, true, 1);
  ASSERT_TRUE(whole.ok());
  const Steps cut = cut_steps(*whole, 2, 2);
  std::vector<std::pair<int64_t, int64_t>> tiles;
  for (const Step& s : cut.steps) tiles.emplace_back(s.row(), s.column());
  EXPECT_EQ(cut.range, (std::vector<uint32_t>{0, 3, 10}));
  EXPECT_EQ(tiles, (std::vector<std::pair<int64_t, int64_t>>{
                       {0, 0},
                       {0, 1},
                       {1, 1},  // the first two rows
                       {0, 2},
                       {0, 3},
                       {1, 2},
                       {1, 3},
                       {2, 2},
                       {2, 3},
                       {3, 3}}));
  const ChunkColumns first = chunk_columns(cut, 0, 2);
  EXPECT_EQ(first.end, 2);
  EXPECT_EQ(first.ends, 0);  // the next chunk has all columns
  const ChunkColumns second = chunk_columns(cut, 1, 2);
  EXPECT_EQ(second.begins, 2);
  EXPECT_EQ(second.ends, 4);
  // On a mesh a call's columns may begin later.
  Steps later = *whole;
  for (Step& s : later.steps) {
    s = plan::step_of(s.row() + 3, s.column(), s.step_class(), s.first(),
                      s.last());
  }
  const Steps moved = cut_steps(later, 2, 2);
  EXPECT_EQ(moved.range, cut.range);
  for (size_t i = 0; i < cut.steps.size(); ++i) {
    EXPECT_EQ(moved.steps[i].row(), cut.steps[i].row() + 3);
    EXPECT_EQ(moved.steps[i].column(), cut.steps[i].column());
  }
  EXPECT_EQ(chunk_columns(moved, 0, 2).first, 3);
  EXPECT_EQ(chunk_columns(moved, 1, 2).begins, 5);
  EXPECT_EQ(chunk_columns(moved, 1, 2).ends, 7);
}

}  // namespace
}  // namespace tessera::mosaic
