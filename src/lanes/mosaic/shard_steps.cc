// lanes/mosaic/shard_steps.cc: assigns a device's steps to calls.
#include "lanes/mosaic/shard_steps.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <span>
#include <utility>

#include "lanes/mosaic/shape.h"
#include "plan/step_word.h"

namespace tessera::mosaic {
namespace {

// The steps [begin, end) of one row; backward of one column.
struct Run {
  size_t begin = 0, end = 0;
  int64_t number = 0;
};

std::vector<Run> runs_of(const Steps& steps, size_t list) {
  std::vector<Run> out;
  size_t begin = steps.range[list];
  for (size_t at = begin; at < steps.range[list + 1]; ++at) {
    if (!steps.steps[at].last()) continue;
    out.push_back({begin, at + 1, steps.steps[at].row()});
    begin = at + 1;
  }
  return out;
}

// A row's word for `call`; `calls` has a bit for each call that has the row.
int32_t row_word(size_t row, uint32_t calls, size_t call) {
  int32_t word = static_cast<int32_t>(row) << kRowShift;
  if ((calls & ((1U << call) - 1)) == 0) word |= kRowBegins;
  if (calls >> call == 1) word |= kRowEnds;
  return word;
}

// The number of chunks of a list, and the rows of each.
struct Chunks {
  size_t number = 1, rows = 0;
};
Chunks chunks_of_list(const MosaicKernel& kernel, const Shard& shard) {
  if (kernel.query_chunk == 0) return {1, shard.rows.size()};
  return {static_cast<size_t>(chunks_of(kernel)),
          static_cast<size_t>(kernel.query_chunk / kernel.tile.q)};
}

// Splits the backward steps of a device into calls, column by column.
class Splitter {
 public:
  Splitter(const Shard& shard, const ShardShapes& shapes,
           const MosaicKernel& kernel, const std::vector<Turn>& turns,
           const Steps& steps)
      : shard_(shard),
        shapes_(shapes),
        kernel_(kernel),
        chunks_(chunks_of_list(kernel, shard)),
        turns_(turns),
        steps_(steps),
        out_(turns.size()) {
    for (size_t c = 0; c < out_.size(); ++c) {
      out_[c].steps.tiles_per_pass = steps.tiles_per_pass;
      out_[c].steps.range.push_back(0);
      if (turns[c] == Turn::late) out_[c].shift = shapes.own_columns;
    }
  }

  std::vector<CallSteps> split() {
    std::vector<std::vector<Run>> lists;
    for (size_t list = 0; list + 1 < steps_.range.size(); ++list) {
      lists.push_back(runs_of(steps_, list));
    }
    const int64_t cut = first_of_last(lists);
    std::vector<CallsOfRows> calls_of_rows(lists.size());
    for (size_t list = 0; list < lists.size(); ++list) {
      CallsOfRows& calls = calls_of_rows[list];
      calls.assign(shard_.rows.size(), 0);
      for (const Run& column : lists[list]) add_column(column, cut, calls);
      if (static_cast<int64_t>(list) < shard_.lists) add_keyless(calls);
      for (size_t c = 0; c < out_.size(); ++c) fill_list(c);
      end_list();
    }
    for (size_t call = 0; call < out_.size(); ++call) {
      cut_for(kernel_, out_[call].steps);
      add_rows(calls_of_rows, call);
    }
    return std::move(out_);
  }

 private:
  // For each row of a list, a bit for each call that has the row.
  using CallsOfRows = std::vector<uint32_t>;

  std::span<const Step> steps_in(const Run& run) const {
    return std::span(steps_.steps).subspan(run.begin, run.end - run.begin);
  }
  bool is_own(const Run& column) const {
    return column.number < shard_.own_columns;
  }

  void add(const Run& run, CallSteps& to) {
    for (const Step& s : steps_in(run)) {
      to.steps.steps.push_back(plan::step_of(
          s.row() - to.shift, s.column(), s.step_class(), s.first(), s.last()));
    }
  }

  size_t call_of(Turn turn) const {
    return static_cast<size_t>(std::ranges::find(turns_, turn) -
                               turns_.begin());
  }

