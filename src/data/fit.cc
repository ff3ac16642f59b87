// data/fit.cc: fits parts of documents into rows, longest first. Lengths are
// sorted by counting. Rows are found with a stack, lengths with a bit set, in
// constant time per part, without trees or search.
#include "data/fit.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <queue>
#include <utility>

#include "base/integers.h"
#include "data/number_set.h"

namespace tessera::data {
namespace {

// Sorts parts by length, then by input order: those of length n become
// order[start[n], start[n + 1]).
std::vector<int32_t> sort_by_length(Lengths lengths, int64_t tokens,
                                    const Unset& order) {
  // One extra place in front: placing the parts moves next[n] to the end of
  // length n, which is start[n + 1].
  std::vector<int32_t> start(static_cast<size_t>(tokens) + 3, 0);
  int32_t* const next = start.data() + 1;
  for (const int32_t length : lengths) ++next[length + 1];
  for (int64_t n = 1; n <= tokens + 1; ++n) next[n] += next[n - 1];
  for (size_t i = 0; i < lengths.size(); ++i) {
    order[static_cast<size_t>(next[lengths[i]]++)] = static_cast<int32_t>(i);
  }
  start.pop_back();
  return start;
}

// Rows by the room that they have left, for lengths that never rise. Rows with
// room for the present length are on a stack, the least room on top. The others
// wait in a list for each room, until the length has fallen to it.
class Rooms {
 public:
  Rooms(int64_t tokens, size_t most_rows)
      : lists_(most_rows),
        next_(unset(most_rows + static_cast<size_t>(tokens) + 1)),
        last_(unset(static_cast<size_t>(tokens) + 1)),
        stack_(std::make_unique_for_overwrite<Row[]>(most_rows)) {
    std::iota(last_.get(), last_.get() + tokens + 1,
              static_cast<int32_t>(most_rows));
  }

  // The present length becomes this one, from one more.
  void fall_to(int32_t length) {
    const auto room = static_cast<size_t>(length);
    const auto last = static_cast<size_t>(last_[room]);
    for (size_t row = lists_ + room; row != last;) {
      row = static_cast<size_t>(next_[row]);
      stack_[height_++] = {static_cast<int32_t>(row), length};
    }
  }
  bool none() const { return height_ == 0; }  // no row has room

  // Puts a part of the present length into the row with the least room for it;
  // of equal rooms, into the row that got a part last.
  int32_t fill(int32_t length) {
    Row& top = stack_[height_ - 1];
    const int32_t row = top.number;
    top.room -= length;
    if (top.room < length) {
      --height_;
      wait(row, top.room);
    }
    return row;
  }
  // Adds a row, when no other has room for the present length.
  void add(int32_t row, int32_t room, int32_t length) {
    if (room >= length) {
      stack_[height_++] = {row, room};
    } else {
      wait(row, room);
    }
  }
  void wait(int32_t row, int32_t room) {
    int32_t& last = last_[static_cast<size_t>(room)];
    next_[static_cast<size_t>(last)] = row;
    last = row;
  }

 private:
  struct Row {
    int32_t number, room;
  };

