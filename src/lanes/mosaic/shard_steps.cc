// lanes/mosaic/shard_steps.cc: rows, backward columns, each to one call.
#include "lanes/mosaic/shard_steps.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <utility>

#include "lanes/mosaic/shape.h"
#include "plan/step_word.h"
#include "shard/early.h"

namespace tessera::mosaic {
namespace {

// Steps that follow each other up to one that is its row's last; backward a
// column's.
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

class Splitter {
 public:
  Splitter(const Shard& shard, const ShardShapes& shapes,
           const std::vector<Turn>& turns, const Steps& steps,
           const std::vector<int32_t>& bits_of)
      : shard_(shard),
        shapes_(shapes),
        turns_(turns),
        steps_(steps),
        bits_of_(bits_of),
        out_(turns.size()) {
    for (CallSteps& c : out_) {
      c.steps.tiles_per_pass = steps.tiles_per_pass;
      c.steps.range.push_back(0);
      c.bits_of.reserve(bits_of.size());
    }
  }

  std::vector<CallSteps> by_rows() {
    for (size_t list = 0; list + 1 < steps_.range.size(); ++list) {
      for (const Run& row : runs_of(steps_, list)) {
        int64_t last = 0;
        for (const Step& s : steps_in(row)) last = std::max(last, s.column());
        // What comes stands behind the room for own tiles.
        const bool early = shard::is_early(
            {shapes_.own_rows, shapes_.own_columns}, row.number, last);
        add(row, out_[early ? 0 : 1], 0);
      }
      end_list();
    }
    return take();
  }

  std::vector<CallSteps> by_columns() {
    for (size_t list = 0; list + 1 < steps_.range.size(); ++list) {
      const std::vector<Run> columns = runs_of(steps_, list);
      const int64_t cut = first_of_last(columns);
      calls_of_row_.assign(shard_.rows.size(), 0);
      for (const Run& column : columns) add_column(column, cut);
      for (size_t c = 0; c < out_.size(); ++c) fill_list(c);
      add_rows(static_cast<int64_t>(list) < shard_.lists, cut);
      end_list();
    }
    return take();
  }

 private:
  std::span<const Step> steps_in(const Run& run) const {
    return std::span(steps_.steps).subspan(run.begin, run.end - run.begin);
  }
  bool is_own(const Run& column) const {
    return column.number < shard_.own_columns;
  }

  // To a call whose columns have numbers that are `shift` less.
  void add(const Run& run, CallSteps& to, int64_t shift) {
    for (const Step& s : steps_in(run)) {
      to.steps.steps.push_back(plan::step_of(
          s.row() - shift, s.column(), s.step_class(), s.first(), s.last()));
    }
    to.bits_of.insert(to.bits_of.end(),
                      bits_of_.begin() + static_cast<int64_t>(run.begin),
                      bits_of_.begin() + static_cast<int64_t>(run.end));
  }

  size_t call_of(Turn turn) const {
    return static_cast<size_t>(std::ranges::find(turns_, turn) -
                               turns_.begin());
  }

  void add_column(const Run& column, int64_t cut) {
    const bool came = column.number >= shapes_.own_columns;
    if (!came && !is_own(column)) return;  // padding
    Turn turn = Turn::late;
    if (!came) turn = column.number < cut ? Turn::early : Turn::last;
    const size_t call = call_of(turn);
    add(column, out_[call], came ? shapes_.own_columns : 0);
    for (const Step& s : steps_in(column)) {
      if (s.step_class() == 0) continue;
      calls_of_row_[static_cast<size_t>(s.column())] |= 1U << call;
    }
  }