  void add_column(const Run& column, int64_t cut, CallsOfRows& calls) {
    const bool came = column.number >= shapes_.own_columns;
    if (!came && !is_own(column)) return;  // padding
    Turn turn = Turn::late;
    if (!came) turn = column.number < cut ? Turn::early : Turn::last;
    const size_t call = call_of(turn);
    add(column, out_[call]);
    for (const Step& s : steps_in(column)) {
      if (s.step_class() == 0) continue;
      calls[static_cast<size_t>(s.column())] |= 1U << call;
    }
  }

  // Rows without a key go to the first call.
  void add_keyless(CallsOfRows& calls) const {
    for (size_t r = 0; r < calls.size(); ++r) {
      if (shard_.computes[r] && calls[r] == 0) calls[r] = 1;
    }
  }

  // The first column of the last call, the same in all lists, because heads
  // that share keys add to one dK and dV. The early call hides the transfer of
  // K and V, the last one that of their gradients, which are twice as many
  // bytes. So a third of the work is early, or a share near it that splits the
  // fewest rows between the calls.
  int64_t first_of_last(const std::vector<std::vector<Run>>& lists) const {
    if (turns_.front() != Turn::early) return 0;
    const int64_t n = shard_.own_columns;
    const auto rows = shard_.rows.size() * lists.size();
    std::vector<int64_t> least(rows, INT64_MAX), most(rows, -1);
    std::vector<int64_t> work(static_cast<size_t>(n) + 1, 0);
    for (size_t list = 0; list < lists.size(); ++list) {
      for (const Run& column : lists[list]) {
        if (!is_own(column)) break;
        for (const Step& s : steps_in(column)) {
          if (s.step_class() == 0) continue;
          const auto r =
              list * shard_.rows.size() + static_cast<size_t>(s.column());
          least[r] = std::min(least[r], column.number);
          most[r] = std::max(most[r], column.number);
        }
        work[static_cast<size_t>(column.number) + 1] +=
            static_cast<int64_t>(steps_in(column).size());
      }
    }
    // Makes work[c] that of the columns before c. The last call gets at least
    // one.
    std::partial_sum(work.begin(), work.end(), work.begin());
    std::vector<int64_t> more(static_cast<size_t>(n) + 2, 0);
    for (size_t r = 0; r < rows; ++r) {
      if (least[r] >= most[r]) continue;
      ++more[static_cast<size_t>(least[r]) + 1];
      --more[static_cast<size_t>(most[r]) + 1];
    }
    int64_t cut_rows = 0;
    int64_t best = 0;
    std::pair<int64_t, int64_t> best_cost = {INT64_MAX, INT64_MAX};
    for (int64_t c = 1; c < n; ++c) {
      const int64_t share = work[static_cast<size_t>(c)];
      const bool near = 5 * share >= work.back() && 2 * share <= work.back();
      cut_rows += more[static_cast<size_t>(c)];
      const int64_t off = 3 * share - work.back();
      const std::pair cost = {near ? cut_rows : static_cast<int64_t>(rows),
                              std::abs(off)};
      if (cost < best_cost) {
        best = c;
        best_cost = cost;
      }
    }
    return best;
  }

  // Adds an empty pass to a list without steps: the kernel skips such lists.
  void fill_list(size_t call) {
    CallSteps& c = out_[call];
    if (c.steps.steps.size() > c.steps.range.back()) return;
    const int64_t n = steps_.tiles_per_pass;
    for (int64_t i = 0; i < n; ++i) {
      c.steps.steps.push_back(
          plan::step_of(0, 0, plan::kStepEmpty, i == 0, i + 1 == n));
    }
  }