  // The list for room n starts at next_[lists_ + n], and ends with last_[n].
  size_t lists_;
  Unset next_, last_;
  std::unique_ptr<Row[]> stack_;
  size_t height_ = 0;
};

// Lengths from `length` down; `taken` parts of `length` have a row already.
struct LengthsLeft {
  int32_t length, taken;
};

// even_fit balances the cost of parts that are at least 1 / kLongShare of a
// row; shorter parts cost little, and go where they fill best.
constexpr int64_t kLongShare = 8;

// Each part of these lengths, longest first, goes into the row where it leaves
// the least room.
void fit_rest(std::span<const int32_t> start, LengthsLeft left, int32_t all,
              Rooms& rooms, Fit& fit) {
  for (int32_t n = all; n > left.length; --n) rooms.fall_to(n);
  int32_t rows = fit.rows;
  // start[length + 1] counts the parts of this length and of shorter ones.
  for (; start[static_cast<size_t>(left.length) + 1] > 0;
       --left.length, left.taken = 0) {
    const int32_t length = left.length;
    rooms.fall_to(length);
    const int32_t begin = start[static_cast<size_t>(length)] + left.taken;
    const auto end =
        static_cast<size_t>(start[static_cast<size_t>(length) + 1]);
    for (auto i = static_cast<size_t>(begin); i < end; ++i) {
      if (rooms.none()) {
        fit.row_of[i] = rows;
        rooms.add(rows++, all - length, length);
      } else {
        fit.row_of[i] = rooms.fill(length);
      }
    }
  }
  fit.rows = rows;
}

}  // namespace

std::vector<int32_t> row_starts(const Fit& fit,
                                std::span<const int32_t> order) {
  std::vector<int32_t> starts(static_cast<size_t>(fit.rows), 0);
  for (size_t i = 0; i < fit.parts; ++i) {
    ++starts[static_cast<size_t>(fit.row_of[i])];
  }
  int32_t at = 0;
  for (const int32_t row : order) {
    at += std::exchange(starts[static_cast<size_t>(row)], at);
  }
  return starts;
}

Fit first_fit(Lengths parts, int64_t tokens) {
  // Fills row by row with the longest part that fits. This equals first fit,
  // which passes over a row only if the row has no room.
  const Unset order = unset(parts.size());
  const std::vector<int32_t> start = sort_by_length(parts, tokens, order);
  std::vector<int32_t> next(start.begin() + 1, start.end());
  NumberSet lengths(tokens);
  for (int64_t n = 1; n <= tokens; ++n) {
    if (start[static_cast<size_t>(n)] < next[static_cast<size_t>(n)]) {
      lengths.insert(n);
    }
  }
  Fit fit(parts.size());
  for (size_t left = parts.size(); left > 0; ++fit.rows) {
    int64_t room = tokens;
    int64_t n = -1;
    while (room > 0 && (n = lengths.at_most(room)) > 0) {
      // Parts of one length are taken last to first, as in best_fit.
      int32_t& end = next[static_cast<size_t>(n)];
      fit.part[--left] = order[static_cast<size_t>(--end)];
      fit.row_of[left] = fit.rows;
      if (end == start[static_cast<size_t>(n)]) lengths.erase(n);
      room -= n;
    }
  }
  return fit;
}

Fit best_fit(Lengths parts, int64_t tokens) {
  Fit fit(parts.size());
  const std::vector<int32_t> start = sort_by_length(parts, tokens, fit.part);
  Rooms rooms(tokens, parts.size());
  const auto all = static_cast<int32_t>(tokens);
  fit_rest(start, {all, 0}, all, rooms, fit);
  return fit;
}

Fit even_fit(Lengths parts, int64_t tokens) {
  Fit fit(parts.size());
  const std::vector<int32_t> start = sort_by_length(parts, tokens, fit.part);
  const auto all = static_cast<int32_t>(tokens);
  // The fewest rows possible. The top of `least` has the least sum of squares.
  int64_t sum = 0;
  for (const int32_t length : parts) sum += length;
  fit.rows = static_cast<int32_t>(ceil_div(sum, tokens));
  const auto rows = static_cast<size_t>(fit.rows);
  std::vector<int32_t> room(rows, all);
  using Row = std::pair<int64_t, int32_t>;
  std::vector<Row> first(rows);
  for (size_t r = 0; r < rows; ++r) first[r].second = static_cast<int32_t>(r);
  std::priority_queue<Row, std::vector<Row>, std::greater<>> least(
      std::greater<>(), std::move(first));
  LengthsLeft left{all, 0};
  const auto shortest = static_cast<int32_t>(ceil_div(tokens, kLongShare));
  for (; left.length >= shortest && !least.empty();
       --left.length, left.taken = 0) {
    const auto n = static_cast<size_t>(left.length);
    for (int32_t i = start[n]; i < start[n + 1]; ++i) {
      // A row without room for this part gets no more long parts.
      while (!least.empty() &&
             room[static_cast<size_t>(least.top().second)] < left.length) {
        least.pop();
      }
      if (least.empty()) break;
      const auto [squares, row] = least.top();
      least.pop();
      least.emplace(squares + int64_t{left.length} * left.length, row);
      room[static_cast<size_t>(row)] -= left.length;
      fit.row_of[static_cast<size_t>(i)] = row;
      ++left.taken;
    }
    if (least.empty()) break;
  }
  Rooms rooms(tokens, parts.size() + rows);
  for (size_t r = rows; r-- > 0;) rooms.wait(static_cast<int32_t>(r), room[r]);
  fit_rest(start, left, all, rooms, fit);
  return fit;
}

}  // namespace tessera::data