  // Where the last call's own columns begin. The early one hides K and V that
  // come, the last one their gradients, which are twice as many bytes: so a
  // third of the work is early, or what is near and cuts fewest rows in two.
  int64_t first_of_last(const std::vector<Run>& columns) const {
    if (turns_.front() != Turn::early) return 0;
    const auto rows = shard_.rows.size();
    std::vector<int64_t> least(rows, INT64_MAX), most(rows, -1);
    std::vector<int64_t> work = {0};  // of the columns before each
    for (const Run& column : columns) {
      if (!is_own(column)) break;
      for (const Step& s : steps_in(column)) {
        if (s.step_class() == 0) continue;
        const auto r = static_cast<size_t>(s.column());
        least[r] = std::min(least[r], column.number);
        most[r] = std::max(most[r], column.number);
      }
      work.push_back(work.back() +
                     static_cast<int64_t>(steps_in(column).size()));
    }
    // The last call has a column at least.
    const auto n = static_cast<int64_t>(work.size()) - 1;
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

  // A kernel writes nothing where a list has no step.
  void fill_list(size_t call) {
    CallSteps& c = out_[call];
    if (c.steps.steps.size() > c.steps.range.back()) return;
    const int64_t n = steps_.tiles_per_pass;
    for (int64_t i = 0; i < n; ++i) {
      c.steps.steps.push_back(
          plan::step_of(0, 0, plan::kStepEmpty, i == 0, i + 1 == n));
      c.bits_of.push_back(kNoPairs);
    }
  }

  // The rows that each call is told, of the list that was written last.
  void add_rows(bool real, int64_t cut) {
    if (real) {
      // A row without a key is the first call's.
      for (size_t r = 0; r < calls_of_row_.size(); ++r) {
        if (shard_.computes[r] && calls_of_row_[r] == 0) calls_of_row_[r] = 1;
      }
    }
    for (size_t call = 0; call < out_.size(); ++call) {
      CallSteps& c = out_[call];
      std::vector<int32_t> rows;
      for (size_t r = 0; r < calls_of_row_.size(); ++r) {
        const uint32_t calls = calls_of_row_[r];
        if ((calls >> call & 1) == 0) continue;
        int32_t word = static_cast<int32_t>(r) << kRowShift;
        if ((calls & ((1U << call) - 1)) == 0) word |= kRowBegins;
        if (calls >> call == 1) word |= kRowEnds;
        rows.push_back(word);
      }
      // Steps without a pair name a row too, which must have come in. Where a
      // call has none, one comes and goes as it is.
      if (rows.empty()) rows.push_back(0);
      name_row(c, rows.front() >> kRowShift);
      c.rows.push_back(static_cast<int32_t>(rows.size()));
      c.rows.push_back(
          static_cast<int32_t>(turns_[call] == Turn::last ? cut : 0));
      rows.resize(calls_of_row_.size(), 0);
      c.rows.insert(c.rows.end(), rows.begin(), rows.end());
    }
  }

  // In columns without a pair.
  static void name_row(CallSteps& c, int64_t row) {
    bool live = false;
    for (size_t at = c.steps.range.back(); at < c.steps.steps.size(); ++at) {
      Step& s = c.steps.steps[at];
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

  std::vector<CallSteps> take() {
    for (CallSteps& c : out_) c.bits_of.resize(bits_of_.size(), kNoPairs);
    return std::move(out_);
  }

  const Shard& shard_;
  const ShardShapes& shapes_;
  const std::vector<Turn>& turns_;
  const Steps& steps_;
  const std::vector<int32_t>& bits_of_;
  std::vector<uint32_t> calls_of_row_;  // of the list in hand, a bit a call
  std::vector<CallSteps> out_;
};

}  // namespace

std::vector<CallSteps> steps_of_calls(const Shard& shard,
                                      const ShardShapes& shapes,
                                      const std::vector<Turn>& turns,
                                      bool backward, const Steps& steps,
                                      const std::vector<int32_t>& bits_of) {
  if (turns.size() == 1) return {{steps, bits_of, {}}};
  Splitter splitter(shard, shapes, turns, steps, bits_of);
  return backward ? splitter.by_columns() : splitter.by_rows();
}

}  // namespace tessera::mosaic