  // Adds the `rows` words of a call, for each list or chunk of it.
  void add_rows(const std::vector<CallsOfRows>& calls_of_rows, size_t call) {
    CallSteps& c = out_[call];
    for (size_t at = 0; at + 1 < c.steps.range.size(); ++at) {
      const CallsOfRows& calls = calls_of_rows[at / chunks_.number];
      const size_t first = at % chunks_.number * chunks_.rows;
      const size_t end = std::min(first + chunks_.rows, calls.size());
      std::vector<int32_t> rows;
      for (size_t r = first; r < end; ++r) {
        if ((calls[r] >> call & 1) == 0) continue;
        rows.push_back(row_word(r, calls[r], call));
      }
      // Steps without a pair name a row too, which must have been loaded. If
      // the call has no row, one is loaded and stored unchanged.
      if (rows.empty())
        rows.push_back(static_cast<int32_t>(first) << kRowShift);
      const uint32_t begin = c.steps.range[at];
      const auto steps = std::span(c.steps.steps)
                             .subspan(begin, c.steps.range[at + 1] - begin);
      name_row(steps, rows.front() >> kRowShift);
      c.rows.push_back(static_cast<int32_t>(rows.size()));
      c.rows.push_back(static_cast<int32_t>(steps.front().row()));
      rows.resize(chunks_.rows, 0);
      c.rows.insert(c.rows.end(), rows.begin(), rows.end());
    }
  }

  // Makes the steps of columns without a pair name `row`.
  static void name_row(std::span<Step> steps, int64_t row) {
    bool live = false;
    for (Step& s : steps) {
      if (s.first()) live = s.step_class() != 0;
      if (live) continue;
      s = plan::step_of(s.row(), row, s.step_class(), s.first(), s.last());
    }
  }

  void end_list() {
    for (CallSteps& c : out_) {
      c.steps.range.push_back(static_cast<uint32_t>(c.steps.steps.size()));
    }
  }

  const Shard& shard_;
  const ShardShapes& shapes_;
  const MosaicKernel& kernel_;
  Chunks chunks_;
  const std::vector<Turn>& turns_;
  const Steps& steps_;
  std::vector<CallSteps> out_;
};

// Forward: gives each call the words of all rows, in order.
void add_row_words(std::vector<CallSteps>& calls, size_t rows) {
  const size_t lists = calls.front().steps.range.size() - 1;
  for (size_t list = 0; list < lists; ++list) {
    std::vector<uint32_t> calls_of_row(rows, 0);
    for (size_t c = 0; c < calls.size(); ++c) {
      const Steps& steps = calls[c].steps;
      for (size_t i = steps.range[list]; i < steps.range[list + 1]; ++i) {
        calls_of_row[static_cast<size_t>(steps.steps[i].row())] |= 1U << c;
      }
    }
    for (size_t c = 0; c < calls.size(); ++c) {
      std::vector<int32_t>& words = calls[c].rows;
      words.push_back(static_cast<int32_t>(rows));
      words.push_back(0);
      for (size_t r = 0; r < rows; ++r) {
        words.push_back(row_word(r, calls_of_row[r], c));
      }
    }
  }
}

}  // namespace

Result<std::vector<CallSteps>> steps_of_calls(
    const Batch& batch, const VetoedTiles& vetoed, const Shards& shards,
    size_t index, const MosaicKernel& kernel, const std::vector<Turn>& turns) {
  const Shard& shard = shards.shards[index];
  const ShardShapes& shapes = shards.shapes;
  std::vector<CallSteps> out;
  if (turns.size() == 1 || kernel.call.backward) {
    auto whole = shard_steps(batch, vetoed, shards, index, kernel);
    if (!whole) return whole.error();
    Steps& steps = whole->front();
    if (turns.size() > 1) {
      return Splitter(shard, shapes, kernel, turns, steps).split();
    }
    cut_for(kernel, steps);
    out.push_back({std::move(steps), 0, {}});
    return out;
  }
  std::vector<TakesTile> calls;
  calls.reserve(turns.size());
  for (const Turn turn : turns) {
    calls.push_back([&shapes, turn](int64_t row, int64_t column) {
      const bool own = row < shapes.own_rows && column < shapes.own_columns;
      return own == (turn == Turn::early);
    });
  }
  auto parts = shard_steps(batch, vetoed, shards, index, kernel, calls);
  if (!parts) return parts.error();
  for (Steps& steps : *parts) out.push_back({std::move(steps), 0, {}});
  add_row_words(out, shard.rows.size());
  return out;
}

}  // namespace tessera::mosaic
