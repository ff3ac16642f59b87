// lanes/mosaic/shard_steps_test.cc: which call of a device takes which step.
#include "lanes/mosaic/shard_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shape.h"
#include "plan/batch_state.h"
#include "tests/hold_for_all.h"
#include "tests/sharded_run.h"

namespace tessera::mosaic {
namespace {

using Fault = std::optional<std::string>;
using testing::ShardedCase;

// A device's steps at once, and split by calls.
struct Split {
  const Shards& shards;
  const Shard& shard;
  Steps whole;
  bool backward;
  std::vector<Turn> turns;
  std::vector<CallSteps> calls;

  int64_t own_columns() const { return shards.shapes.own_columns; }
  size_t lists() const { return whole.range.size() - 1; }
};

// Lists, or chunks of them, have whole rows or columns of whole passes one
// after another.
Fault form_fault(const Split& w, const CallSteps& c, size_t lists) {
  if (c.steps.range.size() != lists + 1) return "lists";
  for (size_t list = 0; list + 1 < c.steps.range.size(); ++list) {
    const size_t begin = c.steps.range[list], end = c.steps.range[list + 1];
    if (w.backward && begin == end) return "a list has no step";
    int64_t before = -1;
    for (size_t at = begin; at < end; ++at) {
      const Step& s = c.steps.steps[at];
      const bool starts = at == begin || c.steps.steps[at - 1].last();
      if (s.first() != starts) return "a run's marks";
      if (!starts) continue;
      if (at > begin && s.row() <= before) return "runs out of order";
      if (w.backward && at > begin && s.row() != before + 1) return "a gap";
      before = s.row();
    }
    if (end > begin && !c.steps.steps[end - 1].last()) return "an open run";
    if ((end - begin) % static_cast<size_t>(w.whole.tiles_per_pass) != 0) {
      return "half a pass";
    }
  }
  return {};
}

// A step that is no filler: list, row, column, class; `chunks` are those of
// each list.
using Key = std::array<int64_t, 4>;
std::multiset<Key> live_steps(const Steps& steps, int64_t shift,
                              size_t chunks = 1) {
  std::multiset<Key> out;
  for (size_t list = 0; list + 1 < steps.range.size(); ++list) {
    for (size_t at = steps.range[list]; at < steps.range[list + 1]; ++at) {
      const Step& s = steps.steps[at];
      if (s.step_class() == 0) continue;
      out.insert({static_cast<int64_t>(list / chunks), s.row() + shift,
                  s.column(), s.step_class()});
    }
  }
  return out;
}

// Every step is in exactly one call.
Fault steps_fault(const Split& w) {
  std::multiset<Key> all;
  for (size_t c = 0; c < w.calls.size(); ++c) {
    const auto own = live_steps(w.calls[c].steps, w.calls[c].shift);
    all.insert(own.begin(), own.end());
    for (const Key& k : own) {
      const int64_t column = w.backward ? k[1] : k[2];
      const int64_t row = w.backward ? k[2] : k[1];
      const bool came = column >= w.own_columns();
      if (w.backward && came != (w.turns[c] == Turn::late)) {
        return "a column in the wrong call";
      }
      if (w.turns[c] == Turn::early &&
          (came || row >= w.shards.shapes.own_rows)) {
        return "an early step needs what comes";
      }
    }
  }
  if (all != live_steps(w.whole, 0)) return "other steps";
  return {};
}

// Backward: heads that share keys add to one dK and dV, so that lists have the
// same columns in each call.
Fault columns_fault(const Split& w) {
  for (const CallSteps& call : w.calls) {
    std::set<int64_t> first;
    for (size_t list = 0; static_cast<int64_t>(list) < w.shard.lists; ++list) {
      std::set<int64_t> here;
      for (size_t i = call.steps.range[list]; i < call.steps.range[list + 1];
           ++i) {
        here.insert(call.steps.steps[i].row());
      }
      if (list == 0) first = here;
      if (here != first) return "a column that some lists have";
    }
  }
  return {};
}

// Backward: the rows that calls are told, by list.
Fault rows_fault(const Split& w) {
  const std::vector<CallSteps>& calls = w.calls;
  const auto room = static_cast<size_t>(kRowsHead) + w.shard.rows.size();
  for (size_t list = 0; list + 1 < w.whole.range.size(); ++list) {
    std::map<int64_t, std::vector<size_t>> calls_of_row;
    std::map<int64_t, std::vector<int32_t>> words_of_row;
    for (size_t c = 0; c < calls.size(); ++c) {
      const CallSteps& call = calls[c];
      if (call.rows.size() != room * (w.whole.range.size() - 1)) return "room";
      const auto at = call.rows.begin() + static_cast<int64_t>(list * room);
      std::set<int64_t> told;
      for (int64_t i = 0; i < at[0]; ++i) {
        const int32_t word = at[kRowsHead + i];
        if (!told.insert(word >> kRowShift).second) return "a row twice";
        words_of_row[word >> kRowShift].push_back(word);
      }
      std::set<int64_t> live;
      for (size_t i = call.steps.range[list]; i < call.steps.range[list + 1];
           ++i) {
        const Step& s = call.steps.steps[i];
        if (!told.contains(s.column())) return "a step of a row not told";
        if (s.step_class() != 0) live.insert(s.column());
      }
      for (const int64_t row : live) calls_of_row[row].push_back(c);
      if (call.steps.steps[call.steps.range[list]].row() != at[1]) {
        return "the first column";
      }
    }
    const bool real = static_cast<int64_t>(list) < w.shard.lists;
    for (size_t r = 0; r < w.shard.rows.size(); ++r) {
      const auto row = static_cast<int64_t>(r);
      const auto found = calls_of_row.find(row);
      size_t due = found == calls_of_row.end() ? 0 : found->second.size();
      // A row without a key begins and ends in a call too.
      if (due == 0 && real && w.shard.computes[r]) due = 1;
      // A row that a call only loads and stores neither begins nor ends there.
      std::vector<int32_t> words;
      for (const int32_t word : words_of_row[row]) words.push_back(word & 3);
      if (words.size() > due) std::erase(words, 0);
      if (due > 0 && words.size() < due) return "a row is not told";
      if (due == 0) {
        if (!words.empty()) return "a row that no call has";
        continue;
      }
      if ((words.front() & kRowBegins) == 0) return "a row does not begin";
      if ((words.back() & kRowEnds) == 0) return "a row does not end";
      if (std::ranges::count_if(words, [](int32_t f) { return f & 2; }) != 1 ||
          std::ranges::count_if(words, [](int32_t f) { return f & 1; }) != 1) {
        return "a row begins or ends twice";
      }
    }
  }
  return {};
}

// Forward: a row begins in the first call that has it, and ends in the last.
Fault flags_fault(const Split& w) {
  const auto rows = static_cast<int64_t>(w.shard.rows.size());
  const int64_t room = kRowsHead + rows;
  for (size_t list = 0; list + 1 < w.whole.range.size(); ++list) {
    std::vector<std::vector<size_t>> calls_of_row(w.shard.rows.size());
    for (size_t c = 0; c < w.calls.size(); ++c) {
      const Steps& steps = w.calls[c].steps;
      std::set<int64_t> here;
      for (size_t i = steps.range[list]; i < steps.range[list + 1]; ++i) {
        here.insert(steps.steps[i].row());
      }
      for (const int64_t r : here) {
        calls_of_row[static_cast<size_t>(r)].push_back(c);
      }
    }
    const bool real = static_cast<int64_t>(list) < w.shard.lists;
    for (size_t r = 0; r < calls_of_row.size(); ++r) {
      const auto& has = calls_of_row[r];
      if (has.empty() == (real && w.shard.computes[r])) return "a row is lost";
      for (const size_t c : has) {
        const auto at = static_cast<int64_t>(list) * room + kRowsHead;
        const int32_t word = w.calls[c].rows[static_cast<size_t>(at) + r];
        if (word >> kRowShift != static_cast<int32_t>(r)) return "a number";
        if (((word & kRowBegins) != 0) != (c == has.front())) return "begins";
        if (((word & kRowEnds) != 0) != (c == has.back())) return "ends";
      }
    }
  }
  return {};
}

Fault fault_of(const Split& w) {
  if (w.calls.size() != w.turns.size()) return "calls";
  if (w.calls.size() == 1) {
    return w.calls[0].steps.steps == w.whole.steps ? Fault() : "one call";
  }
  for (const CallSteps& call : w.calls) {
    if (auto e = form_fault(w, call, w.lists())) return e;
  }
  if (auto e = steps_fault(w)) return e;
  if (!w.backward) return flags_fault(w);
  if (auto e = columns_fault(w)) return e;
  return rows_fault(w);
}

// Backward: the same calls in chunks of queries.
struct Cut {
  const Split& w;
  const std::vector<CallSteps>& calls;
  size_t rows, chunks;  // of a chunk, of a list
};

std::span<const Step> list_of(const Steps& steps, size_t list) {
  return std::span(steps.steps)
      .subspan(steps.range[list], steps.range[list + 1] - steps.range[list]);
}

// A list's chunks have all its columns, in rising order.
Fault chunk_columns_fault(const Cut& c, size_t call, size_t list) {
  const auto whole = list_of(c.w.calls[call].steps, list);
  int64_t first = whole.front().row(), end = first;
  for (size_t k = 0; k < c.chunks; ++k) {
    const auto steps = list_of(c.calls[call].steps, list * c.chunks + k);
    if (steps.front().row() < first || steps.front().row() > end) {
      return "a chunk begins elsewhere";
    }
    if (k == 0 && steps.front().row() != first) return "the first chunk";
    if (steps.back().row() + 1 < end) return "a chunk ends before";
    first = steps.front().row();
    end = steps.back().row() + 1;
    for (const Step& s : steps) {
      if (static_cast<size_t>(s.column()) / c.rows != k) {
        return "a row of another chunk";
      }
    }
  }
  if (end != whole.back().row() + 1) return "the last chunk";
  return {};
}

// The row words of a call's list number `at`.
std::vector<int32_t> told_rows(const CallSteps& call, size_t rows, size_t at) {
  const auto room = static_cast<size_t>(kRowsHead) + rows;
  const auto words = std::span(call.rows).subspan(at * room, room);
  const auto own = words.subspan(static_cast<size_t>(kRowsHead),
                                 static_cast<size_t>(words[0]));
  return {own.begin(), own.end()};
}

// A chunk is told those of its rows that the list is told without chunks. If
// there are none, its first row is loaded and stored.
Fault chunk_rows_fault(const Cut& c, size_t call, size_t list) {
  const CallSteps& cut = c.calls[call];
  const CallSteps& whole = c.w.calls[call];
  std::vector<int32_t> all = told_rows(whole, c.w.shard.rows.size(), list);
  const bool live = std::ranges::any_of(
      list_of(whole.steps, list), [](Step s) { return s.step_class() != 0; });
  if (!live && all == std::vector<int32_t>{0}) all.clear();
  for (size_t k = 0; k < c.chunks; ++k) {
    std::vector<int32_t> due;
    for (const int32_t word : all) {
      if (static_cast<size_t>(word >> kRowShift) / c.rows == k) {
        due.push_back(word);
      }
    }
    if (due.empty()) due = {static_cast<int32_t>(k * c.rows) << kRowShift};
    const size_t at = list * c.chunks + k;
    if (told_rows(cut, c.rows, at) != due) return "a chunk is told other rows";
    for (const Step& s : list_of(cut.steps, at)) {
      if (std::ranges::none_of(due, [&](int32_t word) {
            return word >> kRowShift == s.column();
          })) {
        return "a step of a row that its chunk is not told";
      }
    }
  }
  return {};
}

Fault cut_fault(const Cut& c) {
  const Split& w = c.w;
  if (c.calls.size() != w.calls.size()) return "calls in chunks";
  for (size_t call = 0; call < c.calls.size(); ++call) {
    const CallSteps& cut = c.calls[call];
    const CallSteps& whole = w.calls[call];
    const size_t lists = w.lists() * c.chunks;
    if (auto e = form_fault(w, cut, lists)) return e;
    if (cut.shift != whole.shift) return "another shift";
    if (live_steps(cut.steps, 0, c.chunks) != live_steps(whole.steps, 0)) {
      return "other steps in chunks";
    }
    const size_t room = whole.rows.empty() ? 0 : kRowsHead + c.rows;
    if (cut.rows.size() != room * lists) return "room for a chunk's rows";
    for (size_t list = 0; list < w.lists(); ++list) {
      if (auto e = chunk_columns_fault(c, call, list)) return e;
      if (room == 0) continue;
      if (auto e = chunk_rows_fault(c, call, list)) return e;
    }
  }
  return {};
}

// Checks chunks of one to all rows.
Fault chunks_fault(const Split& w, const Batch& batch,
                   const VetoedTiles& vetoed, size_t shard, MosaicKernel kernel,
                   uint64_t seed) {
  const auto all = static_cast<uint64_t>(w.shards.shapes.rows);
  const uint64_t rows = 1 + seed / 6 % all;
  kernel.tile = w.shards.tile;
  kernel.q_len = w.shards.shapes.rows * kernel.tile.q;
  kernel.query_chunk = static_cast<int64_t>(rows) * kernel.tile.q;
  const auto calls =
      steps_of_calls(batch, vetoed, w.shards, shard, kernel, w.turns);
  if (!calls) return calls.error().message;
  const auto chunks = static_cast<size_t>(chunks_of(kernel));
  return cut_fault({w, *calls, static_cast<size_t>(rows), chunks});
}

Fault split_fault(const testing::RandomCase& plan) {
  const ShardedCase c = testing::random_sharded(plan);
  auto request = plan.request();
  if (!request) return request.error().message;
  auto batch = BorrowedBatch::make(*request, plan.facts());
  if (!batch) return batch.error().message;
  auto shards = make_shards(*batch, c.mesh, c.options);
  if (!shards) return shards.error().message;
  const auto read = plan::read_batch(*batch, "test");
  if (!read) return read.error().message;
  const VetoedTiles vetoed = vetoed_tiles((*read)->sweep.bound);
  const xla::ShardFrame frame = xla::frame_of(*shards);
  for (const bool backward : {false, true}) {
    MosaicKernel kernel;
    kernel.call.backward = backward;
    kernel.options.tiles_per_pass = 1 + static_cast<int64_t>(plan.seed / 2 % 3);
    for (size_t s = 0; s < shards->shards.size(); ++s) {
      auto whole = shard_steps(*batch, vetoed, *shards, s, kernel);
      if (!whole) return whole.error().message;
      const std::vector<Turn> turns = turns_of(frame, backward);
      auto calls = steps_of_calls(*batch, vetoed, *shards, s, kernel, turns);
      if (!calls) return calls.error().message;
      const Split split = {
          *shards, shards->shards[s], std::move(whole->front()), backward,
          turns,   std::move(*calls)};
      Fault fault = fault_of(split);
      if (!fault && backward && shards->shapes.rows > 0) {
        fault = chunks_fault(split, *batch, vetoed, s, kernel, plan.seed);
      }
      if (!fault) continue;
      return describe(c) + (backward ? ", backward" : ", forward") +
             ", shard " + std::to_string(s) + ": " + *fault;
    }
  }
  return {};
}

TEST(ShardSteps, EachIsInOneCallThatIsToldItsRow) {
  testing::hold_for_all(split_fault, 400);
}

// A causal row over two devices: a fifth to a half of the second device's own
// work is early, cut where the fewest rows are split.
TEST(ShardSteps, TheEarlyCallHasAFifthToAHalfOfTheOwnWork) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 4096;
  request.tile = {128, 128};
  auto batch = OwnedBatch::make(request, {});
  ASSERT_TRUE(batch) << batch.error().message;
  ShardOptions options;
  options.balance = Balance::contiguous;
  options.shape = {2, 1, 128, 128, {}, 0};
  auto shards = make_shards(*batch, *parse_mesh("seq=2"), options);
  ASSERT_TRUE(shards) << shards.error().message;
  const auto read = plan::read_batch(*batch, "test");
  ASSERT_TRUE(read);
  MosaicKernel kernel;
  kernel.call.backward = true;
  kernel.options.tiles_per_pass = 1;
  const auto made =
      steps_of_calls(*batch, vetoed_tiles((*read)->sweep.bound), *shards, 1,
                     kernel, {Turn::early, Turn::late, Turn::last});
  ASSERT_TRUE(made) << made.error().message;
  const std::vector<CallSteps>& calls = *made;
  ASSERT_EQ(calls.size(), 3U);
  // Own columns have 16, 15, ... rows, 136 in all. Each further column splits
  // one row less; with a fifth column the share would exceed a half.
  EXPECT_EQ(calls[0].steps.steps.size(), 16U + 15 + 14 + 13);
  EXPECT_EQ(calls[1].steps.steps.size(), 16U * 16);
  EXPECT_EQ(calls[2].steps.steps.size(), 136U - 58);
  EXPECT_EQ(calls[2].rows[1], 4);
}

}  // namespace
}  // namespace tessera::mosaic
